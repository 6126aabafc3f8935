#include "base/nearest_word.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace meshfuse {

namespace {

// Insertions, removals and replacements that turn one word into the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); i++) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); j++) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// The number of first letters that are equal.
int64_t samePrefix(std::string_view a, std::string_view b) { return std::ranges::mismatch(a, b).in1 - a.begin(); }

constexpr size_t kLongestWord = 200;  // the time is the product of two lengths

}  // namespace

std::string nearestWord(std::string_view word, std::span<const std::string> words) {
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  const std::string* near = nullptr;
  for (const std::string& w : words) {
    if (!w.empty() && std::max(word.size(), w.size()) <= kLongestWord) {
      const size_t d = distance(word, w);
      if (d < least || (d == least && near != nullptr && samePrefix(word, w) > samePrefix(word, *near))) {
        least = d;
        near = &w;
      }
    }
  }
  return near == nullptr ? "" : fmt::format("; did you mean {}?", *near);
}

}  // namespace meshfuse
