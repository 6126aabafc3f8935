#include "ir/part.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "base/error.h"

namespace meshfuse {

namespace {

std::string runText(const IndexRun& r) {
  const int64_t stop = r.last() + 1;
  return r.step == 1 ? fmt::format("{}:{}", r.start, stop) : fmt::format("{}:{}:{}", r.start, stop, r.step);
}

std::vector<std::string_view> pieces(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> out;
  for (size_t at = 0;;) {
    const size_t end = text.find(separator, at);
    out.push_back(text.substr(at, end == std::string_view::npos ? end : end - at));
    if (end == std::string_view::npos) {
      return out;
    }
    at = end + separator.size();
  }
}

IndexRun parseRun(std::string_view text) {
  std::vector<int64_t> numbers;
  for (std::string_view part : pieces(text, ":")) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    check(error == std::errc() && end == part.data() + part.size() && n >= 0,
          "expected a run of indices as start:stop or start:stop:step, got '{}'", text);
    numbers.push_back(n);
  }
  const int64_t step = numbers.size() == 3 ? numbers[2] : 1;
  check((numbers.size() == 2 || numbers.size() == 3) && step > 0 && numbers[0] < numbers[1],
        "expected a run of indices as start:stop or start:stop:step, got '{}'", text);
  return {numbers[0], (numbers[1] - numbers[0] + step - 1) / step, step};
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

// Ascending.
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

}  // namespace

int64_t countOf(const IndexRuns& runs) {
  int64_t n = 0;
  for (const IndexRun& r : runs) {
    n += r.count;
  }
  return n;
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
    invariant(at != x.end() && *at == i, "[part] index {} is not in the whole part", i);
    positions.push_back(at - x.begin());
  }
  return runsOf(positions);
}

Part Part::whole(const std::vector<int64_t>& sizes) {
  Part part;
  for (const int64_t n : sizes) {
    part.dims.push_back(n == 0 ? IndexRuns{} : IndexRuns{{0, n, 1}});
  }
  return part;
}

int64_t Part::count() const {
  int64_t n = 1;
  for (const IndexRuns& dim : dims) {
    n *= countOf(dim);
  }
  return n;
}

std::vector<int64_t> Part::sizes() const {
  std::vector<int64_t> out;
  for (const IndexRuns& dim : dims) {
    out.push_back(countOf(dim));
  }
  return out;
}

bool Part::contains(const Part& some) const { return intersection(*this, some) == some; }

Part Part::positionsOf(const Part& some) const {
  Part out;
  for (size_t k = 0; k < dims.size(); k++) {
    out.dims.push_back(positionsIn(dims[k], some.dims[k]));
  }
  return out;
}

Part intersection(const Part& a, const Part& b) {
  Part out;
  for (size_t k = 0; k < a.dims.size(); k++) {
    out.dims.push_back(intersection(a.dims[k], b.dims[k]));
  }
  return out;
}

std::string toString(const Part& part) {
  std::string text;
  for (const IndexRuns& dim : part.dims) {
    text += text.empty() ? "" : " * ";
    if (dim.empty()) {
      text += "none";
    }
    for (size_t i = 0; i < dim.size(); i++) {
      text += (i == 0 ? "" : "+") + runText(dim[i]);
    }
  }
  return text;
}

Part parsePart(std::string_view text) {
  Part part;
  for (std::string_view dim : pieces(text, " * ")) {
    part.dims.emplace_back();
    if (dim == "none") {
      continue;
    }
    for (std::string_view run : pieces(dim, "+")) {
      part.dims.back().push_back(parseRun(run));
    }
  }
  return part;
}

}  // namespace meshfuse
