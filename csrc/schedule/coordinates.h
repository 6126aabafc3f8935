// Coordinates: every tensor of a group indexed by the dims of one reference iteration space.
//
// The space is the shape of one tensor (a reduction's operand, or the largest output). Its dims are symbols, here d0, d1, ...; each
// tensor's index is derived from them through the ops, forward and backward, as far as the ops are one-to-one or broadcasts:
//
//   T1 = broadcast(max)   [d0] -> [d0, ?]       T2 = sub(x, T1)   [d0, d1], so T1's new dim is free
//
// If some ops of the group are not connected with the reference, one of their tensors with the extents of the reference gets the index of
// the reference, and the indices of their other tensors follow from that.
//
// A group has coordinates if all outputs are indexed, each element once, and its reductions run over the same dims, except for those over
// exactly the remaining dims, from which only columns may follow (norm backward: dx needs sums of rows, dweight is sums of columns).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "digits/int_expr.h"
#include "schedule/group.h"

namespace meshfuse {

struct Coordinates {
  std::vector<IntExpr> extents;  // of the reference dims
  std::vector<bool> reduced;     // the dims that the group's reductions combine, but for those of `columns`
  std::vector<int64_t>
      order;  // the dims as a kernel runs through them, innermost last: as the reference lies in memory
  // Index of a tensor's stored dims over the symbols of the reference dims; by Val id. A reduction's result has no reduced symbols.
  std::map<int64_t, std::vector<IntExpr>> index;
  // Reduction stages: a reduction of stage k depends on results of stages < k only. By Val id of the result.
  std::map<int64_t, int64_t> stage;
  int64_t stages = 0;
  // Val ids of results of reductions over all other dims: the reduced dims include the innermost one, so these are sums of columns. What
  // follows from them runs over reduced dims only, and reads no result of a stage.
  std::set<int64_t> columns;
  bool conflicted = false;  // some tensor is needed at two positions
  bool readsMove = false;   // some tensor may be read at another index, or at its index written in another way
  bool hasReduction() const { return stages > 0; }

  // Tensors that run over the reduced dims (the others have one element for each row), and how many reduction stages each tensor of the
  // group waits for; by Val id.
  std::set<int64_t> spread;
  std::map<int64_t, int64_t> waits;
  bool isSpread(const TensorView* tensor) const;
  int64_t waitsFor(const TensorView* tensor) const;
  bool followsColumns(const TensorView* tensor) const;  // or is the sum of columns itself
  // True if some spread output that follows no columns waits for no reduction (early: the first sweep can store it), and if some waits for
  // a reduction (late).
  bool earlyOutputs = false;
  bool lateOutputs = false;
  bool spreadOutputs() const { return earlyOutputs || lateOutputs; }
};

// The symbol of a reference dim: "dim 0". No size of a fusion has such a name, because names in programs have no spaces.
[[nodiscard]] std::string dimSymbol(int64_t dim);
// Whether an expression, or one of an index, names the symbol of the dim.
[[nodiscard]] bool runsOver(const IntExpr& expr, int64_t dim);
[[nodiscard]] bool runsOver(const std::vector<IntExpr>& index, int64_t dim);

// The group's coordinates, or the reason why it has none.
struct CoordinatesOrReason {
  std::optional<Coordinates> coordinates;
  std::string reason;
};
[[nodiscard]] CoordinatesOrReason findCoordinates(const Group& group);

// Whether a kernel of elementwise ops accesses both tensors at the same index only.
[[nodiscard]] bool sharePositions(const Group& group, const Coordinates& c, const TensorView* a, const TensorView* b);

}  // namespace meshfuse
