// Random edges: chains of ops that move, drop, repeat, pick or add up elements, and for the last edge of a chain the elements of the
// operand that every element of the result needs, found by running the op on the elements' own numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/fusion.h"
#include "multidevice/sharding/random_op.h"
#include "sanitized.h"

namespace meshfuse {

inline constexpr int64_t kShareOfEdges = kSanitized ? 6 : 1;  // one in so many edges is looked at

using SymbolValueOf = std::function<std::optional<int64_t>(std::string_view)>;

using FlatIndices = std::set<int64_t>;  // flat indices

// Flat indices over the logical domain that a device works on, by the loop transforms alone; none outside of the mesh.
FlatIndices heldBy(const TensorView* tv, int64_t device);

// One expr on the way and which of its operands comes from before it.
struct Hop {
  Expr* expr = nullptr;
  int64_t operand = 0;
  TensorView* producer() const { return expr->input(operand)->asTensor(); }
  TensorView* consumer() const { return expr->tensorOutput(); }
};

struct RandomChain {
  Fusion fusion;
  TensorView* head = nullptr;
  std::vector<RandomOp> ops;       // applied to the head, in order
  std::vector<std::string> kinds;  // of the ops
  std::vector<Hop> hops;           // from the head to the edge looked at, the last one

  const Hop& edge() const { return hops.back(); }
};

// A chain of at most `ops` ops, at least one, over a random shape.
void makeChain(RandomChain& chain, std::mt19937& rng, int64_t ops, bool uneven);
// The same over a head of these extents, the symbols among them with the values for which ops are picked.
void makeChain(RandomChain& chain, std::mt19937& rng, int64_t ops, const std::vector<IntExpr>& head,
               const SymbolValueOf& sample);
// The ops of another chain applied to a head of these extents. False where that makes other exprs.
bool repeatChain(RandomChain& chain, const RandomChain& of, const std::vector<IntExpr>& head);
[[nodiscard]] std::vector<int64_t> pickShape(std::mt19937& rng, bool uneven);

// By flat index of the consumer's logical domain: what it needs of the producer's stored elements. Rewires the expr, so it comes last.
std::vector<FlatIndices> tracedNeeds(RandomChain& chain);

struct Truth {
  bool equal = true;      // every rank with something to do holds just what it needs of what anybody needs
  bool contained = true;  // nobody lacks anything
  bool proper = false;    // some rank holds a part of the producer, not all of it
};
Truth truthOf(RandomChain& chain);

// What a proof of the edge lacked, by the words of its reason.
[[nodiscard]] std::string causeOf(const Hop& edge, const std::string& reason);

// Whether axes may own reduced dims: of a result they may, an operand's are combined before it is read.
enum class Reduced : uint8_t { Free, Bound };
// Splits and merges at random, then axes and now and then a stream on loops of their size.
void randomLoops(std::mt19937& rng, TensorView* tv, const DeviceMesh& mesh, bool uneven,
                 Reduced reduced = Reduced::Bound);
// Axes on digits at random, now and then one axis on digits of several dims, so that each is a part of its coordinate.
void randomDigits(std::mt19937& rng, TensorView* tv, const DeviceMesh& mesh);

}  // namespace meshfuse
