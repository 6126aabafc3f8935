// IdGraph: groups of IterDomains that have the same index. A union-find over all IterDomains of a fusion.
//
// Two dims are in one group if an op maps one to the other (idLinks), or if equal transforms derive them from dims of one group:
//
//   T1 = relu(T0)            dim k of T0 and dim k of T1 are in one group
//   T0 split(0, 4)           both outer parts are in one group, and so are both inner parts,
//   T1 split(0, 4)           because the inputs are in one group and the factors are equal
//
// and backwards: the inputs of two splits (merges, resizes) are in one group if all their results are and the inner extents
// are equal.
//
//   ExactIds       links of kind Same and Reduced: equal positions, equal extents
//   BroadcastIds   also Stretched: a broadcast dim is in the group of the dim to which it stretches
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/op_rule.h"

namespace meshfuse {

class Fusion;
class IterDomain;

// A pair of dims that an op links, see dimsRead.
struct IdLink {
  IterDomain* producer;
  IterDomain* consumer;
  DimRead how;
  IntExpr offset;
};
// Links of all tensor operands, in order of operands and of the result's dims.
[[nodiscard]] std::vector<IdLink> idLinks(const Expr& expr);
[[nodiscard]] std::vector<IdLink> idLinks(const Expr& expr, int64_t operand);

class IdGraph {
 public:
  enum class Mode { Exact, Broadcast };
  IdGraph(const Fusion& fusion, Mode mode);

  // A dim that was created after this graph is alone in its group.
  [[nodiscard]] bool same(const IterDomain* a, const IterDomain* b) const;
  // The smallest id in the group of `id`.
  [[nodiscard]] int64_t group(const IterDomain* id) const;
  // In id order.
  [[nodiscard]] std::vector<IterDomain*> members(int64_t group) const;

 private:
  std::vector<int64_t> groupOf_;  // by id; ids that no tensor has are alone
  std::vector<IterDomain*> ids_;
};

class ExactIds : public IdGraph {
 public:
  static constexpr std::string_view kName = "exact-ids";
  explicit ExactIds(const Fusion& fusion) : IdGraph(fusion, Mode::Exact) {}
};

class BroadcastIds : public IdGraph {
 public:
  static constexpr std::string_view kName = "broadcast-ids";
  explicit BroadcastIds(const Fusion& fusion) : IdGraph(fusion, Mode::Broadcast) {}
};

}  // namespace meshfuse
