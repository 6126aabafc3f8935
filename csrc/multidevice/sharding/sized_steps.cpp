#include "multidevice/sharding/sized_steps.h"

#include <fmt/core.h>

#include <algorithm>
#include <ranges>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

int64_t ownedSize(const PlanDim& dim) {
  return productOf(dim, [](const PlanDigit& d) { return d.atom == kLocal ? 1 : d.size; });
}

int64_t plannedExtent(const PlanDim& dim) { return productOf(dim, &PlanDigit::size); }

bool hasOneLocalDigit(const PlanDim& dim) { return std::ranges::count(dim, kLocal, &PlanDigit::atom) == 1; }

}  // namespace

SizedDim digitsFor(const PlanDim& dim, const IntExpr& extent) {
  if (extent.isConst()) {
    return mapped(dim, [](const PlanDigit& d) { return SizedDigit{d.stride, d.size, d.atom}; });
  }
  const int64_t owned = ownedSize(dim);
  invariant(hasOneLocalDigit(dim) && extent.divisibleBy(owned), "[sized steps] {} parts of {} elements have no digits",
            owned, extent.toString());
  SizedDim digits;
  IntExpr stride = 1;
  for (const PlanDigit& d : dim | std::views::reverse) {
    const IntExpr size = d.atom == kLocal ? floorDiv(extent, owned) : IntExpr(d.size);
    digits.insert(digits.begin(), {stride, size, d.atom});
    stride *= size;
  }
  return digits;
}

std::vector<int64_t> plannedExtents(const CommStep& step, const std::vector<IntExpr>& extents) {
  return mapped(indices(extents), [&](int64_t k) {
    return extents[k].isConst() ? extents[k].constValue() : plannedExtent(step.before.dims[k]);
  });
}

std::string whyOfOneSize(std::span<const CommStep> steps, const std::vector<IntExpr>& extents) {
  const auto isConstant = [](const IntExpr& e) { return e.isConst(); };
  if (std::ranges::all_of(extents, isConstant)) {
    return "";
  }
  for (const CommStep& step : steps) {
    if (step.to) {
      return fmt::format("{} sends tiles directly", step.toString());
    }
    if (!isEven(step, plannedExtents(step, extents))) {
      return fmt::format("{} has uneven parts", step.toString());
    }
    for (const PlanState* state : {&step.before, &step.after}) {
      for (const int64_t k : indices(extents)) {
        const PlanDim& dim = state->dims[k];
        if (extents[k].isConst()) {
          continue;
        }
        if (!hasOneLocalDigit(dim)) {
          return fmt::format("{} has axes between local digits of dim {}", step.toString(), k);
        }
        // a step may cut the digits of one state by those of the other: all axes together divide the dim
        if (ownedSize(dim) > 1 && !extents[k].divisibleBy(step.on.mesh.numDevices())) {
          return fmt::format("the {} devices do not divide dim {} of {} elements", step.on.mesh.numDevices(), k,
                             extents[k].toString());
        }
      }
    }
  }
  return "";
}

std::vector<CommStep> stepsFor(std::vector<CommStep> steps, const std::vector<IntExpr>& extents,
                               const std::vector<int64_t>& values) {
  for (CommStep& step : steps) {
    for (PlanState* state : {&step.before, &step.after}) {
      for (const int64_t k : indices(extents)) {
        if (extents[k].isConst()) {
          continue;
        }
        int64_t stride = 1;
        const int64_t owned = ownedSize(state->dims[k]);
        for (PlanDigit& d : state->dims[k] | std::views::reverse) {
          d.stride = stride;
          d.size = d.atom == kLocal ? values[k] / owned : d.size;
          stride *= d.size;
        }
      }
    }
  }
  return steps;
}

}  // namespace meshfuse
