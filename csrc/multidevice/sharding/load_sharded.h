// Reads the part of a rank from a file of weights.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/tensor.h"

namespace meshfuse {

class SafetensorsFile;
class TensorView;

// The part of the tensor `name` of the file that `rank` holds under the sharding of `tv`, as by shardTensor: a copy, on the CPU. Only the
// pages of the part are read, except of a tensor of Bool, and of one that the file does not align to its type. UserError as from
// SafetensorsFile::get, and if shape or type differ from those of `tv`; the symbols of `tv` may have any size.
[[nodiscard]] Tensor loadSharded(const SafetensorsFile& file, std::string_view name, const TensorView* tv,
                                 int64_t rank);

}  // namespace meshfuse
