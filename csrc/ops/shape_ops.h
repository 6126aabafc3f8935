// Copies, casts and changes of shape. None computes on elements; all keep the element type unless their comment says otherwise. Axes count
// from the end when negative; a UserError names the op, the tensor and the expected value.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/operand.h"

namespace meshfuse {

// -- copies and casts -----------------------------------------------------------------------------------------------------
// x as a new tensor; give it another sharding to move data.
TensorView* set(TensorView* x);
Val* set(Val* x);
// The same as set, with a kernel boundary.
TensorView* segment_set(TensorView* x);
// x in another type. To a floating type: rounded once, to nearest even. To Bool: x != 0. From an integer to a narrower integer type: its
// low bits. From a floating type to a signed integer type: truncated; NaN and numbers out of range give the minimum of the type (PyTorch on
// x86: the same for Int and Int32; it wraps the narrower types). From a floating type to Byte or UInt16: the low bits of the number
// truncated to Int (-1 becomes 255, as in PyTorch); NaN and numbers out of the range of Int give 0. A copy if x has that type.
TensorView* castOp(DataType dtype, TensorView* x);
Val* castOp(DataType dtype, Val* x);
// x itself if it has that type.
TensorView* maybeCastOp(DataType dtype, TensorView* x);
Val* maybeCastOp(DataType dtype, Val* x);
// The bits of x as another type. UserError unless both types have one size.
TensorView* bitCastOp(DataType dtype, TensorView* x);
TensorView* view(TensorView* x, DataType dtype);

// -- reshape --------------------------------------------------------------------------------------------------------------
// The same elements in row-major order in another shape. `sizes` may hold one -1: that size follows from the others. UserError if
// the products differ: here if that is known, else at a call with such sizes.
TensorView* reshape(TensorView* x, const IntList& sizes);
// nvFuser's form: `original` are x's sizes.
TensorView* reshape(TensorView* x, const std::vector<int64_t>& original, const std::vector<int64_t>& sizes);
// Merges the dims from..to into one.
TensorView* flatten(TensorView* x, int64_t from = 0, int64_t to = -1);

// -- dims of extent 1 -----------------------------------------------------------------------------------------------------
// Drops dims of extent 1: the listed dims, the flagged dims, or all such dims. UserError if an extent is not known to be 1.
TensorView* squeeze(TensorView* x, int64_t axis);
TensorView* squeeze(TensorView* x, const std::vector<int64_t>& axes);
TensorView* squeeze(TensorView* x, const std::vector<bool>& flags);
TensorView* squeeze(TensorView* x);
// A new broadcast dim, which becomes dim `axis` of the result: -1 appends it.
TensorView* unsqueeze(TensorView* x, int64_t axis);
// isNew has one flag for each dim of the result: true makes a broadcast dim there. UserError unless x has as many dims as there are
// false flags.
TensorView* broadcast(TensorView* x, const std::vector<bool>& isNew);
// Dims of one element stretched to `sizes`; -1 keeps a dim; missing leading dims are new. UserError if another dim would change:
// here if that is known, else at a call with such sizes.
TensorView* expand(TensorView* x, const IntList& sizes);
TensorView* expand_as(TensorView* x, TensorView* other);
// x tiled: dim k `times[k]` times; missing leading dims of x are new. UserError if `times` has fewer entries than x has dims, or a negative
// entry.
TensorView* repeat(TensorView* x, const std::vector<int64_t>& times);

// -- order ----------------------------------------------------------------------------------------------------------------
// Dim k of the result is dim order[k] of x.
TensorView* permute(TensorView* x, const std::vector<int64_t>& order);
// Two dims exchanged.
TensorView* transpose(TensorView* x, int64_t a, int64_t b);
// Exchanges the two dims of a 2-D tensor; a tensor with fewer dims is unchanged.
TensorView* transpose(TensorView* x);

// The elements along each of these dims in reverse order.
TensorView* flip(TensorView* x, const std::vector<int64_t>& dims);
// Moves the elements by shifts[k] positions along dims[k]. An element that leaves the end of a dim comes back at its beginning. Without dims
// there is one shift, which moves the elements in row-major order.
TensorView* roll(TensorView* x, const std::vector<int64_t>& shifts, const std::vector<int64_t>& dims = {});

// -- triangles ------------------------------------------------------------------------------------------------------------
// x on and above (triu), on and below (tril) a diagonal of the matrices in its last two dims, else 0. diagonal: an Int scalar, the column
// minus the row of its elements: 0 is the main diagonal, 1 the one above.
TensorView* triu(TensorView* x, Operand diagonal = 0);
TensorView* tril(TensorView* x, Operand diagonal = 0);

// -- windows --------------------------------------------------------------------------------------------------------------
struct Slice {
  Val* start = nullptr;  // null: 0
  Val* stop = nullptr;   // null: the extent
  Val* step = nullptr;   // null: 1; otherwise a constant
};
// Elements start, start + step, .. below stop, one range for each dim. Positions that are known here to be negative count from the end, as
// in Python; a position that is negative only in a call counts as 0. Positions out of range are clamped. Steps are at least 1.
TensorView* slice(TensorView* x, const std::vector<Slice>& ranges);
TensorView* slice(TensorView* x, const std::vector<int64_t>& starts, const std::vector<int64_t>& stops);
TensorView* slice(TensorView* x, const std::vector<int64_t>& starts, const std::vector<int64_t>& stops,
                  const std::vector<int64_t>& steps);
// x with `widths` elements of `value` (0 if null) around it: left and right of the last dim, then of the one before, ...
// Negative widths cut. UserError on an odd or too large number of widths, or if the two widths of a dim together leave fewer than 0
// elements.
TensorView* pad(TensorView* x, const IntList& widths, Operand value = 0);
// Tensors one after the other along `dim`, in their common type. UserError if other extents differ.
TensorView* cat(const std::vector<TensorView*>& tensors, int64_t dim);
// x cut along `dim` into parts of ceil(extent / chunks) elements, the last one smaller: `chunks` parts, or fewer if these hold all
// elements. UserError if the extent is no constant, if chunks is below 1, or if there would be more than 65,536 parts.
std::vector<TensorView*> chunk(TensorView* x, int64_t chunks, int64_t dim);

// -- queries --------------------------------------------------------------------------------------------------------------
// Extents as scalars.
std::vector<Val*> shape(TensorView* x);
Val* size(TensorView* x, int64_t dim);
// shape[index], which counts from the end when negative.
Val* at(const std::vector<Val*>& shape, int64_t index);

}  // namespace meshfuse
