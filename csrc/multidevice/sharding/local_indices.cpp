#include "multidevice/sharding/local_indices.h"

#include <algorithm>

#include "base/error.h"

namespace meshfuse {

namespace {

// A digit of constants; `value` is the coordinate of an owned one, -1 for local ones.
struct Place {
  int64_t stride;
  int64_t size;
  int64_t value;
};

// Places ascending from the minor end, next to each other: the indices below `extent` that have the given values.
IndexRuns indicesOf(const std::vector<Place>& places, int64_t extent) {
  if (std::none_of(places.begin(), places.end(), [](const Place& p) { return p.value >= 0; })) {
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
      r.count = std::min(r.count, (extent - r.start + r.step - 1) / r.step);
      r.step = r.count == 1 ? 1 : r.step;
      kept.push_back(r);
    }
  }
  return kept;
}

// Places of a padded dim as the indices that they are.
IndexRuns withoutPadding(const IndexRuns& places, std::span<const int64_t> parts) {
  const int64_t longest = longestOf(parts);
  IndexRuns indices;
  int64_t start = 0;
  for (size_t part = 0; part < parts.size(); part++) {
    const int64_t begin = static_cast<int64_t>(part) * longest;
    for (const IndexRun& r : places) {
      const int64_t first = std::max<int64_t>(0, (begin - r.start + r.step - 1) / r.step);
      const int64_t end = r.start >= begin + parts[part] ? 0 : (begin + parts[part] - r.start + r.step - 1) / r.step;
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

std::vector<int64_t> listed(const IndexRuns& runs) {
  std::vector<int64_t> out;
  for (const IndexRun& r : runs) {
    for (int64_t i = 0; i < r.count; i++) {
      out.push_back(r.start + i * r.step);
    }
  }
  return out;
}

bool isRange(const IndexRuns& runs) { return runs.size() == 1 && runs[0].step == 1; }

}  // namespace

IndexRuns localIndices(const DigitList& dim, const std::vector<int64_t>& coordinates) {
  std::vector<Place> places;
  for (auto d = dim.digits().rbegin(); d != dim.digits().rend(); ++d) {
    const int64_t size = d->size.constValue();
    const int64_t value =
        d->owner.isDevice() ? coordinates[d->owner.axis] / d->owner.below.constValue() % size : int64_t{-1};
    places.push_back({d->stride.constValue(), size, value});
  }
  if (!dim.hasParts()) {
    return indicesOf(places, dim.extent().constValue());
  }
  std::vector<int64_t> parts;
  for (const IntExpr& size : dim.digits().front().parts) {
    parts.push_back(size.constValue());
  }
  return withoutPadding(indicesOf(places, paddedExtent(parts)), parts);
}

IndexRuns localIndices(const PlanState& state, size_t dim, int64_t extent, const std::vector<int64_t>& coordinates) {
  std::vector<Place> places;
  for (auto d = state.dims[dim].rbegin(); d != state.dims[dim].rend(); ++d) {
    places.push_back({d->stride, d->size, d->atom == kLocal ? int64_t{-1} : coordinates[d->atom]});
  }
  const std::span<const int64_t> parts = state.partsOf(dim);
  return parts.empty() ? indicesOf(places, extent) : withoutPadding(indicesOf(places, paddedExtent(parts)), parts);
}

std::vector<int64_t> shapeOfNothing(size_t dims) { return std::vector<int64_t>(std::max<size_t>(1, dims), 0); }

bool holds(const DeviceMesh& mesh, int64_t device) { return mesh.empty() || mesh.contains(device); }

IndexBlock localIndices(const ShardState& state, int64_t device) {
  if (!holds(state.mesh, device)) {
    return IndexBlock(shapeOfNothing(state.dims.size()).size());
  }
  const std::vector<int64_t> at = state.mesh.empty() ? std::vector<int64_t>{} : state.mesh.coordinates(device);
  IndexBlock block;
  for (const DigitList& dim : state.dims) {
    block.push_back(localIndices(dim, at));
  }
  return block;
}

std::vector<int64_t> localShape(const ShardState& state, int64_t device) {
  std::vector<int64_t> shape;
  for (const IndexRuns& runs : localIndices(state, device)) {
    shape.push_back(countOf(runs));
  }
  return shape;
}

bool isRagged(const ShardState& state) {
  return std::any_of(state.dims.begin(), state.dims.end(), [](const DigitList& dim) { return dim.isRagged(); });
}

IndexRuns runsOf(const std::vector<int64_t>& indices) {
  IndexRuns runs;
  for (int64_t i : indices) {
    if (!runs.empty()) {
      IndexRun& r = runs.back();
      if (r.count == 1 || i - r.last() == r.step) {
        r.step = i - r.last();
        r.count++;
        continue;
      }
    }
    runs.push_back({i, 1, 1});
  }
  return runs;
}

IndexRuns intersection(const IndexRuns& a, const IndexRuns& b) {
  if (a.empty() || b.empty()) {
    return {};
  }
  if (a == b) {
    return a;
  }
  if (isRange(a) && isRange(b)) {
    const int64_t start = std::max(a[0].start, b[0].start);
    const int64_t stop = std::min(a[0].last(), b[0].last()) + 1;
    return start < stop ? IndexRuns{{start, stop - start, 1}} : IndexRuns{};
  }
  const std::vector<int64_t> x = listed(a);
  const std::vector<int64_t> y = listed(b);
  std::vector<int64_t> shared;
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(shared));
  return runsOf(shared);
}

IndexRuns positionsIn(const IndexRuns& all, const IndexRuns& some) {
  if (some.empty()) {
    return {};
  }
  if (isRange(all) && some.front().start >= all[0].start && some.back().last() <= all[0].last()) {
    IndexRuns out = some;
    for (IndexRun& r : out) {
      r.start -= all[0].start;
    }
    return out;
  }
  const std::vector<int64_t> x = listed(all);
  std::vector<int64_t> positions;
  for (int64_t i : listed(some)) {
    const auto at = std::lower_bound(x.begin(), x.end(), i);
    invariant(at != x.end() && *at == i, "[sharding] index {} is not among those that the rank holds", i);
    positions.push_back(at - x.begin());
  }
  return runsOf(positions);
}

}  // namespace meshfuse
