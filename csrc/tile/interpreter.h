// Runs a tile program on host memory, part by part, as a reference: slow, with every access and use checked.
//
// There are no threads: each value is computed for all positions of its digits before the next one. Positions at or beyond a
// bound, and loads whose conditions fail without a fill, hold poison. Poison spreads through arithmetic; storing it, reducing it, or
// indexing with it is an InternalError. So are accesses outside of a tensor's extents, two writers of an element, reads of
// elements that were never written, and uses of values or coordinates out of scope. Workspaces marked `zeroed` must be zero.
//
// Sums and products of floating type are accumulated in a wider type; a result differs from an emitter's by rounding only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tile/memory_model.h"
#include "tile/tile.h"

namespace meshfuse::tile {

struct InterpretOptions {
  uint64_t shuffle = 0;  // 0: parts in ascending order; else the seed of a random order
};

struct Interpretation {
  std::vector<Traffic> tensors;  // as Program::tensors; scratch too
  int64_t parts = 0;
};

// `slots` as a kernel takes them: see tile.h.
Interpretation interpret(const Program& program, std::span<const uint64_t> slots, InterpretOptions options = {});

// The slots of a call: pointers of all tensors but scratch, sizes, scalars as their types' bits.
[[nodiscard]] std::vector<uint64_t> packSlots(const Program& program, std::span<void* const> pointers,
                                              std::span<const int64_t> sizes, std::span<const double> scalars);

}  // namespace meshfuse::tile
