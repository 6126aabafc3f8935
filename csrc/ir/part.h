// Part: elements of a tensor, as runs of indices of each dim. A rank holds a part, computes with a part, sends and receives parts.
//
//   T[10] in blocks over x: 4         ranks hold 0:3, 3:6, 6:9, 9:10
//   T[10] cyclic over x: 4            0:10:4, 1:10:4, 2:10:4, 3:10:4
//   T[10] in parts {2, 3, 4, 1}       0:2, 2:5, 5:9, 9:10
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "digits/int_expr.h"

namespace meshfuse {

template <class Int>
struct RunOf {
  Int start = 0;
  Int count = 0;
  Int step = 1;
  Int last() const { return start + (count - 1) * step; }
  friend bool operator==(const RunOf&, const RunOf&) = default;
};

using IndexRun = RunOf<int64_t>;
using SymbolicRun = RunOf<IntExpr>;  // expressions of a rank's coordinates and of sizes

using IndexRuns = std::vector<IndexRun>;  // ascending; empty: no index

[[nodiscard]] int64_t countOf(const IndexRuns& runs);
[[nodiscard]] IndexRuns intersection(const IndexRuns& a, const IndexRuns& b);
// The positions of the indices of `some` in the list of the indices of `all`. InternalError if one is not in the list.
[[nodiscard]] IndexRuns positionsIn(const IndexRuns& all, const IndexRuns& some);

struct Part {
  std::vector<IndexRuns> dims;

  static Part whole(const std::vector<int64_t>& sizes);
  int64_t count() const;               // elements
  std::vector<int64_t> sizes() const;  // indices by dim
  bool contains(const Part& some) const;
  // The positions of the elements of `some` in a tensor that consists of the elements of this part. InternalError if one is not in it. A
  // dim of `some` may have no index; the positions of the other dims are still computed.
  Part positionsOf(const Part& some) const;
  friend bool operator==(const Part&, const Part&) = default;
};

[[nodiscard]] Part intersection(const Part& a, const Part& b);

// The elements that one device sends to another, or keeps (from == to).
struct PartMessage {
  int64_t from = 0;
  int64_t to = 0;
  Part part;
};

// 0:2+6:12:3 * 0:4: start:stop:step of every run, a dim without indices as `none`.
[[nodiscard]] std::string toString(const Part& part);
[[nodiscard]] Part parsePart(std::string_view text);  // UserError

}  // namespace meshfuse
