// slice, pad, cat and chunk: elements at other positions, in a window of other extents.
#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/window.h"
#include "ops/add_view.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

// A position as Python reads it: from the end when negative.
IntExpr countedPosition(const IntExpr& position, const IntExpr& extent) {
  bool fromEnd = position.upper() && *position.upper() < 0;
  bool end = position.isConst(INT64_MAX);
  return end ? extent : fromEnd ? extent + position : position;
}

// Clamped to [0, extent].
IntExpr clamped(const IntExpr& position, const IntExpr& extent) {
  return position == extent ? extent : max(IntExpr(0), min(position, extent));
}

// Windows of windows by run-time positions say their extents in terms of all before them: beyond this many characters no program
// means it, and each further one would be several times as long.
constexpr size_t kLongestExtent = 20000;

constexpr int64_t kMostChunks = 1 << 16;

struct Range {
  IntExpr start, stop, step;
};

TensorView* sliceRanges(TensorView* x, const std::vector<Range>& ranges) {
  std::vector<Dim> old = dimsOf(x);
  check(ranges.size() == old.size(), "[slice] got {} ranges for {}; expected one for each dim", ranges.size(),
        describe(x));
  std::vector<IntExpr> starts, stops, steps;
  bool whole = true;
  for (int64_t k : indices(ranges)) {
    const IntExpr& step = ranges[k].step;
    check(step.isConst() && step.constValue() >= 1,
          "[slice] dim {} of {} has step {}, expected a constant of at least 1", k, describe(x), step.toString());
    const IntExpr& extent = old[k].extent;
    const IntExpr from = countedPosition(ranges[k].start, extent);
    const IntExpr to = countedPosition(ranges[k].stop, extent);
    // Clamping keeps an order: only a range that may be reversed needs the larger of its ends.
    const bool ordered = to == extent || from.isConst(0) || provenLessEqual(from, to);
    const IntExpr start = clamped(from, extent);
    // x[1:-1] has max(0, extent - 2) elements whatever the extent, so windows of such windows have short extents.
    const bool isInner = from.isConst() && from.constValue() >= 0 && ranges[k].stop.upper().value_or(0) < 0;
    const IntExpr stop = ordered   ? clamped(to, extent)
                         : isInner ? start + max(0, to - from)
                                   : max(start, clamped(to, extent));
    check(
        stop.toString().size() <= kLongestExtent,
        "[slice] dim {} of T{} would end at an expression of over {} characters; bound it with constants, or give the "
        "sizes in between as inputs",
        k, x->id(), kLongestExtent);
    whole = whole && start.isConst(0) && stop == old[k].extent && step.isConst(1);
    starts.push_back(start);
    stops.push_back(stop);
    steps.push_back(step);
  }
  return whole ? set(x) : addSlice(x, starts, stops, steps);
}

TensorView* padWidths(TensorView* x, const std::vector<IntExpr>& widths, Operand value) {
  checkTensor("pad", x, "operand 0");
  std::vector<Dim> old = dimsOf(x);
  check(widths.size() % 2 == 0 && widths.size() <= 2 * old.size(),
        "[pad] got {} widths for {}; expected two for each dim, the last dim first, for at most {} dims", widths.size(),
        describe(x), old.size());
  check(!value.isTensor(), "[pad] the value is a tensor, expected a scalar");
  ExprAttributes attributes;
  attributes.starts.assign(old.size(), IntExpr(0));
  attributes.stops.assign(old.size(), IntExpr(0));
  bool changes = false;
  for (int64_t k = 0; k < std::ssize(widths) / 2; k++) {
    size_t dim = old.size() - 1 - k;
    attributes.starts[dim] = widths[2 * k];
    attributes.stops[dim] = widths[2 * k + 1];
    changes = changes || !widths[2 * k].isConst(0) || !widths[2 * k + 1].isConst(0);
    IntExpr extent = old[dim].extent + widths[2 * k] + widths[2 * k + 1];
    check(!extent.isConst() || extent.constValue() >= 0,
          "[pad] widths {} and {} cut dim {} of {} to {} elements; cut at most {}", widths[2 * k].toString(),
          widths[2 * k + 1].toString(), dim, describe(x), extent.toString(), old[dim].extent.toString());
  }
  if (!changes) {
    return set(x);
  }
  TensorView* out =
      x->fusion().tensorFromRoot(x->dtype(), old, [&](Fusion& fusion, const std::vector<IterDomain*>& root) {
        return connectPad(fusion, root, attributes.starts, attributes.stops);
      });
  Val* fill = value.in(x->fusion());
  x->fusion().addExpr(ExprKind::Pad, {x, scalarAs(x->fusion(), fill, x->dtype())}, {out}, attributes);
  return out;
}

}  // namespace

TensorView* slice(TensorView* x, const std::vector<Slice>& ranges) {
  checkTensor("slice", x, "operand");
  const auto valueOf = [](const Val* val, const IntExpr& missing) {
    if (val == nullptr) {
      return missing;
    }
    check(!val->isTensor() && val->dtype() == DataType::Int, "[slice] position {} is {}, expected an Int scalar",
          val->toString(), name(val->dtype()));
    return val->intExpr();
  };
  std::vector<Range> read;
  std::vector<IntExpr> shape = x->shape();
  for (int64_t k : indices(ranges)) {
    const IntExpr whole = k < std::ssize(shape) ? shape[k] : IntExpr(0);
    read.push_back({valueOf(ranges[k].start, 0), valueOf(ranges[k].stop, whole), valueOf(ranges[k].step, 1)});
  }
  return sliceRanges(x, read);
}

TensorView* slice(TensorView* x, const std::vector<int64_t>& starts, const std::vector<int64_t>& stops,
                  const std::vector<int64_t>& steps) {
  checkTensor("slice", x, "operand");
  check(starts.size() == stops.size() && starts.size() == steps.size(),
        "[slice] got {} starts, {} stops and {} steps; expected as many of each", starts.size(), stops.size(),
        steps.size());
  return sliceRanges(x, mapped(indices(starts), [&](int64_t k) { return Range{starts[k], stops[k], steps[k]}; }));
}

TensorView* slice(TensorView* x, const std::vector<int64_t>& starts, const std::vector<int64_t>& stops) {
  return slice(x, starts, stops, std::vector<int64_t>(starts.size(), 1));
}

TensorView* pad(TensorView* x, const IntList& widths, Operand value) {
  return padWidths(x, widths.items(), value.isMissing() ? Operand(0) : value);
}

TensorView* cat(const std::vector<TensorView*>& tensors, int64_t dim) {
  check(!tensors.empty(), "[cat] got no tensors, expected at least one");
  for (const TensorView* tv : tensors) {
    checkTensor("cat", tv, "a tensor");
    check(rankOf(tv) == rankOf(tensors[0]), "[cat] {} and {} have different numbers of dims; expected equal ones",
          describe(tensors[0]), describe(tv));
  }
  std::vector<Val*> vals(tensors.begin(), tensors.end());
  Fusion& fusion = commonFusion("cat", vals);
  check(rankOf(tensors[0]) > 0, "[cat] {} has no dims; give it one with unsqueeze", describe(tensors[0]));
  int64_t axis = wrapAxis("cat", dim, rankOf(tensors[0]));
  DataType dtype = promotedType(std::vector<Operand>(vals.begin(), vals.end()));
  IntExpr total = 0;
  std::vector<Dim> dims = dimsOf(tensors[0]);
  for (int64_t t : indices(tensors)) {
    vals[t] = maybeCastOp(dtype, tensors[t]);
    std::vector<Dim> own = dimsOf(tensors[t]);
    total += own[axis].extent;
    for (int64_t k : indices(dims)) {
      check(k == axis || !provenDifferent(own[k].extent, dims[k].extent),
            "[cat] extents differ in dim {}: {} has {}, {} has {}; expected equal extents in all dims but {}", k,
            describe(tensors[0]), dims[k].extent.toString(), describe(tensors[t]), own[k].extent.toString(), axis);
      if (k != axis) {
        dims[k] = sameDim(dims[k], own[k]);
      }
    }
  }
  if (tensors.size() == 1) {
    return set(tensors[0]);
  }
  dims[axis] = dimOf(total);
  return fusion.addOp(ExprKind::Cat, vals, dtype, dims, {.dim = axis});
}

std::vector<TensorView*> chunk(TensorView* x, int64_t chunks, int64_t dim) {
  checkTensor("chunk", x, "operand");
  check(chunks >= 1, "[chunk] got {} chunks, expected at least 1", chunks);
  int64_t axis = wrapAxis("chunk", dim, rankOf(x));
  std::vector<IntExpr> shape = x->shape();
  check(shape[axis].isConst(), "[chunk] dim {} of {} has extent {}, expected a constant; cut it with slice", axis,
        describe(x), shape[axis].toString());
  int64_t extent = shape[axis].constValue();
  int64_t length = std::max<int64_t>(extent / chunks + (extent % chunks > 0 ? 1 : 0), 1);
  check(extent / length <= kMostChunks, "[chunk] dim {} of {} in chunks of {} gives {} tensors, expected at most {}",
        axis, describe(x), length, extent / length, kMostChunks);
  std::vector<TensorView*> parts;
  for (int64_t start = 0; start <= std::max<int64_t>(extent, 1) - 1; start += length) {
    auto ranges = mapped(shape, [](const IntExpr& whole) { return Range{0, whole, 1}; });
    ranges[axis] = {start, start + std::min(length, extent - start), 1};
    parts.push_back(sliceRanges(x, ranges));
  }
  return parts;
}

}  // namespace meshfuse
