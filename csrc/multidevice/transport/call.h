// One call of a communicator. All ranks of a team must make the same call; difference() compares the calls of two ranks.
//
// A CallRecord is plain data: ranks that are processes keep it in shared memory and compare it bit by bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

constexpr uint32_t shortHash(uint64_t hash) { return static_cast<uint32_t>(hash ^ hash >> 32); }

struct CallRecord {
  Collective kind = Collective::Barrier;
  DataType type = DataType::Float;
  ReduceOp op = ReduceOp::Sum;
  bool ragged = false;  // a count for each rank
  int32_t root = -1;    // position in the team; -1 where there is none
  int64_t count =
      0;  // elements, as in the call's arguments; the sum over all ranks for a ragged call, 0 for an all-to-all-v
  uint32_t countHash = 0;  // of the counts of a ragged call, if they are the same on all ranks
  uint32_t program = 0;    // shortHash of Communicator::program()
  uint64_t teamHash = 0;   // of the ranks in order
  uint64_t teamMask = 0;   // bit r: rank r takes part; ranks from 64 on are left out

  friend bool operator==(const CallRecord&, const CallRecord&) = default;
};

// True for an all-to-all-v: every pair of ranks has its own count, which only these two ranks compare.
[[nodiscard]] constexpr bool isPairwise(const CallRecord& call) {
  return call.ragged && traits(call.kind).operandHasBlocks && traits(call.kind).resultHasBlocks;
}

// The blocks of a call's elements, one for each rank of its team: all of the same size, or of given sizes.
struct Blocks {
  int64_t number = 1;
  int64_t size = 0;
  std::span<const int64_t> sizes = {};  // empty: all blocks have `size` elements

  int64_t of(int64_t block) const { return sizes.empty() ? size : sizes[block]; }
  int64_t begin(int64_t block) const;
  int64_t total() const { return begin(number); }
  int64_t largest() const;
  // The number of elements of a block whose indices within the block are in [from, from + elements). beginWithin: the sum of these numbers
  // over the blocks before this one.
  int64_t within(int64_t block, int64_t from, int64_t elements) const;
  int64_t beginWithin(int64_t block, int64_t from, int64_t elements) const;
};

// A collective as one rank of its team calls it.
struct CollectiveCall {
  const Team& team;
  int64_t position;  // of this rank in the team
  CallRecord record;
  Blocks operand;  // one block, or one for each rank
  Blocks result;
  const std::byte* in;
  std::byte* out;

  const CollectiveTraits& traits() const { return meshfuse::traits(record.kind); }
  int64_t elementBytes() const { return dataTypeSize(record.type); }
  int64_t ranks() const { return std::ssize(team.ranks); }
  // gives(): peers read data of this rank. gets(): this rank receives a result.
  bool gives() const { return gives(position); }
  bool gives(int64_t ofPosition) const { return !traits().operandIsOfRoot || record.root == ofPosition; }
  bool gets() const { return gets(position); }
  bool gets(int64_t ofPosition) const { return !traits().resultIsOfRoot || record.root == ofPosition; }
};

// `rank 1 sends rank 0 5 elements, rank 0 expects 6`; empty if the counts are equal.
[[nodiscard]] std::string pairDifference(int64_t sender, int64_t sent, int64_t receiver, int64_t expected);

// A hash that depends on the order of ranks; 0 without a team.
[[nodiscard]] uint64_t teamHash(const Team& team);
// The record of a call with the hash of its team and its program. Cheap, because every call needs it.
[[nodiscard]] CallRecord stamped(CallRecord call, const Team& team, uint64_t program);

// The ranks 0, 1, ... of a world of `size`.
[[nodiscard]] std::vector<int64_t> firstRanks(int64_t size);
// The ranks of a CallRecord::teamMask, ascending.
[[nodiscard]] std::vector<int64_t> ranksIn(uint64_t teamMask);
// `all-reduce(sum) of 1024 Float in team {0, 1}`; of Send: `a group of 3 sends and receives`.
[[nodiscard]] std::string describe(const CallRecord& call);
// `[rank 1/4] at step 12 (all-reduce of T7)`; a step below 0 is not named.
[[nodiscard]] std::string describeRank(int64_t rank, int64_t size, int64_t step, std::string_view what);
// `the counts differ: rank 0 has 64, rank 1 has 65`; both calls in full if the kinds differ. Empty if they are equal.
[[nodiscard]] std::string difference(int64_t rankA, const CallRecord& a, int64_t rankB, const CallRecord& b);

// Position of `rank` in the team; UserError if the team is empty, repeats a rank, names one outside 0..size-1 or does not
// hold `rank`.
[[nodiscard]] int64_t positionInTeam(const Team& team, int64_t rank, int64_t size, Collective kind);

// UserError unless the group has failed: a rank may only then call shrink().
void checkHasFailed(bool failed);

// Copies bytes to memory that may be the same or overlap; addresses of no bytes may be null.
inline void moveBytes(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) {
    std::memmove(to, from, bytes);
  }
}
// Executes the sends of a rank to itself: the i-th send goes to the i-th receive. UserError if they do not pair up.
void moveWithinRank(std::span<const Communicator::Transfer> transfers, int64_t rank);
void checkTransfers(std::span<const Communicator::Transfer> transfers, int64_t size);

}  // namespace meshfuse
