// Collective: what the ranks of a team do together. A step of a plan, an op of a rank's program and a call of a communicator name it
// with this one type; counts, peers and roots are data beside it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace meshfuse {

// Plans prefer, at equal cost, the one that stands first.
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
inline constexpr int kCollectives = 15;

// What transports, programs and plans know of a collective. Without blocks an operand goes to every rank whole, and a result is whole.
struct CollectiveTraits {
  std::string_view name;          // messages, traces, options
  std::string_view identifier;    // programs as text
  bool reduces = false;           // elements of different ranks are combined
  bool operandHasBlocks = false;  // one for each rank of the team
  bool resultHasBlocks = false;   // one from each rank of the team
  bool operandIsOfRoot = false;   // the other ranks have none
  bool resultIsOfRoot = false;    // the other ranks get none
};

inline constexpr std::array<CollectiveTraits, kCollectives> kCollectiveTraits = {{
    {.name = "local", .identifier = "local"},
    {.name = "transfer", .identifier = "transfer"},
    {.name = "all-to-all", .identifier = "all_to_all", .operandHasBlocks = true, .resultHasBlocks = true},
    {.name = "all-gather", .identifier = "all_gather", .resultHasBlocks = true},
    {.name = "reduce-scatter", .identifier = "reduce_scatter", .reduces = true, .operandHasBlocks = true},
    {.name = "all-reduce", .identifier = "all_reduce", .reduces = true},
    {.name = "broadcast", .identifier = "broadcast", .operandIsOfRoot = true},
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

// What one of `ranks` ranks receives from the others, in the unit of `in` and `out`: the sizes of its operand and of its result, where
// these are the same on all ranks. With a root the mean of the ranks; a transfer brings what its blocks say.
[[nodiscard]] double amountReceived(Collective collective, double in, double out, double ranks);

}  // namespace meshfuse
