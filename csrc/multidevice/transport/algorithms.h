// How a transport carries each collective, where the choice is the user's: a table by collective and size, which a text changes.
//
//   all-reduce=whole                 for all sizes
//   all-gather:large=ring,broadcast=tree
//   order=any,all-reduce=ring
//
// An algorithm belongs to one transport or to both; what it does not have, or may not do, a transport carries as it would without the
// text. Reductions are in team order: results do not depend on the table. Those that are not (doubling, ring, and between hosts whose
// ranks are mixed in the team, hierarchical) carry what has the same bits in any order, integers and Bool; with `order=any` also
// floating types, and then the network takes them by itself where they pay.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "multidevice/transport/call.h"

namespace meshfuse {

enum class Algorithm : uint8_t {
  Default,  // as the transport's thresholds say
  Slots,    // host: inputs are copied to slots
  Pull,     // host: inputs are read where they lie, if that is in a heap; of an all-reduce, each rank reduces a part
  Push,  // host: of an all-reduce, each rank reduces a part and writes it to the outputs of all, if all lie in heaps. After a
  // call that failed a peer may still write to the output, until all survivors have come to shrink(); and a rank that is
  // taken for dead and wakes up may write whenever it does
  Staged,    // host: everything goes through the staging areas, piece by piece
  Whole,     // host and network: of an all-reduce, each rank reduces all
  Parts,     // network: of an all-reduce, each rank reduces a part
  Pairs,     // network: between every two ranks
  Doubling,  // network: of an all-reduce, ranks 1, 2, 4 ... places apart reduce what they have. Ranks that do not
             // meet do not compare their calls: one that names another team is found by the deadline only
  Ring,      // network: from neighbour to neighbour
  Hierarchical,  // network: of an all-reduce, the ranks of a host share out its parts; each part goes from host to host and back
  Tree,    // network: each rank that has it passes it on
  Scatter  // network: each rank gets a part of it, then all gather the parts in a ring
};

// As in a text; "default" also of a call that was not carried at all, or by a transport that has one way only.
[[nodiscard]] std::string_view name(Algorithm algorithm);

// By the bytes that one rank publishes. `Small` ends where slots do, `Medium` at 1 MiB.
enum class SizeClass : uint8_t { Small, Medium, Large };
constexpr int64_t kLargestMedium = 1 << 20;

class AlgorithmTable {
 public:
  AlgorithmTable() = default;
  // UserError, with the legal words, for a text that is none.
  static AlgorithmTable parse(std::string_view text);

  Algorithm onHost(Collective kind, SizeClass size) const { return at(host_, kind, size); }
  Algorithm onNetwork(Collective kind, SizeClass size) const { return at(network_, kind, size); }
  // Whether floating types may be reduced in another order than the team's.
  bool anyOrder() const { return anyOrder_; }
  // Whether ranks of a host write to each other's memory.
  bool pushes() const;

 private:
  static constexpr size_t kSizes = 3;
  static constexpr size_t kKinds = static_cast<size_t>(Collective::Reduce) + 1;
  using Table = std::array<std::array<Algorithm, kSizes>, kKinds>;

  static Algorithm at(const Table& table, Collective kind, SizeClass size) {
    const auto k = static_cast<size_t>(kind);
    return k < kKinds ? table[k][static_cast<size_t>(size)] : Algorithm::Default;
  }
  void set(std::string_view entry);

  Table host_{};
  Table network_{};
  bool anyOrder_ = false;
};

[[nodiscard]] constexpr SizeClass sizeClass(int64_t bytes, int64_t largestSmall) {
  return bytes <= largestSmall ? SizeClass::Small : bytes <= kLargestMedium ? SizeClass::Medium : SizeClass::Large;
}

// What the variable MESHFUSE_ALGORITHMS says; "" if it is not set.
[[nodiscard]] std::string algorithmsOfEnvironment();

}  // namespace meshfuse
