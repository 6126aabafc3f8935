// Send and receive: a stream of chunks for each pair and direction. All transfers of a group advance in turns, each as far as it
// can, so their order does not matter.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/host/host_communicator.h"

namespace meshfuse {

// A message in the heap is announced by one empty chunk and read in place; any other message is cut into chunks.
struct HostCommunicator::SendState {
  const Transfer* transfer;
  int64_t heapOffset;
  int64_t sent = 0;
  bool announced = false;
  uint32_t lastChunk = 0;  // the receiver's count of chunks once the message is complete
  bool done = false;
};

struct HostCommunicator::RecvState {
  const Transfer* transfer;
  int64_t received = 0;
  bool done = false;
};

bool HostCommunicator::advance(SendState& send, int64_t stream) {
  const Transfer& t = *send.transfer;
  PeerState& peer = peers_[t.peer];
  ChannelOut& channel = own().channelTo(t.peer);
  const std::atomic<uint32_t>& taken = of(t.peer).channelFrom(rank()).taken;
  const bool direct = send.heapOffset >= 0;
  if (direct && send.announced) {
    send.done = static_cast<int32_t>(taken.load(std::memory_order_acquire) - send.lastChunk) >= 0;
    return send.done;
  }
  bool moved = false;
  while (peer.posted - taken.load(std::memory_order_acquire) < kChunks) {
    const uint32_t which = peer.posted % kChunks;
    channel.heads[which] = {.messageBytes = t.bytes, .heapOffset = send.heapOffset, .stream = stream};
    if (!direct) {
      const int64_t bytes = std::min<int64_t>(t.bytes - send.sent, kChunkBytes);
      moveBytes(own().chunk(t.peer, which), static_cast<const std::byte*>(t.data) + send.sent, bytes);
      send.sent += bytes;
    }
    channel.posted.store(++peer.posted, std::memory_order_seq_cst);
    group_.ring(t.peer);
    moved = true;
    send.announced = direct;
    send.lastChunk = peer.posted;
    send.done = !direct && send.sent == t.bytes;
    if (send.announced || send.done) {
      break;
    }
  }
  return moved;
}

bool HostCommunicator::advance(RecvState& receive, int64_t stream) {
  const Transfer& t = *receive.transfer;
  PeerState& peer = peers_[t.peer];
  const ChannelOut& channel = of(t.peer).channelTo(rank());
  bool moved = false;
  while (!receive.done && channel.posted.load(std::memory_order_acquire) != peer.taken) {
    const uint32_t which = peer.taken % kChunks;
    const ChunkHead head = channel.heads[which];
    if (head.stream != stream) [[unlikely]] {
      checkProgramOf(t.peer, {.kind = Collective::Send, .program = static_cast<uint32_t>(head.stream >> 8)});
      group_.fail(fmt::format("[host] ranks {} and {} disagree about the order of a send and an all-to-all-v; {}, {}",
                              t.peer, rank(), group_.place(t.peer), group_.place(rank())));
    }
    if (head.messageBytes != t.bytes) [[unlikely]] {
      group_.fail(fmt::format("[host] ranks {} and {} disagree: rank {} sends {} bytes, rank {} receives {}; {}, {}",
                              t.peer, rank(), t.peer, head.messageBytes, rank(), t.bytes, group_.place(t.peer),
                              group_.place(rank())));
    }
    auto* const to = static_cast<std::byte*>(t.data) + receive.received;
    const bool direct = head.heapOffset >= 0;
    const int64_t bytes = direct ? t.bytes : std::min<int64_t>(t.bytes - receive.received, kChunkBytes);
    moveBytes(to, direct ? group_.heapOf(t.peer) + head.heapOffset : of(t.peer).chunk(rank(), which), bytes);
    if (direct) {
      group_.checkReadInPlace();
    }
    receive.received += bytes;
    receive.done = receive.received == t.bytes;
    own().channelFrom(t.peer).taken.store(++peer.taken, std::memory_order_seq_cst);
    group_.ring(t.peer);
    moved = true;
  }
  return moved;
}

void HostCommunicator::checkProgramOf(int64_t peer, const CallRecord& theirs, std::string_view message) {
  const CallRecord own{.kind = Collective::Send, .program = shortHash(program())};
  if (std::optional<GroupFailure> why = disagreement(programs().get(), {rank(), own, {}, group_.place(rank())},
                                                     {peer, theirs, message, group_.place(peer)})) {
    group_.fail(*why);
  }
}

// A rank sends its messages before it begins the next collective, so a missing message was never sent.
void HostCommunicator::checkComes(const RecvState& receive) {
  const int64_t p = receive.transfer->peer;
  if (!of(p).isThere()) {
    return;
  }
  const PeerState& peer = peers_[p];
  const PairLine& next = of(p).linesTo(rank()).ofCall[(peer.calls + 1) % 2];
  if (static_cast<int32_t>(next.step.load(std::memory_order_acquire) - (peer.steps + 1)) < 0 ||
      of(p).channelTo(rank()).posted.load(std::memory_order_acquire) != peer.taken) {
    return;
  }
  checkProgramOf(p, next.call, messageIn(p, next));
}

void HostCommunicator::transfer(std::span<const Transfer> transfers) {
  checkTransfers(transfers, size());
  checkWithinLane(transfers);
  moveWithinRank(transfers, rank());
  const CallRecord record{.kind = Collective::Send, .count = std::ssize(transfers), .program = shortHash(program())};
  recorded(record, [&](FlightEvent&) { moveMessages(transfers, streamNumber(Stream::Transfer)); });
  count(transfers);
}

// The counts of every pair are compared before anything moves; then messages are sent and received as in a group of transfers.
int64_t HostCommunicator::tradePairwise(const HostCall& c) {
  const Team& t = c.team;
  const Counts sent = c.operand.sizes;
  const Counts received = c.result.sizes;
  announce(t, c.record, kNowhere, kNowhere, sent);
  meet(t, c.record);
  const int64_t elementBytes = c.elementBytes();
  std::vector<Transfer> messages;
  const std::byte* from = c.in;
  std::byte* to = c.out;
  int64_t bytes = 0;
  for (const int64_t i : indices(t.ranks)) {
    const int64_t p = t.ranks[i];
    const int64_t theirs = p == rank() ? sent[i] : lineFrom(p).parts;
    if (const std::string text = pairDifference(p, theirs, rank(), received[i]); !text.empty()) {
      group_.fail(fmt::format("[host] ranks {} and {} disagree: {}; {}, {}", p, rank(), text, group_.place(p),
                              group_.place(rank())));
    }
    if (p == rank()) {
      moveBytes(to, from, sent[i] * elementBytes);
    } else {
      // A send only reads its buffer.
      auto* const data = const_cast<std::byte*>(from);
      if (sent[i] > 0) {
        messages.push_back({Transfer::Direction::Send, p, data, sent[i] * elementBytes});
      }
      if (received[i] > 0) {
        messages.push_back({Transfer::Direction::Recv, p, to, received[i] * elementBytes});
      }
      bytes += received[i] * elementBytes;
    }
    from += sent[i] * elementBytes;
    to += received[i] * elementBytes;
  }
  finish(t);
  moveMessages(messages, streamNumber(Stream::Pairwise));
  return bytes;
}

void HostCommunicator::moveMessages(std::span<const Transfer> transfers, int64_t stream) {
  std::vector<SendState> sends;
  std::vector<RecvState> receives;
  for (const Transfer& t : transfers) {
    if (t.peer != rank() && t.direction == Transfer::Direction::Recv) {
      receives.push_back({.transfer = &t});
    } else if (t.peer != rank()) {
      // Copying a short message is faster than waiting for the receiver.
      const bool isShort = t.bytes <= options_.thresholds.slots;
      sends.push_back({.transfer = &t, .heapOffset = isShort ? -1 : group_.heap().offsetOf(t.data, t.bytes)});
    }
  }
  // Messages of a pair keep their order: only the first unfinished one may move. After an announcement the next one may follow. A peer that
  // has not opened this lane yet does not delay the messages of others: it may wait for one of these first.
  std::vector<uint8_t> blocked(peers_.size());
  auto mayMove = [&](int64_t peer) { return blocked[peer] == 0 && group_.hasOpened(peer); };
  auto advanceEach = [&](auto& states, const auto& letsNextMove) {
    bool moved = false;
    std::ranges::fill(blocked, uint8_t{0});
    for (auto& s : states) {
      if (mayMove(s.transfer->peer)) {
        moved = advance(s, stream) || moved;
        blocked[s.transfer->peer] = letsNextMove(s) ? 0 : 1;
      }
    }
    std::erase_if(states, [](const auto& s) { return s.done; });
    return moved;
  };
  auto advanceAll = [&] {
    const bool sent = advanceEach(sends, [](const SendState& s) { return s.done || s.announced; });
    const bool received = advanceEach(receives, [](const RecvState& r) { return r.done; });
    if (!sent && !received && programs() != nullptr) {
      std::ranges::for_each(receives, [&](const RecvState& r) { checkComes(r); });
    }
    return sent || received || (sends.empty() && receives.empty());
  };
  bool moved = false;  // a wait calls this several times: progress of one call must not be lost in the next
  const std::function<bool()> moves = [&] { return moved = advanceAll() || moved; };
  while (!sends.empty() || !receives.empty()) {
    moved = false;
    if (moves()) {
      continue;
    }
    const auto peerOf = [](const auto& state) { return state.transfer->peer; };
    std::vector<int64_t> pending = mapped(sends, peerOf);
    append(pending, mapped(receives, peerOf));
    std::ranges::sort(pending);
    pending.erase(std::ranges::unique(pending).begin(), pending.end());
    if (sends.size() + receives.size() > 1) {
      group_.awaitAny(moves, pending);
    } else if (!of(pending[0]).isThere()) {
      group_.awaitAny([&] { return group_.hasOpened(pending[0]); }, pending);  // the wait for its word follows
    } else if (receives.empty()) {
      const SendState& s = sends[0];
      const uint32_t takenThen = s.announced ? s.lastChunk : peers_[pending[0]].posted - kChunks + 1;
      group_.awaitAny(moves, pending, &of(pending[0]).channelFrom(rank()).taken, takenThen);
    } else {
      const uint32_t postedThen = peers_[pending[0]].taken + 1;
      group_.awaitAny(moves, pending, &of(pending[0]).channelTo(rank()).posted, postedThen);
    }
  }
}

}  // namespace meshfuse
