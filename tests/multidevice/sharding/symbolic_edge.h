// Random edges over sizes that are symbols, and what is true of them at given sizes: the same ops and the same loops over constants.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "multidevice/mesh/device_mesh.h"
#include "multidevice/sharding/random_edge.h"

namespace meshfuse {

using Sizes = std::map<std::string, int64_t, std::less<>>;  // of symbols

// A chain over a head of symbols; dims of one element stay such. False where it needs more to be known of the sizes than it is: a squeeze
// of a dim that may be larger.
[[nodiscard]] bool makeSymbolicChain(RandomChain& chain, std::mt19937& rng, int ops);

// Axes on blocks, on cycles, on blocks of given sizes, and now and then on a whole dim, among other splits and merges.
void symbolicLoops(std::mt19937& rng, TensorView* tv, const DeviceMesh& mesh, Reduced reduced = Reduced::Bound);

// Sizes of the symbols of the head and of the mesh with which the edge may run: what facts say of them is kept.
[[nodiscard]] Sizes pickSizes(std::mt19937& rng, const RandomChain& chain, const DeviceMesh& mesh);

// What is true at these sizes; nullopt where no program of them runs, or a large one.
[[nodiscard]] std::optional<Truth> truthAt(const RandomChain& chain, const Sizes& sizes);

}  // namespace meshfuse
