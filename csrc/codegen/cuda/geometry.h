// The digits of a program's spaces in a kernel: thread and register digits with their C names, and coordinates as expressions
// over them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "codegen/cuda/names.h"
#include "digits/int_expr.h"
#include "tile/tile.h"

namespace meshfuse::cuda {

// One digit that values may be spread over.
struct DigitInfo {
  uint64_t bit;  // in Value::digits
  int64_t axis;
  tile::Level level;
  int64_t size;
  IntExpr stride;
  std::string symbol;  // C name
  int64_t weight = 1;  // thread digits: neighbours differ by this in the lane, warp or cluster rank

  IntExpr value() const { return IntExpr::symbol(symbol, {0, size - 1, 1}); }
};

// The unit of an index or address: an element, or the vector that contains the element.
enum class Unit : uint8_t { Element, Vector };

[[nodiscard]] int64_t countOf(const std::vector<DigitInfo>& digits);
// Position among the elements, threads or parts that the digits tell apart, the last digit fastest.
[[nodiscard]] IntExpr positionOf(const std::vector<DigitInfo>& digits, Unit unit = Unit::Element);
[[nodiscard]] IntExpr atZero(const IntExpr& e, const std::set<std::string, std::less<>>& symbols);

class Geometry {
 public:
  Geometry(const tile::Program& program, Names& names);

  const std::vector<DigitInfo>& digits(int64_t space) const { return spaces_[space]; }
  // The digits of `set`, those of size 1 left out. onLevel: of one level; registers: in registers, the vector digit last; vector: the
  // vector digit; threads: on clusters, warps and lanes.
  std::vector<DigitInfo> onLevel(int64_t space, uint64_t set, tile::Level level) const;
  std::vector<DigitInfo> registers(int64_t space, uint64_t set) const;
  std::optional<DigitInfo> vector(int64_t space, uint64_t set) const;
  std::vector<DigitInfo> threads(int64_t space, uint64_t set) const;

  // Axes and digits in terms of C names; tensors' sizes and grid dims too.
  IntExpr resolve(const IntExpr& e) const;
  IntExpr coordinate(int64_t space, int64_t axis) const;
  const std::string& cName(const std::string& symbol) const;

  // Whether an unresolved expression depends on an axis or one of its digits.
  bool mentionsAxis(const IntExpr& e, int64_t space, int64_t axis) const;

 private:
  void addDigits(const tile::Space& space, Names& names);
  void orderThreads(std::vector<DigitInfo>& digits) const;

  const tile::Program& program_;
  std::vector<std::vector<DigitInfo>> spaces_;
  std::map<std::string, IntExpr> meaning_;  // of sizes, grid dims, axes and digits
  std::map<std::string, std::string> cNames_;
};

}  // namespace meshfuse::cuda
