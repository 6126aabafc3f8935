#include "ops/shape_rules.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/ranges.h"
#include "digits/part_sizes.h"
#include "ops/shape_ops.h"

namespace meshfuse {

int64_t wrapAxis(std::string_view op, int64_t axis, int64_t rank) {
  check(axis >= -rank && axis < rank, "[{}] axis {} is out of range: the tensor has {} dims; give {} to {}", op, axis,
        rank, -rank, rank - 1);
  return axis < 0 ? axis + rank : axis;
}

std::vector<int64_t> wrapAxes(std::string_view op, std::span<const int64_t> axes, int64_t rank) {
  auto wrapped = mapped<int64_t>(axes, [&](int64_t axis) { return wrapAxis(op, axis, rank); });
  std::ranges::sort(wrapped);
  auto twice = std::ranges::adjacent_find(wrapped);
  if (twice != wrapped.end()) {
    throwUserError(fmt::format("[{}] axis {} is listed twice in the list of axes; name each axis once", op, *twice));
  }
  return wrapped;
}

std::vector<int64_t> axesIn(int64_t first, int64_t last) {
  std::vector<int64_t> axes(last - first);
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

std::vector<int64_t> reducedAxes(std::string_view op, const TensorView* x, std::span<const int64_t> axes) {
  int64_t rank = rankOf(x);
  if (rank == 0) {
    for (int64_t axis : axes) {
      (void)wrapAxis(op, axis, 1);
    }
    return {};
  }
  return axes.empty() ? axesIn(0, rank) : wrapAxes(op, axes, rank);
}

int64_t rankOf(const TensorView* tv) { return std::ssize(tv->noReductions()); }

Dim dimOf(const IntExpr& extent) { return {extent, extent.isConst(1) ? IterType::Broadcast : IterType::Iteration}; }

Dim dynamicDimOf(const IntExpr& extent) { return extent.isConst() ? dimOf(extent) : Dim{extent, IterType::Symbolic}; }

bool mayStretch(const Dim& dim) { return dim.type == IterType::Broadcast || dim.type == IterType::Symbolic; }

Dim sameDim(const Dim& a, const Dim& b) {
  bool settled = b.type != IterType::Symbolic && a.type == IterType::Symbolic;
  bool simpler = b.extent.isConst() && !a.extent.isConst() && b.type == a.type;
  return settled || simpler ? b : a;
}

Dim stretched(const Dim& a, const Dim& b) {
  if (b.type == IterType::Broadcast) {
    return a;
  }
  if (a.type == IterType::Broadcast) {
    return b;
  }
  bool bothOpen = a.type == IterType::Symbolic && b.type == IterType::Symbolic;
  return bothOpen ? Dim{max(a.extent, b.extent), IterType::Symbolic} : sameDim(a, b);
}

std::string describe(std::span<const IntExpr> shape) { return toString(shape); }

std::string describe(const TensorView* tv) {
  return fmt::format("T{} {}{}", tv->id(), name(tv->dtype()), describe(tv->shape()));
}

bool provenDifferent(const IntExpr& a, const IntExpr& b) {
  IntExpr difference = a - b;
  return difference.isConst() && difference.constValue() != 0;
}

bool mayBeEqual(std::span<const IntExpr> a, std::span<const IntExpr> b) {
  return std::ranges::equal(a, b, std::not_fn(provenDifferent));
}

std::vector<IntExpr> extentsAt(const TensorView* x, std::span<const int64_t> axes) {
  return mapped(axes, [shape = x->shape()](int64_t axis) { return shape[axis]; });
}

TensorView* withDimsAt(TensorView* x, const std::vector<int64_t>& axes) {
  std::vector<bool> isNew(rankOf(x) + axes.size(), false);
  for (int64_t axis : axes) {
    isNew[axis] = true;
  }
  return axes.empty() ? x : broadcast(x, isNew);
}

TensorView* withLeadingDims(TensorView* x, int64_t rank) {
  return withDimsAt(x, axesIn(0, std::max<int64_t>(rank - rankOf(x), 0)));
}

std::vector<Dim> stretchedDims(std::string_view op, const std::vector<TensorView*>& tensors) {
  const auto all = mapped(tensors, [](const TensorView* tv) { return dimsOf(tv); });
  std::vector<Dim> result = all.at(0);
  for (int64_t k = 0; k < std::ssize(result); k++) {
    size_t chosen = 0;  // for the message: the last tensor that was no broadcast
    for (int64_t t = 1; t < std::ssize(all); t++) {
      const Dim& next = all[t][k];
      if (next.type == IterType::Broadcast) {
        continue;
      }
      if (!mayStretch(result[k]) && !mayStretch(next) && provenDifferent(result[k].extent, next.extent)) {
        throwUserError(fmt::format(
            "[{}] extents differ in dim {}: {} has {}, {} has {}; expected equal extents or a broadcast dim (a "
            "constant 1)",
            op, k, describe(tensors[chosen]), all[chosen][k].extent.toString(), describe(tensors[t]),
            next.extent.toString()));
      }
      const Dim met = stretched(result[k], next);
      chosen = met.extent == next.extent && met.type == next.type ? t : chosen;
      result[k] = met;
    }
  }
  return result;
}

TensorView* floatingOperand(std::string_view op, TensorView* x, std::string_view operand) {
  checkTensor(op, x, operand);
  return x->dtype() == DataType::Double ? x : maybeCastOp(DataType::Float, x);
}

bool mayStretchTogether(const TensorView* a, const TensorView* b) {
  const std::vector<Dim> dimsOfA = dimsOf(a);
  const std::vector<Dim> dimsOfB = dimsOf(b);
  const size_t common = std::min(dimsOfA.size(), dimsOfB.size());
  return std::equal(dimsOfA.end() - common, dimsOfA.end(), dimsOfB.end() - common, [](const Dim& x, const Dim& y) {
    return mayStretch(x) || mayStretch(y) || !provenDifferent(x.extent, y.extent);
  });
}

void checkStretchesTo(std::string_view op, std::string_view operand, const TensorView* tv, std::string_view target,
                      const TensorView* to) {
  const bool fits = rankOf(tv) <= rankOf(to) && mayStretchTogether(tv, to);
  check(fits, "[{}] {} is {}, expected {}, the shape of {}; reshape or expand it", op, operand, describe(tv),
        describe(to->shape()), target);
}

TensorView* gradientOperand(std::string_view op, TensorView* dy, std::string_view target, const TensorView* to) {
  dy = floatingOperand(op, dy, "dy");
  checkStretchesTo(op, "dy", dy, target, to);
  return dy;
}

TensorView* calledAs(std::string_view builder, TensorView* tv) {
  tv->fusion().setCalledAs(tv->definition(), builder);
  return tv;
}

IntExpr countOver(const TensorView* x, std::span<const int64_t> axes) { return product(extentsAt(x, axes)); }

void checkTensor(std::string_view op, const Val* val, std::string_view operand) {
  check(val != nullptr, "[{}] {} is null, expected a tensor; pass the result of another op or an input", op, operand);
  check(val->isTensor(), "[{}] {} is the scalar {}, expected a tensor; make one with full", op, operand,
        val->toString());
}

Fusion& commonFusion(std::string_view op, const std::vector<Val*>& vals) {
  Fusion* fusion = nullptr;
  for (const Val* val : vals) {
    check(val != nullptr, "[{}] an operand is null, expected a tensor or a scalar", op);
    if (fusion != nullptr && fusion != &val->fusion()) {
      throwUserError(fmt::format(
          "[{}] operand {} is of another fusion than the operands before it; build a fusion from its own values", op,
          val->toString()));
    }
    fusion = &val->fusion();
  }
  invariant(fusion != nullptr, "[{}] no operand belongs to a fusion", op);
  return *fusion;
}

}  // namespace meshfuse
