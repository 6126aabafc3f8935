// The digits of a program's spaces in a kernel: thread and register digits with their C names, and coordinates as expressions
// over them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "codegen/cuda/names.h"
#include "digits/int_expr.h"
#include "tile/tile.h"

namespace meshfuse::cuda {

// One digit that values may be spread over.
struct DigitInfo {
  uint64_t bit;  // in Value::digits
  int axis;
  tile::Level level;
  int64_t size;
  IntExpr stride;
  std::string symbol;  // C name
  int weight = 1;      // thread digits: neighbours differ by this in the lane, warp or cluster rank

  bool isThread() const { return tile::isThread(level); }
  bool isRegister() const { return tile::isRegister(level); }
};

class Geometry {
 public:
  Geometry(const tile::Program& program, Names& names);

  const std::vector<DigitInfo>& digits(int space) const { return spaces_[space]; }
  // The digits of `set` in registers, outermost first, the vector digit last; digits of size 1 left out.
  std::vector<DigitInfo> registers(int space, uint64_t set) const;
  std::vector<DigitInfo> threads(int space, uint64_t set) const;  // the digits of `set` on threads, in their order
  int64_t registerCount(int space, uint64_t set) const;
  // The number of threads of a level that differ in the digits of a space; the other threads of the level repeat their work.
  int64_t extentOn(int space, tile::Level level) const;

  // Axes and digits in terms of C names; tensors' sizes and grid dims too.
  IntExpr resolve(const IntExpr& e) const;
  IntExpr coordinate(int space, int axis) const;
  const std::string& cName(const std::string& symbol) const;

  // Whether an unresolved expression depends on an axis or one of its digits.
  bool mentionsAxis(const IntExpr& e, int space, int axis) const;

 private:
  void addDigits(const tile::Space& space, Names& names);
  void orderThreads(std::vector<DigitInfo>& digits) const;

  const tile::Program& program_;
  std::vector<std::vector<DigitInfo>> spaces_;
  std::map<std::string, IntExpr> meaning_;  // of sizes, grid dims, axes and digits
  std::map<std::string, std::string> cNames_;
};

}  // namespace meshfuse::cuda
