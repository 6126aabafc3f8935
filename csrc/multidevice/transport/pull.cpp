#include "multidevice/transport/pull.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/ranges.h"
#include "multidevice/transport/reduce.h"
#include "multidevice/transport/stream_copy.h"

namespace meshfuse {

namespace {

int64_t elementSize(const PullCall& call) { return dataTypeSize(call.type); }
int64_t sizeOf(const PullCall& call) { return std::ssize(call.peers); }

void copyBlock(std::byte* to, const std::byte* from, int64_t bytes) { copyOfBlock(to, from, bytes, bytes); }

// The bytes [begin, end) of the block that is read from a peer, or that it has for this rank.
void fetch(const PullCall& call, const PeerBuffers& peer, std::byte* to, int64_t begin, int64_t end, int64_t whole) {
  if (begin >= end) {
    return;
  }
  if (peer.process < 0) {
    copyOfBlock(to + begin, peer.in + begin, end - begin, whole, call.order);
  } else {
    (*call.readProcess)(peer.process, peer.in + begin, to + begin, end - begin);
  }
}

// Reduces elements [begin, end) of every input into `out`.
void reducePart(const PullCall& call, int64_t begin, int64_t end, std::byte* out) {
  if (begin == end) {
    return;
  }
  std::array<const void*, 32> few;
  std::vector<const void*> many(call.peers.size() > few.size() ? call.peers.size() : 0);
  const std::span<const void*> inputs(many.empty() ? few.data() : many.data(), call.peers.size());
  for (int64_t p = 0; p < std::ssize(inputs); ++p) {
    inputs[p] = call.peers[p].in + begin * elementSize(call);
  }
  reduceInRankOrder(inputs, out, end - begin, call.type, call.op);
}

// Concatenates the blocks of all ranks. Each rank starts at another block, so they do not all read from the same rank at a time. In an
// all-gather whose copies take turns, what one rank has read is still in the last cache when the others read it.
int64_t pullBlocks(const PullCall& call) {
  const int64_t n = sizeOf(call);
  int64_t largest = 0;
  int64_t received = 0;
  int64_t turn = kTurnBytes;
  for (const int64_t p : indices(call.peers)) {
    const PeerBuffers& peer = call.peers[p];
    largest = std::max(largest, peer.bytes);
    received += p != call.position ? peer.bytes : 0;
    turn = peer.process >= 0 ? kTurnBytesOfProcess : turn;
  }
  turn = largest < kFarFrom ? std::max<int64_t>(largest, 1) : turn;
  const bool forward = call.order == CopyOrder::Forward;
  const int64_t turns = (largest + turn - 1) / turn;
  for (int64_t k = 0; k < turns; ++k) {
    const int64_t begin = (forward ? k : turns - 1 - k) * turn;
    for (int64_t i = 0; i < n; ++i) {
      const PeerBuffers& peer = call.peers[(call.position + (forward ? i : n - 1 - i)) % n];
      fetch(call, peer, peer.out, begin, std::min(begin + turn, peer.bytes), peer.bytes);
    }
  }
  return received;
}

// Each rank reduces a part, and reads those of the others.
int64_t pullAllReduce(const PullCall& call) {
  const int64_t n = sizeOf(call);
  auto begin = [&](int64_t i) { return partBegin(call.count, i, n); };
  const int64_t own = begin(call.position);
  const int64_t ownEnd = begin(call.position + 1);
  reducePart(call, own, ownEnd, call.parts + own * elementSize(call));
  (*call.synchronize)();
  for (int64_t d = 0; d < n; ++d) {
    const int64_t p = (call.position + d) % n;
    const int64_t from = begin(p) * elementSize(call);
    copyBlock(call.out + from, call.peers[p].parts + from, begin(p + 1) * elementSize(call) - from);
  }
  return receivedInAllReduce(call.count, ownEnd - own, n) * elementSize(call);
}

int64_t pullFromRoot(const PullCall& call) {
  const PeerBuffers& root = call.peers[call.root];
  const int64_t bytes = call.count * elementSize(call);
  const bool isRoot = call.position == call.root;
  if (!isRoot || root.in != call.out) {  // addresses of another process may be equal by chance
    fetch(call, root, call.out, 0, bytes, bytes);
  }
  return isRoot ? 0 : bytes;
}

}  // namespace

int64_t pull(const PullCall& call) {
  const CollectiveTraits& of = traits(call.kind);
  if (of.resultHasBlocks) {
    return pullBlocks(call);
  }
  if (call.count == 0) {
    return 0;
  }
  return !of.reduces                          ? pullFromRoot(call)
         : call.kind == Collective::AllReduce ? pullAllReduce(call)
                                              : pullReduced(call);
}

int64_t pullReduced(const PullCall& call) {
  reducePart(call, 0, call.count, call.out);
  return (sizeOf(call) - 1) * call.count * elementSize(call);
}

// Piece by piece, so that a piece is still in a cache when it is passed on.
int64_t pushAllReduce(const PullCall& call) {
  constexpr int64_t kPieceBytes = 32 << 10;
  const int64_t n = sizeOf(call);
  const int64_t bytes = elementSize(call);
  const int64_t begin = partBegin(call.count, call.position, n);
  const int64_t end = partBegin(call.count, call.position + 1, n);
  const int64_t piece = kPieceBytes / bytes;
  for (int64_t from = begin; from < end; from += piece) {
    const int64_t to = std::min(from + piece, end);
    (*call.throwIfFailed)();
    std::byte* own = call.out + from * bytes;
    reducePart(call, from, to, own);
    for (int64_t d = 1; d < n; ++d) {
      copyBlock(call.peers[(call.position + d) % n].out + from * bytes, own, (to - from) * bytes);
    }
  }
  return receivedInAllReduce(call.count, end - begin, n) * bytes;
}

}  // namespace meshfuse
