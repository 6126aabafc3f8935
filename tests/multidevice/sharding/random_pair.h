// Pairs of shardings as users write them and as reshapes leave them, and the least that any plan must move between them.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "multidevice/sharding/random_state.h"
#include "sanitized.h"

namespace meshfuse {

inline constexpr int kShareOfPairs = kSanitized ? 20 : 1;  // one in so many pairs is planned

// Every axis, in random order, is replicated, partial, or owns the next digit: of a block sharding, or any digit that is free.
inline ShardState randomPlacement(std::mt19937& rng, const DeviceMesh& mesh, const std::vector<int64_t>& extents,
                                  StateChoice choice) {
  while (true) {
    ShardState state{mesh, {}, {}};
    std::vector<std::vector<Digit>> owned(extents.size());
    std::vector<int64_t> room = extents;  // block: what is left of each dim below the digits that are taken
    std::vector<int> order(mesh.numAxes());
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; i--) {
      std::swap(order[i - 1], order[rng() % i]);
    }
    bool fits = true;
    for (int axis : order) {
      const int64_t n = mesh.axisSize(axis).constValue();
      const size_t k = rng() % (extents.size() + 1 + (choice.partial ? 1 : 0));
      if (k > extents.size()) {
        state.partial.push_back(axis);
      }
      if (k >= extents.size()) {
        continue;
      }
      std::vector<int64_t> strides;
      if (!choice.anyDigit) {
        fits = fits && room[k] % n == 0;
        room[k] /= n;
        strides.push_back(room[k]);
      }
      for (int64_t s = 1; choice.anyDigit && s * n <= extents[k]; s++) {
        std::vector<Digit> with = owned[k];
        with.push_back({0, s, n, Owner::device(axis)});
        if (extents[k] % (s * n) == 0 && !fillLocal(0, extents[k], with).isOpaque()) {
          strides.push_back(s);
        }
      }
      if (!strides.empty()) {
        owned[k].push_back({static_cast<int>(k), strides[rng() % strides.size()], n, Owner::device(axis)});
      }
    }
    if (!fits) {
      continue;
    }
    std::sort(state.partial.begin(), state.partial.end());
    for (size_t k = 0; k < extents.size(); k++) {
      state.dims.push_back(fillLocal(static_cast<int>(k), extents[k], owned[k]));
    }
    return state;
  }
}

// Ceil blocks: every axis, in random order, is replicated, partial, or owns the next digit of a dim; a dim is padded once.
inline ShardState randomBlocks(std::mt19937& rng, const DeviceMesh& mesh, const std::vector<int64_t>& extents,
                               bool sums) {
  ShardState state{mesh, {}, {}};
  std::vector<std::vector<int>> axes(extents.size());
  std::vector<int> order(mesh.numAxes());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; i--) {
    std::swap(order[i - 1], order[rng() % i]);
  }
  for (int axis : order) {
    const size_t k = rng() % (extents.size() + 1 + (sums ? 1 : 0));
    if (k < extents.size()) {
      axes[k].push_back(axis);
    } else if (k > extents.size()) {
      state.partial.push_back(axis);
    }
  }
  std::sort(state.partial.begin(), state.partial.end());
  for (size_t k = 0; k < extents.size(); k++) {
    int64_t parts = 1;
    for (int axis : axes[k]) {
      parts *= mesh.axisSize(axis).constValue();
    }
    int64_t stride = (extents[k] + parts - 1) / parts;
    std::vector<Digit> owned;
    for (size_t i = axes[k].size(); i-- > 0;) {
      const int64_t n = mesh.axisSize(axes[k][i]).constValue();
      owned.push_back({static_cast<int>(k), stride, n, Owner::device(axes[k][i])});
      stride *= n;
    }
    state.dims.push_back(fillRagged(static_cast<int>(k), extents[k], owned));
  }
  return state;
}

// Indices of one dim that the device at position `device` holds.
inline std::vector<int64_t> heldIndices(const ShardState& state, size_t k, int64_t extent, int64_t device) {
  return heldElements({state.mesh, {state.dims[k]}, {}}, {extent}, device);
}

// FlatIndices that the busiest rank receives at least: what it needs and does not hold. With sums to combine, a mean over the ranks:
// an element with n contributions that K ranks want is received n - 1 times to be combined and K - 1 times to be spread.
inline double leastReceived(const ShardState& from, const ShardState& to, const std::vector<int64_t>& extents) {
  const auto sizeOf = [&](const std::vector<int>& axes) {
    double n = 1;
    for (int a : axes) {
      n *= static_cast<double>(from.mesh.axisSize(a).constValue());
    }
    return n;
  };
  std::vector<int> combined;
  std::vector<int> fresh;
  std::set_difference(from.partial.begin(), from.partial.end(), to.partial.begin(), to.partial.end(),
                      std::back_inserter(combined));
  std::set_difference(to.partial.begin(), to.partial.end(), from.partial.begin(), from.partial.end(),
                      std::back_inserter(fresh));
  const double ranks = static_cast<double>(from.mesh.numDevices());
  double total = 1;
  for (int64_t e : extents) {
    total *= static_cast<double>(e);
  }
  double most = 0;
  double wanted = 0;
  double copies = 0;
  for (int64_t device = 0; device < from.mesh.numDevices(); device++) {
    double needed = 1;  // what a rank holds is a product over the dims
    double both = 1;
    for (size_t k = 0; k < extents.size(); k++) {
      const std::vector<int64_t> held = heldIndices(from, k, extents[k], device);
      const std::vector<int64_t> want = heldIndices(to, k, extents[k], device);
      std::vector<int64_t> have;
      std::set_intersection(want.begin(), want.end(), held.begin(), held.end(), std::back_inserter(have));
      needed *= static_cast<double>(want.size());
      both *= static_cast<double>(have.size());
    }
    most = std::max(most, needed - both);
    wanted = std::max(wanted, needed);
    copies += needed;
  }
  if (combined.empty()) {
    return fresh.empty() ? most : 0;
  }
  double kept = 1;
  for (int a : from.partial) {
    kept *= std::count(to.partial.begin(), to.partial.end(), a) ? sizeOf({a}) : 1;
  }
  const double mean = (total * kept * (sizeOf(combined) - 2) + copies / sizeOf(fresh)) / ranks;
  return std::max(mean, fresh.empty() ? wanted : 0);
}

}  // namespace meshfuse
