// Reads and writes elements at positions given by index tensors. Indices are integers in [0, extent). An index out of range can only be found
// at run time: the run fails with a UserError that names the index, and no kernel reads or writes outside of its tensors. The builders
// throw a UserError `[op]` on an index that is not of integers, numbers of dims or extents that do not fit, and values of another type than
// the tensor that they are written into or added to.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/fusion.h"
#include "ops/operand.h"

namespace meshfuse {

// out[.., j, ..] = x[.., index[.., j, ..], ..] along dim. x and index have as many dims and stretch to each other outside dim.
TensorView* takeAlongAxis(TensorView* x, TensorView* index, int64_t dim);
// torch.gather: as takeAlongAxis, and index may be smaller than x in the other dims. The result has the shape of index.
TensorView* gather(TensorView* x, int64_t dim, TensorView* index);
// out[.., j, ..] = x[.., index[j], ..] along dim; index is 1-D.
TensorView* index_select(TensorView* x, int64_t dim, TensorView* index);
inline TensorView* indexSelect(TensorView* x, int64_t dim, TensorView* index) { return index_select(x, dim, index); }
// out[.., ..] = x[.., index, ..] along dim, which is dropped. index: an integer, an Int scalar or an integer tensor without dims; a
// negative one counts from the end.
TensorView* select(TensorView* x, int64_t dim, Operand index);
// out[i.., :] = weight[index[i..], :], with weight [V, D].
TensorView* embedding_fwd(TensorView* index, TensorView* weight);
// The gradient of the weight [num_weights, D] of embedding_fwd: row v is the sum of dy[i.., :] where index[i..] is v, added as by
// indexPutAccumulate. padding_idx: a row that gets no gradient.
TensorView* embedding_backward(TensorView* dy, TensorView* index, Operand num_weights,
                               std::optional<int64_t> padding_idx = std::nullopt);

// x with out[.., index[.., j, ..], ..] = src[.., j, ..] along dim: the write that mirrors takeAlongAxis. index and src have one shape, that
// of x outside dim. If several elements of src go to one element, the last one along dim is kept, on every device and for every number of
// ranks.
TensorView* scatter(TensorView* x, int64_t dim, TensorView* index, TensorView* src);
// x [V, ..] with out[index[i..]] += value[i..], of index [..] and value [.., ..]. Equal indices add up: x's row first, then the values in
// row-major order of i; 16-bit types add in Float, and each element is rounded once. Not of Bool.
TensorView* indexPutAccumulate(TensorView* x, TensorView* index, TensorView* value);

}  // namespace meshfuse
