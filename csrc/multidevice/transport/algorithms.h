// The algorithm of each collective: a table by collective and size, which the user can change with a text.
//
//   all-reduce=whole                 for all sizes
//   all-gather:large=ring,broadcast=tree
//   order=any,all-reduce=ring
//
// An algorithm exists in one transport or in both. If a transport does not have the chosen algorithm, or may not use it for a call, it
// uses its default. Most algorithms reduce in team order, so results do not depend on the table. Doubling, ring, and hierarchical (if the
// ranks of the hosts are mixed in the team) do not: they reduce only types whose bits do not depend on the order, integers and Bool. With
// `order=any` they also reduce floating types, and the network then uses them by default if they are faster.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "multidevice/mesh/collective.h"

namespace meshfuse {

enum class Algorithm : uint8_t {
  Default,  // chosen by the transport's thresholds
  Slots,    // host, small calls: inputs are copied to slots
  Pull,     // host: ranks read inputs that lie in a heap in place; in an all-reduce, each rank reduces a part
  Push,  // host: in an all-reduce, each rank reduces a part and writes it to the outputs of all ranks, if all lie in heaps.
  // After a failed call a peer may still write to the output until all survivors have called shrink(). A rank that was
  // considered dead may write whenever it wakes up
  Staged,    // host: data is copied through the staging areas, piece by piece
  Whole,     // host and network: in an all-reduce, each rank reduces all elements
  Parts,     // network: in an all-reduce, each rank reduces a part
  Pairs,     // network, all but all-reduce: a message between every two ranks
  Doubling,  // network: in an all-reduce, ranks 1, 2, 4 ... positions apart combine their results. Ranks that exchange
             // no message do not compare their calls: a call with another team is found only by the deadline
  Ring,      // network, all-reduce and all-gather: from neighbour to neighbour
  Hierarchical,  // network: in an all-reduce, each rank of a host is responsible for a part; each part goes from host to host and back
  Tree,    // network, broadcast: each rank that has the data sends it to further ranks
  Scatter  // network, broadcast: each rank gets a part of the data, then all ranks gather the parts in a ring
};

// The word of the text form; "default" also for a call that has not run, or that ran on a transport with only one algorithm.
[[nodiscard]] std::string_view name(Algorithm algorithm);

// Classes of calls by the bytes that one rank publishes. `Small` ends at the largest size for slots, `Medium` at 1 MiB.
enum class SizeClass : uint8_t { Small, Medium, Large };
constexpr int64_t kLargestMedium = 1 << 20;

class AlgorithmTable {
 public:
  AlgorithmTable() = default;
  // UserError, with the legal words, if the text is malformed.
  static AlgorithmTable parse(std::string_view text);

  Algorithm onHost(Collective kind, SizeClass size) const { return at(host_, kind, size); }
  Algorithm onNetwork(Collective kind, SizeClass size) const { return at(network_, kind, size); }
  // True if floating types may be reduced in another order than the team's.
  bool anyOrder() const { return anyOrder_; }
  // True if ranks of a host write to each other's memory.
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

}  // namespace meshfuse
