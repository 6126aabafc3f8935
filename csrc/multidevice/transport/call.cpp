#include "multidevice/transport/call.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

uint64_t teamMask(const Team& team) {
  uint64_t mask = 0;
  for (int64_t r : team.ranks) {
    mask |= r < 64 ? uint64_t{1} << r : 0;
  }
  return mask;
}

std::string teamText(const CallRecord& call) { return fmt::format("{{{}}}", fmt::join(ranksIn(call.teamMask), ", ")); }

bool carriesData(Collective kind) {
  return kind != Collective::Barrier && kind != Collective::Exchange && kind != Collective::Close;
}

}  // namespace

uint64_t teamHash(const Team& team) {
  return std::accumulate(team.ranks.begin(), team.ranks.end(), uint64_t{team.ranks.size()}, hashCombine);
}

CallRecord stamped(CallRecord call, const Team& team, uint64_t program) {
  call.teamHash = teamHash(team);
  call.teamMask = teamMask(team);
  call.program = shortHash(program);
  return call;
}

std::vector<int64_t> firstRanks(int64_t size) { return mapped(std::views::iota(int64_t{0}, size), std::identity()); }

std::vector<int64_t> ranksIn(uint64_t teamMask) {
  return filtered(std::views::iota(int64_t{0}, 64), [&](int64_t r) { return (teamMask >> r & 1) != 0; });
}

std::string describe(const CallRecord& call) {
  if (call.kind == Collective::Send) {
    return fmt::format("a group of {} sends and receives", call.count);
  }
  std::string text = callName(call.kind, call.ragged ? BlockForm::Counted : BlockForm::Equal);
  if (reduces(call.kind)) {
    text += fmt::format("({})", name(call.op));
  }
  if (carriesData(call.kind)) {
    text += isPairwise(call) ? fmt::format(" of {}", name(call.type))
                             : fmt::format(" of {} {}", call.count, name(call.type));
  }
  if (call.root >= 0) {
    text += fmt::format(" {} position {}", traits(call.kind).resultIsOfRoot ? "to" : "from", call.root);
  }
  return text + " in team " + teamText(call);
}

std::string describeRank(int64_t rank, int64_t size, int64_t step, std::string_view what) {
  const std::string text = fmt::format("[rank {}/{}]", rank, size);
  if (step >= 0) {
    return text + fmt::format(" at step {} ({})", step, what);
  }
  return what.empty() ? text : text + fmt::format(" ({})", what);
}

std::string difference(int64_t rankA, const CallRecord& a, int64_t rankB, const CallRecord& b) {
  auto say = [&](std::string_view what, const auto& x, const auto& y) {
    return fmt::format("the {} differ: rank {} has {}, rank {} has {}", what, rankA, x, rankB, y);
  };
  if (a == b) {
    return {};
  }
  if (a.kind != b.kind || a.ragged != b.ragged) {
    return fmt::format("the calls differ: rank {} calls {}, rank {} calls {}", rankA, describe(a), rankB, describe(b));
  }
  if (a.teamMask != b.teamMask) {
    return say("teams", teamText(a), teamText(b));
  }
  if (a.teamHash != b.teamHash) {
    return fmt::format("ranks {} and {} list the ranks of team {} in different orders", rankA, rankB, teamText(a));
  }
  if (a.type != b.type) {
    return say("types", name(a.type), name(b.type));
  }
  if (a.count != b.count) {
    return say("counts", a.count, b.count);
  }
  if (a.countHash != b.countHash) {
    return fmt::format("ranks {} and {} give different counts by rank, of {} elements together", rankA, rankB, a.count);
  }
  if (a.op != b.op) {
    return say("operations", name(a.op), name(b.op));
  }
  if (a.root != b.root) {
    return say("roots", a.root, b.root);
  }
  return fmt::format("the programs differ: ranks {} and {} run different fusions, sizes or steps", rankA, rankB);
}

int64_t Blocks::begin(int64_t block) const {
  return sizes.empty() ? block * size : std::accumulate(sizes.begin(), sizes.begin() + block, int64_t{0});
}

int64_t Blocks::largest() const { return sizes.empty() ? size : *std::max_element(sizes.begin(), sizes.end()); }

int64_t Blocks::within(int64_t block, int64_t from, int64_t elements) const {
  return std::clamp<int64_t>(of(block) - from, 0, elements);
}

int64_t Blocks::beginWithin(int64_t block, int64_t from, int64_t elements) const {
  return sumOf(std::views::iota(int64_t{0}, block), [&](int64_t b) { return within(b, from, elements); });
}

std::string pairDifference(int64_t sender, int64_t sent, int64_t receiver, int64_t expected) {
  return sent == expected ? ""
                          : fmt::format("rank {} sends rank {} {} elements, rank {} expects {}", sender, receiver, sent,
                                        receiver, expected);
}

int64_t positionInTeam(const Team& team, int64_t rank, int64_t size, Collective kind) {
  const std::vector<int64_t>& ranks = team.ranks;
  for (const int64_t i : indices(ranks)) {
    check(ranks[i] >= 0 && ranks[i] < size, "[{}] team names rank {}, expected ranks 0 to {} of the world", name(kind),
          ranks[i], size - 1);
    check(std::find(ranks.begin(), ranks.begin() + i, ranks[i]) == ranks.begin() + i,
          "[{}] team contains rank {} twice; list each rank once", name(kind), ranks[i]);
  }
  const int64_t position = positionIn(ranks, rank);
  check(position < std::ssize(ranks),
        "[{}] rank {} is not in the team of {} ranks of its call; only members make the call", name(kind), rank,
        ranks.size());
  return position;
}

void checkHasFailed(bool failed) {
  check(failed, "[shrink] no rank of this world has failed; call abort() first to exclude ranks");
}

void checkTransfers(std::span<const Communicator::Transfer> transfers, int64_t size) {
  for (const Communicator::Transfer& t : transfers) {
    check(t.peer >= 0 && t.peer < size, "[transfer] peer is rank {}, expected a rank from 0 to {} of the world", t.peer,
          size - 1);
    check(t.bytes >= 0, "[transfer] {} bytes to or from rank {}, expected 0 or more", t.bytes, t.peer);
    check(t.data != nullptr || t.bytes == 0,
          "[transfer] the buffer is null, expected one for {} bytes to or from rank {}", t.bytes, t.peer);
  }
}

void moveWithinRank(std::span<const Communicator::Transfer> transfers, int64_t rank) {
  using Direction = Communicator::Transfer::Direction;
  std::vector<const Communicator::Transfer*> sends;
  std::vector<const Communicator::Transfer*> receives;
  for (const Communicator::Transfer& t : transfers) {
    if (t.peer == rank) {
      (t.direction == Direction::Send ? sends : receives).push_back(&t);
    }
  }
  check(sends.size() == receives.size(),
        "[transfer] rank {} posts {} sends to itself and {} receives; post both in one group", rank, sends.size(),
        receives.size());
  for (const int64_t i : indices(sends)) {
    check(sends[i]->bytes == receives[i]->bytes,
          "[transfer] rank {} sends itself {} bytes and receives {}; post both with one size", rank, sends[i]->bytes,
          receives[i]->bytes);
    moveBytes(receives[i]->data, sends[i]->data, sends[i]->bytes);
  }
}

}  // namespace meshfuse
