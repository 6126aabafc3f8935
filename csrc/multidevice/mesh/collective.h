// Collective: the kinds of communication among the ranks of a team. Steps of plans, ops of a rank's program and calls of a communicator
// all use this type; counts, peers and roots are separate data.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace meshfuse {

// At equal cost, plans prefer the kind that is first in this list.
enum class Collective : uint8_t {
  Local,      // no communication
  Transfer,   // ranks send blocks to given ranks and receive blocks from given ranks
  AllToAll,   // every rank sends a block of its own to every rank
  AllGather,  // every rank gets the blocks of all ranks
  ReduceScatter,
  AllReduce,
  Broadcast,
  Gather,   // the root gets the blocks of all ranks
  Scatter,  // the root sends every rank a block of its own
  Reduce,   // the root gets the combined elements
  Send,
  Recv,
  Barrier,
  Exchange,  // a control message from every rank to every rank
  Close      // the end of a world
};
inline constexpr int64_t kCollectives = 15;

// The properties of a collective that transports, programs and plans read. Without operandHasBlocks the operand is one piece; without
// resultHasBlocks the result is one piece.
struct CollectiveTraits {
  std::string_view name;          // messages, traces, options
  std::string_view identifier;    // programs as text
  bool reduces = false;           // elements of different ranks are combined
  bool operandHasBlocks = false;  // one for each rank of the team
  bool resultHasBlocks = false;   // one from each rank of the team
  bool operandIsOfRoot = false;   // the other ranks have no operand
  bool resultIsOfRoot = false;    // the other ranks get no result
  bool inPlans = false;           // a step of a redistribution plan
  bool inHaloExchanges = false;   // a step of a halo exchange
};

inline constexpr std::array<CollectiveTraits, kCollectives> kCollectiveTraits = {{
    {.name = "local", .identifier = "local"},
    {.name = "transfer", .identifier = "transfer", .inPlans = true, .inHaloExchanges = true},
    {.name = "all-to-all",
     .identifier = "all_to_all",
     .operandHasBlocks = true,
     .resultHasBlocks = true,
     .inPlans = true},
    {.name = "all-gather", .identifier = "all_gather", .resultHasBlocks = true, .inPlans = true},
    {.name = "reduce-scatter",
     .identifier = "reduce_scatter",
     .reduces = true,
     .operandHasBlocks = true,
     .inPlans = true},
    {.name = "all-reduce", .identifier = "all_reduce", .reduces = true, .inPlans = true},
    {.name = "broadcast", .identifier = "broadcast", .operandIsOfRoot = true, .inHaloExchanges = true},
    {.name = "gather", .identifier = "gather", .resultHasBlocks = true, .resultIsOfRoot = true},
    {.name = "scatter", .identifier = "scatter", .operandHasBlocks = true, .operandIsOfRoot = true},
    {.name = "reduce", .identifier = "reduce", .reduces = true, .resultIsOfRoot = true},
    {.name = "send", .identifier = "send"},
    {.name = "receive", .identifier = "receive"},
    {.name = "barrier", .identifier = "barrier"},
    {.name = "exchange", .identifier = "exchange"},
    {.name = "close", .identifier = "close"},
}};

[[nodiscard]] constexpr const CollectiveTraits& traits(Collective collective) {
  return kCollectiveTraits[static_cast<size_t>(collective)];
}
[[nodiscard]] constexpr std::string_view name(Collective collective) { return traits(collective).name; }
[[nodiscard]] constexpr std::string_view identifier(Collective collective) { return traits(collective).identifier; }
[[nodiscard]] constexpr bool reduces(Collective collective) { return traits(collective).reduces; }
[[nodiscard]] std::optional<Collective> parseCollective(std::string_view identifier);

// The identifiers of the collectives with a property, for messages: "transfer, broadcast".
[[nodiscard]] std::string identifiersOf(const std::function<bool(const CollectiveTraits&)>& property);

// How the blocks of a call are given.
enum class BlockForm : uint8_t {
  Equal,        // all ranks have blocks of one size
  Counted,      // each rank has a count: all-gather-v
  Permutation,  // of a transfer: each rank receives the whole part of another rank
};
inline constexpr std::string_view kPermute = "permute";  // the name of a permutation, in messages and in programs
// The name of a call in messages: all-gather, all-gather-v, permute.
[[nodiscard]] std::string callName(Collective collective, BlockForm form);

[[noreturn]] void throwAmountUnknown(Collective collective);

// The amount that one of `ranks` ranks receives from the others: a number, which is rounded down if integral, or an IntExpr. `in` and `out`
// are the sizes of its operand and result, which are the same on all ranks. For a collective with a root it is the mean over the ranks.
// InternalError for transfers, messages and exchanges: these two sizes do not determine their amount.
template <class Amount>
[[nodiscard]] Amount amountReceived(Collective collective, const Amount& in, const Amount& out, const Amount& ranks) {
  const Amount others = ranks - 1;
  // amount * others / ranks; of 64 bits without the product, which may have more
  const auto shared = [&](const Amount& amount) -> Amount {
    if constexpr (std::is_integral_v<Amount>) {
      return amount / ranks * others + amount % ranks * others / ranks;
    } else if constexpr (std::is_floating_point_v<Amount>) {
      return amount * others / ranks;
    } else {
      return floorDiv(amount * others, ranks);
    }
  };
  switch (collective) {
    case Collective::AllGather:
      return in * others;
    case Collective::ReduceScatter:
      return out * others;
    case Collective::AllReduce:
      return shared(in * 2);
    case Collective::AllToAll:
    case Collective::Broadcast:
    case Collective::Gather:
    case Collective::Reduce:
      return shared(in);
    case Collective::Scatter:
      return shared(out);
    case Collective::Local:
    case Collective::Barrier:
    case Collective::Close:
      return 0;
    case Collective::Transfer:
    case Collective::Send:
    case Collective::Recv:
    case Collective::Exchange:
      break;
  }
  throwAmountUnknown(collective);
}

// The elements of one rank in an all-reduce of `count` elements in which it combines `own` of them: it receives the operands of all others
// for its own elements, and the combined rest.
[[nodiscard]] constexpr int64_t receivedInAllReduce(int64_t count, int64_t own, int64_t ranks) {
  return (ranks - 1) * own + (count - own);
}

}  // namespace meshfuse
