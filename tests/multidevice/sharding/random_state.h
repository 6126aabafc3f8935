// Random shardings, and the elements a rank holds under one, by brute force.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// Flat row-major indices of the elements that the device at position `device` of the mesh holds.
inline std::vector<int64_t> heldElements(const ShardState& state, const std::vector<int64_t>& extents, int64_t device) {
  std::vector<int64_t> sizes;
  for (int a = 0; a < state.mesh.numAxes(); a++) {
    sizes.push_back(state.mesh.axisSize(a).constValue());
  }
  std::vector<int64_t> coordinates(sizes.size());
  for (size_t a = sizes.size(); a-- > 0;) {
    coordinates[a] = device % sizes[a];
    device /= sizes[a];
  }
  std::vector<int64_t> held{0};
  for (size_t k = 0; k < extents.size(); k++) {
    std::vector<int64_t> next;
    for (int64_t prefix : held) {
      for (int64_t i = 0; i < extents[k]; i++) {
        const auto digits = state.dims[k].digits();
        const bool mine = std::all_of(digits.begin(), digits.end(), [&](const Digit& d) {
          return !d.owner.isDevice() ||
                 i / d.stride.constValue() % d.size.constValue() ==
                     coordinates[d.owner.axis] / d.owner.below.constValue() % d.size.constValue();
        });
        if (mine) {
          next.push_back(prefix * extents[k] + i);
        }
      }
    }
    held = std::move(next);
  }
  return held;
}

struct StateChoice {
  bool anyDigit = true;  // owners on any digit, not only block shardings
  bool partial = false;
  bool uneven = false;  // also where sizes do not divide the extent
  bool parts = false;   // also parts of an axis, and several of them
};

// The owner gets a digit of the dim that fits beside those that are owned, if there is one.
inline void ownDigit(std::mt19937& rng, std::vector<Digit>& owned, int dim, int64_t extent, int64_t n,
                     const Owner& owner, StateChoice choice) {
  std::vector<int64_t> strides;
  for (int64_t s = 1; s * n <= extent + (choice.uneven ? n : 0); s++) {
    if (choice.uneven || extent % (s * n) == 0) {
      std::vector<Digit> with = owned;
      with.push_back({0, s, n, owner});
      if (!fillLocal(0, extent, with).isOpaque()) {
        strides.push_back(s);
      }
    }
  }
  if (!strides.empty()) {
    const int64_t stride = choice.anyDigit ? strides[rng() % strides.size()] : strides.back();
    owned.push_back({dim, stride, n, owner});
  }
}

// Every axis of the mesh is replicated, partial, or owns a digit that fits.
inline ShardState randomState(std::mt19937& rng, const DeviceMesh& mesh, const std::vector<int64_t>& extents,
                              StateChoice choice) {
  std::vector<std::vector<Digit>> owned(extents.size());
  ShardState state{mesh, {}, {}};
  for (int axis = 0; axis < mesh.numAxes(); axis++) {
    const int64_t whole = mesh.axisSize(axis).constValue();
    if (choice.parts && rng() % 2 == 0) {
      // digits of the coordinate from the inside, some of which own a digit of a dim
      for (int64_t below = 1; below < whole;) {
        int64_t n = 2;
        while (whole / below % n != 0) {
          n++;
        }
        const size_t pick = rng() % (extents.size() + 1);
        if (pick < extents.size()) {
          ownDigit(rng, owned[pick], static_cast<int>(pick), extents[pick], n, Owner::device(axis, below), choice);
        }
        below *= n;
      }
      continue;
    }
    const int64_t n = whole;
    const size_t pick = rng() % (extents.size() + 1 + (choice.partial ? 1 : 0));
    if (pick > extents.size()) {
      state.partial.push_back(axis);
    }
    if (pick >= extents.size()) {
      continue;
    }
    ownDigit(rng, owned[pick], static_cast<int>(pick), extents[pick], n, Owner::device(axis), choice);
  }
  for (size_t k = 0; k < extents.size(); k++) {
    state.dims.push_back(fillLocal(static_cast<int>(k), extents[k], owned[k]));
  }
  return state;
}

}  // namespace meshfuse
