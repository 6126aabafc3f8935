// Rules of axes and extents that several families of builders share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/fusion.h"
#include "ir/tensor_view.h"

namespace meshfuse {

// `axis` counted from the front. UserError `[op] axis ..` if it is not one of `rank` dims.
[[nodiscard]] int64_t wrapAxis(std::string_view op, int64_t axis, int64_t rank);
// The same for several axes, sorted. UserError if an axis is repeated.
[[nodiscard]] std::vector<int64_t> wrapAxes(std::string_view op, std::span<const int64_t> axes, int64_t rank);

// The axes first, .., last - 1.
[[nodiscard]] std::vector<int64_t> axesIn(int64_t first, int64_t last);
// The axes of a reduction as sorted positions: {} is all of them, and a tensor without dims has none.
[[nodiscard]] std::vector<int64_t> reducedAxes(std::string_view op, const TensorView* x, std::span<const int64_t> axes);

// Number of dims of the stored shape.
[[nodiscard]] int64_t rankOf(const TensorView* tv);
// A dim of this extent: a broadcast one if it is the constant 1.
[[nodiscard]] Dim dimOf(const IntExpr& extent);
// The same for a dim that stretches if its extent is 1 at the call: symbolic unless the extent is a constant.
[[nodiscard]] Dim dynamicDimOf(const IntExpr& extent);
[[nodiscard]] bool mayStretch(const Dim& dim);
// The extent to which two dims stretch; the larger one if both may be 1 at the call.
[[nodiscard]] Dim stretched(const Dim& a, const Dim& b);
// One dim for two dims that must be equal and do not stretch: the dim about whose extent more is known.
[[nodiscard]] Dim sameDim(const Dim& a, const Dim& b);
// `T3 Float[i0, 16]`: how errors name a tensor; of a shape `[i0, 16]`.
[[nodiscard]] std::string describe(const TensorView* tv);
[[nodiscard]] std::string describe(std::span<const IntExpr> shape);

// True if the extents are proven to differ: both are constants, or polynomials that differ by a constant. The call checks all other
// extents.
[[nodiscard]] bool provenDifferent(const IntExpr& a, const IntExpr& b);

// Whether the dims of two tensors, from the last, may stretch to common ones.
[[nodiscard]] bool mayStretchTogether(const TensorView* a, const TensorView* b);
// Whether shapes may be equal: not so if they have different numbers of dims, or extents that are proven to differ.
[[nodiscard]] bool mayBeEqual(std::span<const IntExpr> a, std::span<const IntExpr> b);
[[nodiscard]] std::vector<IntExpr> extentsAt(const TensorView* x, std::span<const int64_t> axes);

// x with new broadcast dims at these axes of the result; x itself if there are none.
[[nodiscard]] TensorView* withDimsAt(TensorView* x, const std::vector<int64_t>& axes);
// x with leading broadcast dims, up to `rank` dims; x itself if it has as many.
[[nodiscard]] TensorView* withLeadingDims(TensorView* x, int64_t rank);
// The common shape of stretched tensors with the same number of dims. UserError `[op]` naming the dim and both extents if they do not.
[[nodiscard]] std::vector<Dim> stretchedDims(std::string_view op, const std::vector<TensorView*>& tensors);

// x with these extents; both have the same number of dims. If extents are not known to be equal, a copy of x that checks them at the call.
[[nodiscard]] TensorView* withExtents(TensorView* x, const std::vector<IntExpr>& extents);

// x in the type that statistics are computed in: Double stays, all others are cast to Float.
[[nodiscard]] TensorView* floatingOperand(std::string_view op, TensorView* x, std::string_view operand = "x");
// UserError `[op] dy is T0 Float[3], expected ..` unless `tv` has the shape of `to`, or dims that stretch to it.
void checkStretchesTo(std::string_view op, std::string_view operand, const TensorView* tv, std::string_view target,
                      const TensorView* to);
// floatingOperand of the gradient of a result that has the shape of `to`, with that check.
[[nodiscard]] TensorView* gradientOperand(std::string_view op, TensorView* dy, std::string_view target,
                                          const TensorView* to);
// Returns `tv`; run-time errors call the op that made it `builder`, a string literal.
TensorView* calledAs(std::string_view builder, TensorView* tv);

// The number of elements of the dims together.
[[nodiscard]] IntExpr countOver(const TensorView* x, std::span<const int64_t> axes);

// UserError unless the operand is non-null and a tensor.
void checkTensor(std::string_view op, const Val* val, std::string_view operand);
// The fusion of the operands; UserError if they are of different fusions.
Fusion& commonFusion(std::string_view op, const std::vector<Val*>& vals);

}  // namespace meshfuse
