// Indices of a dim as arithmetic runs, and blocks of a tensor as such indices of each dim.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshfuse {

struct IndexRun {
  int64_t start = 0;
  int64_t count = 0;
  int64_t step = 1;
  int64_t last() const { return start + (count - 1) * step; }
  friend bool operator==(const IndexRun&, const IndexRun&) = default;
};

using IndexRuns = std::vector<IndexRun>;    // ascending; empty: no index
using IndexBlock = std::vector<IndexRuns>;  // by dim

[[nodiscard]] int64_t countOf(const IndexRuns& runs);
[[nodiscard]] int64_t countOf(const IndexBlock& block);  // of elements

// 0:2+6:12:3 * 0:4: start:stop:step of every run, a dim without indices as `none`.
[[nodiscard]] std::string toString(const IndexBlock& block);
[[nodiscard]] IndexBlock parseIndexBlock(std::string_view text);  // UserError

}  // namespace meshfuse
