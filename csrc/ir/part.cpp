#include "ir/part.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <ranges>

#include "base/error.h"
#include "base/exact.h"
#include "base/limits.h"
#include "base/ranges.h"
#include "ir/attribute_text.h"

namespace meshfuse {

namespace {

std::string runText(const IndexRun& r) {
  const int64_t stop = r.last() + 1;
  return r.step == 1 ? fmt::format("{}:{}", r.start, stop) : fmt::format("{}:{}:{}", r.start, stop, r.step);
}

// One at least: of "", "".
std::vector<std::string_view> pieces(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> out;
  for (const auto piece : std::views::split(text, separator)) {
    out.emplace_back(piece.begin(), piece.end());
  }
  return out.empty() ? std::vector{text} : out;
}

IndexRun parseRun(std::string_view text) {
  // -1: no number that an index may be
  const std::vector<int64_t> numbers =
      mapped(pieces(text, ":"), [](std::string_view part) { return numberIn<int64_t>(part).value_or(-1); });
  const int64_t step = numbers.size() == 3 ? numbers[2] : 1;
  check((numbers.size() == 2 || numbers.size() == 3) && numbers[0] >= 0 && step > 0 && numbers[0] < numbers[1] &&
            numbers[1] <= kMostTensorBytes && step <= kMostTensorBytes,
        "expected a run of indices below 2^50 as start:stop or start:stop:step, got '{}'", text);
  return {numbers[0], (numbers[1] - numbers[0] - 1) / step + 1, step};
}

constexpr int64_t kMostListed = int64_t{1} << 26;

std::vector<int64_t> listed(const IndexRuns& runs) {
  const int64_t count = countOf(runs);
  check(count <= kMostListed, "[part] {} of {} indices is not one range, expected at most {}",
        runs.empty() ? "none" : runText(runs[0]), count, kMostListed);
  std::vector<int64_t> out;
  for (const IndexRun& r : runs) {
    for (int64_t i = 0; i < r.count; i++) {
      out.push_back(r.start + i * r.step);
    }
  }
  return out;
}

bool isRange(const IndexRuns& runs) { return runs.size() == 1 && runs[0].step == 1; }

// Ascending.
IndexRuns runsOf(const std::vector<int64_t>& indices) {
  IndexRuns runs;
  for (int64_t i : indices) {
    if (runs.empty() || (runs.back().count > 1 && i - runs.back().last() != runs.back().step)) {
      runs.push_back({i, 1, 1});
    } else {
      IndexRun& r = runs.back();
      r.step = i - r.last();
      r.count++;
    }
  }
  return runs;
}

}  // namespace

int64_t countOf(const IndexRuns& runs) { return sumExact(runs, &IndexRun::count); }

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
  const auto hasStep = [](const IndexRun& r) { return r.step != 1; };
  if (std::ranges::any_of(a, hasStep) || std::ranges::any_of(b, hasStep)) {
    std::vector<int64_t> shared;
    std::ranges::set_intersection(listed(a), listed(b), std::back_inserter(shared));
    return runsOf(shared);
  }
  IndexRuns shared;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    const int64_t start = std::max(x->start, y->start);
    const int64_t count = std::min(x->last(), y->last()) + 1 - start;
    if (count > 0) {
      shared.push_back({start, count, 1});
    }
    x->last() < y->last() ? ++x : ++y;
  }
  return shared;
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
    invariant(at != x.end() && *at == i, "[part] index {} is not in the whole part", i);
    positions.push_back(at - x.begin());
  }
  return runsOf(positions);
}

Part Part::whole(const std::vector<int64_t>& sizes) {
  return {mapped(sizes, [](int64_t n) { return n == 0 ? IndexRuns{} : IndexRuns{{0, n, 1}}; })};
}

int64_t Part::count() const { return productExact(dims, countOf); }

std::vector<int64_t> Part::sizes() const { return mapped(dims, countOf); }

bool Part::contains(const Part& some) const { return intersection(*this, some) == some; }

Part Part::positionsOf(const Part& some) const {
  Part out;
  std::ranges::transform(dims, some.dims, std::back_inserter(out.dims), positionsIn);
  return out;
}

Part intersection(const Part& a, const Part& b) {
  Part out;
  for (int64_t k = 0; k < std::ssize(a.dims); k++) {
    out.dims.push_back(intersection(a.dims[k], b.dims[k]));
  }
  return out;
}

std::string toString(const Part& part) {
  return joined(part.dims, " * ",
                [](const IndexRuns& dim) { return dim.empty() ? "none" : joined(dim, "+", runText); });
}

Part parsePart(std::string_view text) {
  const auto parseDim = [](std::string_view dim) {
    return dim == "none" ? IndexRuns{} : mapped(pieces(dim, "+"), parseRun);
  };
  return {mapped(pieces(text, " * "), parseDim)};
}

}  // namespace meshfuse
