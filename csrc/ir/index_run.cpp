#include "ir/index_run.h"

#include <charconv>

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

}  // namespace

int64_t countOf(const IndexRuns& runs) {
  int64_t n = 0;
  for (const IndexRun& r : runs) {
    n += r.count;
  }
  return n;
}

int64_t countOf(const IndexBlock& block) {
  int64_t n = 1;
  for (const IndexRuns& dim : block) {
    n *= countOf(dim);
  }
  return n;
}

std::string toString(const IndexBlock& block) {
  std::string text;
  for (const IndexRuns& dim : block) {
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

IndexBlock parseIndexBlock(std::string_view text) {
  IndexBlock block;
  for (std::string_view dim : pieces(text, " * ")) {
    block.emplace_back();
    if (dim == "none") {
      continue;
    }
    for (std::string_view run : pieces(dim, "+")) {
      block.back().push_back(parseRun(run));
    }
  }
  return block;
}

}  // namespace meshfuse
