#include "ops/shape_ops.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/ranges.h"
#include "ops/add_view.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

TensorView* copyOp(std::string_view op, ExprKind kind, TensorView* x) {
  checkTensor(op, x, "operand");
  return x->fusion().addOp(kind, {x}, x->dtype(), dimsOf(x));
}

void checkScalar(std::string_view op, const Val* x) {
  check(x != nullptr, "[{}] operand is null, expected a tensor or a scalar", op);
}

}  // namespace

TensorView* set(TensorView* x) { return copyOp("set", ExprKind::Set, x); }

Val* set(Val* x) {
  checkScalar("set", x);
  return x->isTensor() ? set(x->asTensor()) : x;  // a scalar has no copies
}

TensorView* segment_set(TensorView* x) { return copyOp("segment_set", ExprKind::SegmentSet, x); }

TensorView* castOp(DataType dtype, TensorView* x) {
  checkTensor("castOp", x, "operand");
  return x->dtype() == dtype ? set(x) : x->fusion().addOp(ExprKind::Cast, {x}, dtype, dimsOf(x));
}

Val* castOp(DataType dtype, Val* x) {
  checkScalar("castOp", x);
  if (x->isTensor()) {
    return castOp(dtype, x->asTensor());
  }
  if (x->dtype() == dtype) {
    return x;
  }
  if (x->isConst() && dtype == DataType::Double && x->dtype() == DataType::Int) {
    return x->fusion().scalar(static_cast<double>(std::get<int64_t>(x->constant())));
  }
  Val* out = x->fusion().inputScalar(dtype);
  x->fusion().addExpr(ExprKind::Cast, {x}, {out});
  return out;
}

TensorView* maybeCastOp(DataType dtype, TensorView* x) {
  checkTensor("castOp", x, "operand");
  return x->dtype() == dtype ? x : castOp(dtype, x);
}

Val* maybeCastOp(DataType dtype, Val* x) {
  checkScalar("castOp", x);
  return x->dtype() == dtype ? x : castOp(dtype, x);
}

TensorView* bitCastOp(DataType dtype, TensorView* x) {
  checkTensor("bitCastOp", x, "operand");
  check(dataTypeSize(dtype) == dataTypeSize(x->dtype()),
        "[bitCastOp] {} has elements of {} bytes, {} has {}; expected a type of the same size", describe(x),
        dataTypeSize(x->dtype()), name(dtype), dataTypeSize(dtype));
  check(dtype != DataType::Bool && x->dtype() != DataType::Bool,
        "[bitCastOp] {} to {}: the bits of other types are not valid Bool values; use castOp", describe(x),
        name(dtype));
  return x->fusion().addOp(ExprKind::BitCast, {x}, dtype, dimsOf(x));
}

TensorView* view(TensorView* x, DataType dtype) { return bitCastOp(dtype, x); }

// -- dims of extent 1 -----------------------------------------------------------------------------------------------------

TensorView* squeeze(TensorView* x, const std::vector<bool>& flags) {
  checkTensor("squeeze", x, "operand");
  std::vector<Dim> dims = dimsOf(x);
  check(flags.size() == dims.size(), "[squeeze] got {} flags for {}; expected one for each dim", flags.size(),
        describe(x));
  std::vector<Dim> kept;
  for (int64_t k : indices(dims)) {
    if (!flags[k]) {
      kept.push_back(dims[k]);
      continue;
    }
    check(dims[k].extent.isConst(1),
          "[squeeze] dim {} of {} has extent {}, expected the constant 1; leave it out or index it with slice", k,
          describe(x), dims[k].extent.toString());
  }
  return kept.size() == dims.size() ? set(x)
                                    : x->fusion().addOp(ExprKind::Squeeze, {x}, x->dtype(), kept, {.flags = flags});
}

TensorView* squeeze(TensorView* x, const std::vector<int64_t>& axes) {
  checkTensor("squeeze", x, "operand");
  std::vector<bool> flags(rankOf(x), false);
  for (int64_t axis : wrapAxes("squeeze", axes, rankOf(x))) {
    flags[axis] = true;
  }
  return squeeze(x, flags);
}

TensorView* squeeze(TensorView* x, int64_t axis) { return squeeze(x, std::vector<int64_t>{axis}); }

TensorView* squeeze(TensorView* x) {
  checkTensor("squeeze", x, "operand");
  return squeeze(x, mapped(x->shape(), [](const IntExpr& extent) { return extent.isConst(1); }));
}

TensorView* unsqueeze(TensorView* x, int64_t axis) {
  checkTensor("unsqueeze", x, "operand");
  return withDimsAt(x, {wrapAxis("unsqueeze", axis, rankOf(x) + 1)});
}

TensorView* broadcast(TensorView* x, const std::vector<bool>& isNew) {
  checkTensor("broadcast", x, "operand");
  std::vector<Dim> old = dimsOf(x);
  auto kept = std::ranges::count(isNew, false);
  check(kept == std::ssize(old),
        "[broadcast] got {} flags that are false for {}; expected one for each dim of it, here {}", kept, describe(x),
        old.size());
  if (isNew.size() == old.size()) {
    return set(x);
  }
  std::vector<Dim> dims;
  size_t next = 0;
  for (bool fresh : isNew) {
    dims.push_back(fresh ? Dim{1, IterType::Broadcast} : old[next++]);
  }
  return x->fusion().addOp(ExprKind::Broadcast, {x}, x->dtype(), dims, {.flags = isNew});
}

TensorView* withExtents(TensorView* x, const std::vector<IntExpr>& extents) {
  std::vector<Dim> dims = dimsOf(x);
  for (int64_t k : indices(dims)) {
    dims[k].extent = extents[k];
  }
  return x->shape() == extents ? x : x->fusion().addOp(ExprKind::Set, {x}, x->dtype(), dims);
}

namespace {

// `sizes`: nullopt keeps the dim.
TensorView* expandTo(TensorView* x, const std::vector<std::optional<IntExpr>>& sizes) {
  checkTensor("expand", x, "operand");
  const int64_t missing = std::ssize(sizes) - rankOf(x);
  check(missing >= 0, "[expand] got {} sizes for {}; expected at least one for each dim, -1 keeps a dim", sizes.size(),
        describe(x));
  x = withLeadingDims(x, std::ssize(sizes));
  std::vector<Dim> dims = dimsOf(x);
  bool changes = false;
  for (int64_t k : indices(dims)) {
    if (!sizes[k]) {
      check(k >= missing, "[expand] size {} is -1 for a new leading dim; expected its extent", k);
      continue;
    }
    if (dims[k].extent == *sizes[k]) {
      continue;
    }
    check(mayStretch(dims[k]) || !provenDifferent(dims[k].extent, *sizes[k]),
          "[expand] dim {} of {} has extent {}, got {}; only broadcast dims (a constant 1) stretch", k, describe(x),
          dims[k].extent.toString(), sizes[k]->toString());
    changes = true;
    // A dim that is made 1 must be 1: a broadcast dim once that is known.
    dims[k] = sizes[k]->isConst(1) ? Dim{1, IterType::Symbolic} : dynamicDimOf(*sizes[k]);
  }
  return changes ? x->fusion().addOp(ExprKind::Expand, {x}, x->dtype(), dims) : set(x);
}

}  // namespace

TensorView* expand(TensorView* x, const IntList& sizes) {
  std::vector<std::optional<IntExpr>> targets;
  for (const IntExpr& size : sizes.items()) {
    check(!size.isConst() || size.constValue() >= -1, "[expand] got size {}, expected an extent or -1",
          size.toString());
    targets.push_back(size.isConst(-1) ? std::nullopt : std::optional<IntExpr>(size));
  }
  return expandTo(x, targets);
}

TensorView* expand_as(TensorView* x, TensorView* other) {
  checkTensor("expand_as", other, "operand 1");
  return expandTo(x, mapped<std::optional<IntExpr>>(other->shape(), std::identity()));
}

TensorView* repeat(TensorView* x, const std::vector<int64_t>& times) {
  checkTensor("repeat", x, "operand");
  const int64_t missing = std::ssize(times) - rankOf(x);
  check(missing >= 0, "[repeat] got {} repeat counts for {}; expected at least one for each dim", times.size(),
        describe(x));
  for (int64_t n : times) {
    check(n >= 0, "[repeat] got a repeat count of {}, expected 0 or more", n);
  }
  // [.., a, ..] -> [.., 1, a, ..] -> [.., n, a, ..] -> [.., n * a, ..]
  std::vector<IntExpr> shape(missing, IntExpr(1));
  append(shape, x->shape());
  std::vector<bool> isNew;
  std::vector<std::optional<IntExpr>> stretched;
  std::vector<IntExpr> merged;
  for (int64_t k : indices(times)) {
    const bool isFresh = k < missing;
    isNew.insert(isNew.end(), {true, isFresh});
    stretched.insert(stretched.end(), {IntExpr(times[k]), isFresh ? std::optional(IntExpr(1)) : std::nullopt});
    merged.push_back(shape[k] * times[k]);
  }
  return reshape(expandTo(broadcast(x, isNew), stretched), merged);
}

// -- order ----------------------------------------------------------------------------------------------------------------

TensorView* permute(TensorView* x, const std::vector<int64_t>& order) {
  checkTensor("permute", x, "operand");
  int64_t rank = rankOf(x);
  check(std::ssize(order) == rank, "[permute] got {} axes for {}; expected one for each dim", order.size(),
        describe(x));
  (void)wrapAxes("permute", order, rank);
  const auto wrapped = mapped(order, [&](int64_t axis) { return wrapAxis("permute", axis, rank); });
  return std::ranges::is_sorted(wrapped) ? set(x) : addPermute(x, wrapped);
}

TensorView* transpose(TensorView* x, int64_t a, int64_t b) {
  checkTensor("transpose", x, "operand");
  std::vector<int64_t> order = axesIn(0, rankOf(x));
  std::swap(order[wrapAxis("transpose", a, rankOf(x))], order[wrapAxis("transpose", b, rankOf(x))]);
  return permute(x, order);
}

TensorView* transpose(TensorView* x) {
  checkTensor("transpose", x, "operand");
  check(rankOf(x) <= 2, "[transpose] {} has {} dims, expected at most 2; name the two axes", describe(x), rankOf(x));
  return rankOf(x) < 2 ? set(x) : transpose(x, 0, 1);
}

// -- questions ------------------------------------------------------------------------------------------------------------

std::vector<Val*> shape(TensorView* x) {
  checkTensor("shape", x, "operand");
  return mapped(x->shape(), [&](const IntExpr& extent) { return x->fusion().intScalar(extent); });
}

Val* size(TensorView* x, int64_t dim) {
  checkTensor("size", x, "operand");
  return x->fusion().intScalar(x->shape()[wrapAxis("size", dim, rankOf(x))]);
}

Val* at(const std::vector<Val*>& shape, int64_t index) { return shape[wrapAxis("at", index, std::ssize(shape))]; }

}  // namespace meshfuse
