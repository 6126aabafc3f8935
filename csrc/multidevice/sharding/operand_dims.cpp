#include "multidevice/sharding/operand_dims.h"

#include <algorithm>

#include "base/ranges.h"
#include "base/rounding.h"
#include "digits/prover.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

// Slice and Pad keep their dims at the root; the attributes hold the window.
void addWindow(const Expr* expr, std::vector<OperandDim>& dims) {
  const ExprAttributes& a = expr->attributes();
  const bool isSlice = expr->kind() == ExprKind::Slice;
  for (int64_t k = 0; k < std::ssize(dims); k++) {
    dims[k].step = isSlice ? a.steps[k] : 1;
    dims[k].offset = isSlice ? a.starts[k] : IntExpr(0) - a.starts[k];
    dims[k].window = cutsOrPads(*expr, k);
  }
}

// The indices j * step + offset of all j that lie in 0 .. extent - 1.
IndexRuns readFor(const IndexRuns& made, int64_t step, int64_t offset, int64_t extent) {
  IndexRuns out;
  for (const IndexRun& r : made) {
    IndexRun read{offset + r.start * step, r.count, r.count == 1 ? 1 : r.step * step};
    const int64_t skipped = read.start < 0 ? divideUp(-read.start, read.step) : 0;
    read.start += skipped * read.step;
    read.count = std::min(r.count - skipped, divideUp(extent - read.start, read.step));
    if (read.count > 0 && read.start < extent) {
      out.push_back(read);
    }
  }
  return out;
}

}  // namespace

bool survivesWindow(const Digit& d, const OperandDim& dim, const Prover& prover) {
  const auto isOfWholePeriods = [&] {
    return dim.offset.isConst(0) || prover.divide(dim.offset, prover.multiply(d.stride, d.size)).has_value();
  };
  // the parts of a window have other sizes than those of its operand
  return dim.step.isConst(1) && (!dim.window || (d.parts.empty() && isOfWholePeriods()));
}

bool stretches(const IterDomain* operand, const OperandDim& dim, const IterDomain* result) {
  return !dim.window && (operand->isBroadcast() || operand->extent().isConst(1)) && !result->extent().isConst(1);
}

bool mayStretch(const Expr& expr, const IterDomain* operand, const OperandDim& dim, const IterDomain* result,
                const Prover& prover) {
  return !dim.window && (operand->isSymbolic() || expr.kind() == ExprKind::Expand) &&
         !prover.equal(prover.canonical(operand->extent()), prover.canonical(result->extent()));
}

std::vector<OperandDim> operandDims(const Expr* expr, int64_t operand) {
  if (!expr->input(operand)->isTensor()) {
    return {};
  }
  std::vector<OperandDim> dims(expr->input(operand)->asTensor()->noReductions().size());
  const OperandDims read = dimsRead(*expr, operand);
  for (int64_t root = 0; root < std::ssize(read.ofConsumer); root++) {
    const DimLink& link = read.ofConsumer[root];
    if (link.how == DimRead::Same || link.how == DimRead::Reduced || link.how == DimRead::Window ||
        link.how == DimRead::Indexed) {
      OperandDim& dim = dims[link.producer];
      dim.root = root;
      dim.window = link.how == DimRead::Window;
      dim.offset = dim.window ? IntExpr(0) - link.offset : IntExpr(0);
    }
  }
  if (isWindow(*expr)) {
    addWindow(expr, dims);
  }
  return dims;
}

std::vector<OperandDim> operandDimsOfState(const Expr* expr, int64_t operand) {
  std::vector<OperandDim> dims = operandDims(expr, operand);
  if (const int64_t partial = expr->input(operand)->asTensor()->partialDim(); partial >= 0) {
    dims.erase(dims.begin() + partial);
  }
  return dims;
}

Part windowReads(const std::vector<OperandDim>& dims, const std::vector<int64_t>& sizes, const Part& made) {
  return {mapped(indices(sizes), [&](int64_t k) {
    return readFor(made.dims[k], dims[k].step.constValue(), dims[k].offset.constValue(), sizes[k]);
  })};
}

}  // namespace meshfuse
