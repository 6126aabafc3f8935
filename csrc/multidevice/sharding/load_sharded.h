// Reads the part of a rank from a file of weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/argument.h"
#include "tensor/tensor.h"

namespace meshfuse {

class Fusion;
class SafetensorsFile;
class TensorView;

// The part of the tensor `name` of the file that `rank` holds under the sharding of `tv`, as by shardTensor: a copy, on the CPU. Only the
// pages of the part are read, except of a tensor of Bool, and of one that the file does not align to its type. UserError as from
// SafetensorsFile::get, and if shape or type differ from those of `tv`; the symbols of `tv` may have any size.
[[nodiscard]] Tensor loadSharded(const SafetensorsFile& file, std::string_view name, const TensorView* tv,
                                 int64_t rank);

// The same for all inputs of the fusion that are tensors and have a name, with their names: arguments of FusionExecutorCache::run, to which the
// caller adds the others.
//
//   NamedArguments arguments = loadSharded(file, cache.fusion(), world.rank(), {"tokens"});
//   arguments.emplace_back("tokens", tokens);
//
// `others`: names of inputs that are not in the file. UserError, too, if the fusion has no input of such a name.
[[nodiscard]] NamedArguments loadSharded(const SafetensorsFile& file, const Fusion& fusion, int64_t rank,
                                         const std::vector<std::string>& others = {});

}  // namespace meshfuse
