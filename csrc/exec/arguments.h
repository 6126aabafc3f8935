// Arguments of a call: checked against the fusion's inputs, and turned into the facts that plans depend on.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "schedule/group.h"
#include "tensor/argument.h"

namespace meshfuse {

class Fusion;

// UserError on a wrong number of arguments, a tensor for a scalar or the reverse, a wrong element type, rank or device.
void checkArguments(const Fusion& fusion, std::span<const Argument> inputs);
// UserError if a mesh names ranks that there are not.
void checkMeshes(const Fusion& fusion, int ranks);
// By input: whether it is an Int scalar that the shape of some tensor depends on, or an Int tensor whose elements are sizes.
[[nodiscard]] std::vector<bool> shapeInputs(const Fusion& fusion);
// The elements of an Int tensor.
[[nodiscard]] std::vector<int64_t> elementsOf(const Tensor& sizes);
// Sizes of every tensor input in the global view: a sharded dim is as long as its parts together. Of inputs that are on other ranks
// only: as the argument, constants and other inputs say; UserError if they do not.
// Of scalars that shapes depend on their value, of others nothing; of tensors whose elements are sizes these too, behind their own.
// What nothing else says is taken from even parts; `assumed` then has a line that names it, the same on all ranks if their parts are
// even.
[[nodiscard]] std::vector<std::vector<int64_t>> globalSizes(const Fusion& fusion, std::span<const Argument> inputs,
                                                            int64_t rank, std::string* assumed = nullptr);
// UserError unless every argument has the local shape the plan gives its input.
void checkLocalShapes(const Fusion& local, std::span<const Argument> inputs);
// Layouts of tensor inputs, by Val id.
[[nodiscard]] std::map<int, Layout> inputLayouts(const Fusion& local, std::span<const Argument> inputs);
// 64 where that divides an address, else the power of two up to 8 that does: vectors or elements.
[[nodiscard]] inline int alignmentOf(const void* data) {
  const uint64_t address = std::bit_cast<uint64_t>(data) | 64;
  const uint64_t divides = address & (~address + 1);
  return divides > 8 && divides < 64 ? 8 : static_cast<int>(divides);
}

}  // namespace meshfuse
