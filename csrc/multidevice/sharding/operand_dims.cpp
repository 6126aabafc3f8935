#include "multidevice/sharding/operand_dims.h"

#include "digits/prover.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

// Slice and Pad keep their dims at the root; the attributes hold the window.
void addWindow(const Expr* expr, std::vector<OperandDim>& dims) {
  const ExprAttributes& a = expr->attributes();
  const std::vector<IntExpr> extents = expr->input(0)->asTensor()->shape();
  const bool isSlice = expr->kind() == ExprKind::Slice;
  for (int64_t k = 0; k < std::ssize(dims); k++) {
    dims[k].strided = isSlice && !a.steps[k].isConst(1);
    dims[k].offset = isSlice ? a.starts[k] : IntExpr(0) - a.starts[k];
    dims[k].window = !a.starts[k].isConst(0) || !(a.stops[k] == (isSlice ? extents[k] : 0));
  }
}

}  // namespace

bool survivesWindow(const Digit& d, const OperandDim& dim, const Prover& prover) {
  const auto isOfWholePeriods = [&] {
    return dim.offset.isConst(0) || prover.divide(dim.offset, prover.multiply(d.stride, d.size)).has_value();
  };
  // the parts of a window have other sizes than those of its operand
  return !dim.strided && (!dim.window || (d.parts.empty() && isOfWholePeriods()));
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

}  // namespace meshfuse
