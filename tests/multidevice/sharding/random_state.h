// Shardings by the letters of axes and at random, and the elements a rank holds under one, by brute force.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// Each dim in blocks over axes of one letter, the first outermost: {"xy", ""}; partial sums over the axes of `partial`.
inline ShardState blockState(const DeviceMesh& mesh, const std::vector<int64_t>& extents,
                             const std::vector<std::string>& axes, const std::string& partial = "") {
  const auto axisOf = [&](char letter) { return mesh.axisOf(mesh.axis(std::string(1, letter))); };
  ShardState state{mesh, {}, {}};
  for (size_t k = 0; k < extents.size(); k++) {
    std::vector<Digit> owned;
    int64_t stride = extents[k];
    for (const char letter : axes[k]) {
      const int axis = axisOf(letter);
      stride /= mesh.axisSize(axis).constValue();
      owned.push_back({static_cast<int>(k), stride, mesh.axisSize(axis), Owner::device(axis)});
    }
    state.dims.push_back(fillLocal(static_cast<int>(k), extents[k], owned));
  }
  for (const char letter : partial) {
    state.partial.push_back(axisOf(letter));
  }
  return state;
}

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
        int64_t at = i;  // in the padded dim, if it stands in parts of given sizes
        if (state.dims[k].hasParts()) {
          int64_t begin = 0;
          int64_t longest = 1;
          for (const IntExpr& size : digits.front().parts) {
            longest = std::max(longest, size.constValue());
          }
          for (size_t part = 0; part < digits.front().parts.size(); part++) {
            const int64_t size = digits.front().parts[part].constValue();
            at = i >= begin && i < begin + size ? static_cast<int64_t>(part) * longest + i - begin : at;
            begin += size;
          }
        }
        const bool mine = std::all_of(digits.begin(), digits.end(), [&](const Digit& d) {
          return !d.owner.isDevice() ||
                 at / d.stride.constValue() % d.size.constValue() ==
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
  bool given = false;   // also parts of a dim of given sizes
};

// Parts of random sizes of a dim that nobody owns, over one axis or two.
inline void ownGiven(std::mt19937& rng, std::vector<Digit>& owned, int dim, int64_t extent, const DeviceMesh& mesh,
                     const std::vector<int>& axes) {
  int64_t count = 1;
  for (int axis : axes) {
    count *= mesh.axisSize(axis).constValue();
  }
  std::vector<IntExpr> sizes(count, 0);
  for (int64_t i = 0; i < extent; i++) {
    sizes[rng() % sizes.size()] += 1;
  }
  int64_t stride = 1;
  for (const IntExpr& size : sizes) {
    stride = std::max(stride, size.constValue());
  }
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const int64_t n = mesh.axisSize(*axis).constValue();
    owned.push_back({dim, stride, n, Owner::device(*axis), Digit::kEven, sizes});
    stride *= n;
  }
}

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
  std::vector<int> free;
  for (int axis = 0; axis < mesh.numAxes(); axis++) {
    free.push_back(axis);
  }
  std::vector<bool> given(extents.size(), false);
  if (choice.given && rng() % 4 != 0) {
    const size_t k = rng() % extents.size();
    std::shuffle(free.begin(), free.end(), rng);
    const size_t count = 1 + rng() % std::min<size_t>(2, free.size());
    ownGiven(rng, owned[k], static_cast<int>(k), extents[k], mesh,
             {free.end() - static_cast<ptrdiff_t>(count), free.end()});
    free.resize(free.size() - count);
    given[k] = true;
  }
  std::sort(free.begin(), free.end());
  for (int axis : free) {
    const int64_t whole = mesh.axisSize(axis).constValue();
    if (choice.parts && rng() % 2 == 0) {
      // digits of the coordinate from the inside; some own a digit of a dim
      for (int64_t below = 1; below < whole;) {
        int64_t n = 2;
        while (whole / below % n != 0) {
          n++;
        }
        const size_t pick = rng() % (extents.size() + 1);
        if (pick < extents.size() && !given[pick]) {
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
    if (pick >= extents.size() || given[pick]) {
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
