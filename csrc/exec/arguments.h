// Checks the arguments of a call against the fusion's inputs, and derives global sizes and layouts from them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "schedule/group.h"
#include "tensor/argument.h"

namespace meshfuse {

class Fusion;

// UserError on a wrong number of arguments, a tensor for a scalar or the reverse, a number of another kind, an undefined tensor, a wrong
// element type or number of dims; for an input that a result is written into, also if its elements share memory or it lies in another order
// than the result's allocation domain.
void checkArguments(const Fusion& fusion, std::span<const Argument> inputs);
// UserError if a mesh has an axis without a size, or names a rank that does not exist.
void checkMeshes(const Fusion& fusion, int64_t ranks);
// By input: true for an Int scalar that the shape of some tensor depends on, and for an Int tensor whose elements are sizes.
[[nodiscard]] std::vector<bool> shapeInputs(const Fusion& fusion);
// The elements of an Int tensor.
[[nodiscard]] std::vector<int64_t> elementsOf(const Tensor& sizes);
// By input. Of a tensor: its global sizes, followed by its elements if these are sizes. Of a scalar: its value if shapes depend on it,
// else nothing. Global sizes of a sharded input come from Tensor::withGlobalShape, constants of the fusion, or other inputs. Failing these,
// all shards are assumed to have the size of this rank's shard, and a line in `assumed` says so: the lines are the same on all ranks if the
// shards are even. UserError if the size of an input without a shard on this rank does not follow.
[[nodiscard]] std::vector<std::vector<int64_t>> globalSizes(const Fusion& fusion, std::span<const Argument> inputs,
                                                            int64_t rank, std::string* assumed = nullptr);
// Whether globalSizes() may assume sizes, of some arguments.
[[nodiscard]] bool mayAssumeSizes(const Fusion& fusion);
// The result of `concretize`. If sizes were assumed, its UserError says which: a whole tensor passed for a shard is such an error.
[[nodiscard]] std::shared_ptr<Fusion> sayingSizes(const std::string& assumed,
                                                  const std::function<std::unique_ptr<Fusion>()>& concretize);
// UserError unless every argument has the shape of its input in the local program, with these values of its symbols.
void checkLocalShapes(const Fusion& local, std::span<const Argument> inputs,
                      const std::map<std::string, int64_t>& values);
// The device of the first tensor; the default device if there are no tensors.
[[nodiscard]] DeviceId deviceOf(std::span<const Argument> inputs);
// One argument for each input of the fusion. UserError if an input has no name or no argument, or a name is unknown or given twice.
[[nodiscard]] std::vector<Argument> inOrder(const Fusion& fusion, const NamedArguments& named);
// UserError that names two inputs on different devices.
void checkDevice(const Fusion& fusion, std::span<const Argument> inputs);

// Whether a tensor has memory of a device without an owner, see Tensor::wrap.
[[nodiscard]] inline bool isBorrowed(const Tensor& t) {
  return t.storage() == nullptr && t.device() != DeviceId::cpu();
}
// UserError if a tensor's borrowed memory has been freed: to be called in each call.
void checkBorrowedMemory(const Tensor& t, const std::function<std::string()>& name);
// The text of such an error for an argument; empty if there is none. To be called before the call allocates memory, which may be that of
// the argument.
[[nodiscard]] std::string freedMemoryOf(const Fusion& fusion, std::span<const Argument> inputs);
// Whether there may be such an error.
[[nodiscard]] inline bool areBorrowed(std::span<const Argument> inputs) {
  return std::ranges::any_of(inputs, [](const Argument& a) {
    const Tensor* t = std::get_if<Tensor>(&a);
    return t != nullptr && isBorrowed(*t);
  });
}

// Layouts of tensor inputs of constant sizes, by Val id.
[[nodiscard]] std::map<int64_t, Layout> inputLayouts(const Fusion& local, std::span<const Argument> inputs);
// The largest of 1, 2, 4, 8 and 64 that divides the address: kernels use vectors at 64 and elements below.
[[nodiscard]] inline int64_t alignmentOf(const void* data) {
  const uint64_t address = std::bit_cast<uint64_t>(data) | 64;
  const uint64_t divides = address & (~address + 1);
  return divides > 8 && divides < 64 ? 8 : static_cast<int64_t>(divides);
}

}  // namespace meshfuse
