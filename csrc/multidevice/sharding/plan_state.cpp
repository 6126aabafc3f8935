#include "multidevice/sharding/plan_state.h"

#include <algorithm>

namespace meshfuse {

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

int64_t localExtent(const PlanDim& dim) {
  int64_t n = 1;
  for (const PlanDigit& d : dim) {
    n *= d.atom == kLocal ? d.size : 1;
  }
  return n;
}

int64_t localSize(const PlanState& state) {
  int64_t n = 1;
  for (const PlanDim& dim : state.dims) {
    n *= localExtent(dim);
  }
  return n;
}

std::vector<int> usedAtoms(const PlanState& state) {
  std::vector<int> atoms;
  for (const PlanDim& dim : state.dims) {
    for (const PlanDigit& d : dim) {
      if (d.atom != kLocal) {
        atoms.push_back(d.atom);
      }
    }
  }
  std::sort(atoms.begin(), atoms.end());
  return atoms;
}

PlanState dropAtoms(const PlanState& state, const std::vector<int>& atoms) {
  PlanState out = state;
  for (PlanDim& dim : out.dims) {
    for (PlanDigit& d : dim) {
      if (std::find(atoms.begin(), atoms.end(), d.atom) != atoms.end()) {
        d.atom = kLocal;
      }
    }
    dim = normalForm(dim);
  }
  return out;
}

int64_t globalIndex(const PlanDim& dim, const std::vector<int64_t>& coordinates, int64_t local) {
  int64_t index = 0;
  for (auto d = dim.rbegin(); d != dim.rend(); ++d) {
    if (d->atom == kLocal) {
      index += local % d->size * d->stride;
      local /= d->size;
    } else {
      index += coordinates[d->atom] * d->stride;
    }
  }
  return index;
}

}  // namespace meshfuse
