#include "multidevice/sharding/held_part.h"

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "base/ranges.h"
#include "base/rounding.h"

namespace meshfuse {

namespace {

// A digit of constants; `value` is the coordinate of an owned one, -1 for local ones.
struct Place {
  int64_t stride;
  int64_t size;
  int64_t value;
};

// The indices below `extent` whose owned digits have the given values, as runs; digits ascend from the minor end.
IndexRuns indicesOf(const std::vector<Place>& places, int64_t extent) {
  if (std::ranges::none_of(places, [](const Place& p) { return p.value >= 0; })) {
    return extent == 0 ? IndexRuns{} : IndexRuns{{0, extent, 1}};
  }
  IndexRuns runs{{0, 1, 1}};
  for (const Place& p : places) {
    if (p.value >= 0) {
      for (IndexRun& r : runs) {
        r.start += p.value * p.stride;
      }
      continue;
    }
    if (runs.size() == 1 && (runs[0].count == 1 || runs[0].step * runs[0].count == p.stride)) {
      IndexRun& r = runs[0];
      r = {r.start, r.count * p.size, r.count == 1 ? p.stride : r.step};
      continue;
    }
    IndexRuns repeated;
    for (int64_t i = 0; i < p.size; i++) {
      for (const IndexRun& r : runs) {
        if (r.start + i * p.stride < extent) {
          repeated.push_back({r.start + i * p.stride, r.count, r.step});
        }
      }
    }
    runs = std::move(repeated);
  }
  IndexRuns kept;
  for (IndexRun r : runs) {
    if (r.start < extent) {
      r.count = std::min(r.count, divideUp(extent - r.start, r.step));
      r.step = r.count == 1 ? 1 : r.step;
      kept.push_back(r);
    }
  }
  return kept;
}

// The same for digits that index the padded dim of these parts.
IndexRuns indicesIn(std::span<const int64_t> parts, const std::vector<Place>& digits) {
  const IndexRuns places = indicesOf(digits, paddedExtent(parts));
  const int64_t longest = longestOf(parts);
  IndexRuns indices;
  int64_t start = 0;
  for (int64_t part = 0; part < std::ssize(parts); part++) {
    const int64_t begin = static_cast<int64_t>(part) * longest;
    for (const IndexRun& r : places) {
      const int64_t first = divideUp(std::max<int64_t>(0, begin - r.start), r.step);
      const int64_t end = r.start >= begin + parts[part] ? 0 : divideUp(begin + parts[part] - r.start, r.step);
      const int64_t count = std::min(end, r.count) - first;
      if (count > 0) {
        const int64_t at = start + r.start + first * r.step - begin;
        if (r.step == 1 && !indices.empty() && indices.back().step == 1 && indices.back().last() + 1 == at) {
          indices.back().count += count;
        } else {
          indices.push_back({at, count, count == 1 ? 1 : r.step});
        }
      }
    }
    start += parts[part];
  }
  return indices;
}

}  // namespace

std::vector<int64_t> constantParts(const DigitList& dim) {
  return dim.hasParts() ? mapped(dim.digits().front().parts, &IntExpr::constValue) : std::vector<int64_t>();
}

IndexRuns heldRuns(const DigitList& dim, const std::vector<int64_t>& coordinates) {
  const auto placeOf = [&](const Digit& d) {
    const int64_t size = d.size.constValue();
    const int64_t value = d.owner.isDevice() ? coordinates[d.owner.axis] / d.owner.below.constValue() % size : -1;
    return Place{d.stride.constValue(), size, value};
  };
  const std::vector<Place> places = mapped(dim.digits() | std::views::reverse, placeOf);
  return dim.hasParts() ? indicesIn(constantParts(dim), places) : indicesOf(places, dim.extent().constValue());
}

IndexRuns heldRuns(const PlanState& state, int64_t dim, int64_t extent, const std::vector<int64_t>& coordinates) {
  const std::vector<Place> places = mapped(state.dims[dim] | std::views::reverse, [&](const PlanDigit& d) {
    return Place{d.stride, d.size, d.atom == kLocal ? -1 : coordinates[d.atom]};
  });
  const std::span<const int64_t> parts = state.partsOf(dim);
  return parts.empty() ? indicesOf(places, extent) : indicesIn(parts, places);
}

Part heldPart(const PlanState& state, const std::vector<int64_t>& extents, const std::vector<int64_t>& coordinates) {
  return {mapped(indices(extents), [&](int64_t k) { return heldRuns(state, k, extents[k], coordinates); })};
}

std::optional<SymbolicRun> heldRun(const std::vector<RankDigit>& digits) {
  SymbolicRun run{.count = 1};
  IntExpr stride = 1;          // of a digit
  std::optional<IntExpr> end;  // the stride that the next local digit must have
  for (const RankDigit& d : digits | std::views::reverse) {
    if (d.isOwned()) {
      run.start += *d.value * stride;
    } else if (end && !(*end == stride)) {
      return std::nullopt;
    } else {
      run.step = end ? run.step : stride;
      run.count *= d.size;
      end = stride * d.size;
    }
    stride *= d.size;
  }
  return run;
}

std::vector<int64_t> shapeOfNothing(size_t dims) { return std::vector<int64_t>(std::max<size_t>(1, dims), 0); }

bool holds(const DeviceMesh& mesh, int64_t device) { return mesh.empty() || mesh.contains(device); }

Part heldPart(const ShardState& state, int64_t device) {
  if (!holds(state.mesh, device)) {
    return {std::vector<IndexRuns>(shapeOfNothing(state.dims.size()).size())};
  }
  const std::vector<int64_t> at = state.mesh.empty() ? std::vector<int64_t>{} : state.mesh.coordinates(device);
  return {mapped(state.dims, [&](const DigitList& dim) { return heldRuns(dim, at); })};
}

bool isRagged(const ShardState& state) { return std::ranges::any_of(state.dims, &DigitList::isRagged); }

}  // namespace meshfuse
