#include "multidevice/mesh/plan_state.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"

namespace meshfuse {

std::span<const int64_t> PlanState::partsOf(size_t dim) const {
  return dim < parts.size() ? std::span<const int64_t>(parts[dim]) : std::span<const int64_t>();
}

void PlanState::setParts(size_t dim, std::span<const int64_t> sizes) {
  if (parts.empty() && !sizes.empty()) {
    parts.resize(dims.size());
  }
  if (!parts.empty()) {
    parts[dim].assign(sizes.begin(), sizes.end());
  }
  if (std::ranges::all_of(parts, [](const std::vector<int64_t>& p) { return p.empty(); })) {
    parts.clear();
  }
}

int64_t longestOf(std::span<const int64_t> parts) {
  return parts.empty() ? 1 : std::max<int64_t>(1, *std::ranges::max_element(parts));
}

int64_t paddedExtent(std::span<const int64_t> parts) { return std::ssize(parts) * longestOf(parts); }

bool isUneven(const PlanState& state, const std::vector<int64_t>& extents) {
  return std::ranges::any_of(indices(extents), [&](int64_t k) {
    const PlanDim& dim = state.dims[k];
    return !dim.empty() && (!state.partsOf(k).empty() || dim.front().stride * dim.front().size != extents[k]);
  });
}

PlanDim normalForm(const PlanDim& dim) {
  PlanDim out;
  for (const PlanDigit& d : dim) {
    if (d.size == 1) {
      continue;
    }
    if (d.atom == kLocal && !out.empty() && out.back().atom == kLocal && out.back().stride == d.stride * d.size) {
      out.back() = {d.stride, d.size * out.back().size, kLocal};
    } else {
      out.push_back(d);
    }
  }
  return out;
}

bool isCutFromLocal(const PlanDigit& owned, const PlanDim& before) {
  return std::ranges::any_of(before, [&](const PlanDigit& d) {
    return d.atom == kLocal && owned.stride >= d.stride && owned.stride % d.stride == 0 &&
           (d.stride * d.size) % (owned.stride * owned.size) == 0;
  });
}

int64_t localExtent(const PlanDim& dim) {
  return productOf(dim, [](const PlanDigit& d) { return d.atom == kLocal ? d.size : 1; });
}

std::vector<int64_t> ownersOf(const PlanDim& dim) {
  return filtered(mapped(dim, &PlanDigit::atom), [](int64_t atom) { return atom != kLocal; });
}

std::vector<int64_t> usedAtoms(const PlanState& state) {
  std::vector<int64_t> atoms;
  for (const PlanDim& dim : state.dims) {
    append(atoms, ownersOf(dim));
  }
  std::ranges::sort(atoms);
  return atoms;
}

std::vector<int64_t> coordinatesAt(int64_t position, const std::vector<int64_t>& atomSizes) {
  std::vector<int64_t> coordinates(atomSizes.size());
  for (int64_t a = std::ssize(atomSizes) - 1; a >= 0; a--) {
    coordinates[a] = position % atomSizes[a];
    position /= atomSizes[a];
  }
  return coordinates;
}

int64_t positionAmong(const std::vector<int64_t>& atoms, const std::vector<int64_t>& coordinates,
                      const std::vector<int64_t>& atomSizes) {
  int64_t position = 0;
  for (int64_t atom : atoms) {
    position = position * atomSizes[atom] + coordinates[atom];
  }
  return position;
}

}  // namespace meshfuse
