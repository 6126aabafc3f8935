// The collectives among ranks on several hosts, as messages between two ranks; but for all-reduces, see network_all_reduce.cpp.
#include <cstring>

#include "multidevice/transport/host/network_communicator.h"
#include "multidevice/transport/pull.h"
#include "multidevice/transport/reduce.h"

namespace meshfuse {

void NetworkCommunicator::allGather(const Team& t, const void* in, void* out, int64_t count, DataType type) {
  gather(t, {.kind = CallKind::AllGather, .type = type, .count = count}, blocksOf(t, count), in, out);
}

void NetworkCommunicator::allGatherV(const Team& t, const void* in, void* out, std::span<const int64_t> counts,
                                     DataType type) {
  gather(t, raggedRecord({.kind = CallKind::AllGather, .type = type}, t, counts), blocksOf(t, 0, counts), in, out);
}

void NetworkCommunicator::gather(const Team& t, CallRecord record, const Blocks& blocks, const void* in, void* out) {
  const int position = start(t, record, record.ragged || (in != nullptr && out != nullptr));
  const int64_t bytes = dataTypeSize(record.type);
  const int64_t own = blocks.of(position) * bytes;
  if (algorithmFor(record.kind, blocks.largest() * bytes, t.ranks.size()) == Algorithm::Ring) {
    swapParcels(t, record, std::vector<Parcel>(t.ranks.size()));
    copyBytes(bytesOf(out) + blocks.begin(position) * bytes, bytesOf(in), own);
    passAround(t, position, blocks, bytes, bytesOf(out));
    finish(record, Algorithm::Ring, blocks.total() * bytes - own);
    return;
  }
  std::vector<Parcel> parcels;
  for (int64_t i = 0; i < blocks.number; ++i) {
    parcels.push_back({bytesOf(in), own, bytesOf(out) + blocks.begin(i) * bytes, blocks.of(i) * bytes});
  }
  swapParcels(t, record, parcels);
  copyBytes(bytesOf(out) + blocks.begin(position) * bytes, bytesOf(in), own);
  finish(record, Algorithm::Pairs, blocks.total() * bytes - own);
}

// In step k each rank passes on the block that came in step k - 1, of the rank k places before it.
void NetworkCommunicator::passAround(const Team& t, int position, const Blocks& blocks, int64_t elementBytes,
                                     std::byte* out, int full) {
  const int64_t n = blocks.number;
  const auto next = static_cast<int>((position + 1) % n);
  for (int64_t step = 0; step + 1 < n; ++step) {
    const int64_t sent = (position + n - step) % n;
    const int64_t received = (sent + n - 1) % n;
    pass({.to = next == full ? -1 : t.ranks[static_cast<size_t>(next)],
          .out = out + blocks.begin(sent) * elementBytes,
          .outBytes = blocks.of(sent) * elementBytes,
          .from = position == full ? -1 : t.ranks[static_cast<size_t>((position + n - 1) % n)],
          .in = out + blocks.begin(received) * elementBytes,
          .inBytes = blocks.of(received) * elementBytes});
  }
}

void NetworkCommunicator::allToAll(const Team& t, const void* in, void* out, int64_t count, DataType type) {
  const Blocks blocks = blocksOf(t, count);
  trade(t, {.kind = CallKind::AllToAll, .type = type, .count = count}, blocks, blocks, in, out);
}

void NetworkCommunicator::allToAllV(const Team& t, const void* in, void* out, std::span<const int64_t> sent,
                                    std::span<const int64_t> received, DataType type) {
  const int position = positionInTeam(t, rank_, size_, CallKind::AllToAll);
  trade(t, pairwiseRecord(type, t, position, sent, received), blocksOf(t, 0, sent), blocksOf(t, 0, received), in, out);
}

void NetworkCommunicator::trade(const Team& t, CallRecord record, const Blocks& sent, const Blocks& received,
                                const void* in, void* out) {
  const int position = start(t, record, record.ragged || (in != nullptr && out != nullptr));
  const int64_t bytes = dataTypeSize(record.type);
  std::vector<Parcel> parcels;
  for (int64_t i = 0; i < sent.number; ++i) {
    parcels.push_back({bytesOf(in) + sent.begin(i) * bytes, sent.of(i) * bytes,
                       bytesOf(out) + received.begin(i) * bytes, received.of(i) * bytes});
  }
  swapParcels(t, record, parcels);
  const Parcel& own = parcels[static_cast<size_t>(position)];
  copyBytes(own.in, own.out, own.outBytes);
  finish(record, Algorithm::Pairs, received.total() * bytes - own.inBytes);
}

void NetworkCommunicator::reduceScatter(const Team& t, const void* in, void* out, int64_t count, DataType type,
                                        ReduceOp op) {
  reduceBlocks(t, {.kind = CallKind::ReduceScatter, .type = type, .op = op, .count = count}, blocksOf(t, count), in,
               out);
}

void NetworkCommunicator::reduceScatterV(const Team& t, const void* in, void* out, std::span<const int64_t> counts,
                                         DataType type, ReduceOp op) {
  reduceBlocks(t, raggedRecord({.kind = CallKind::ReduceScatter, .type = type, .op = op}, t, counts),
               blocksOf(t, 0, counts), in, out);
}

void NetworkCommunicator::reduceBlocks(const Team& t, CallRecord record, const Blocks& blocks, const void* in,
                                       void* out) {
  const int position = start(t, record, record.ragged || (in != nullptr && out != nullptr));
  const int64_t bytes = dataTypeSize(record.type);
  const int64_t own = blocks.of(position) * bytes;
  std::vector<std::byte> gathered(static_cast<size_t>(blocks.number * own));
  std::vector<Parcel> parcels;
  std::vector<const void*> inputs;
  for (int64_t i = 0; i < blocks.number; ++i) {
    std::byte* theirs = gathered.data() + i * own;
    parcels.push_back({bytesOf(in) + blocks.begin(i) * bytes, blocks.of(i) * bytes, theirs, own});
    inputs.push_back(i == position ? bytesOf(in) + blocks.begin(i) * bytes : theirs);
  }
  swapParcels(t, record, parcels);
  if (own > 0) {
    reduceInRankOrder(inputs, out, blocks.of(position), record.type, record.op);
  }
  finish(record, Algorithm::Pairs, (blocks.number - 1) * own);
}

void NetworkCommunicator::broadcast(const Team& t, void* buffer, int64_t count, DataType type, int root) {
  CallRecord record{.kind = CallKind::Broadcast, .type = type, .root = root, .count = count};
  const int position = start(t, record, buffer != nullptr);
  const int64_t bytes = count * dataTypeSize(type);
  std::vector<Parcel> parcels(t.ranks.size());
  const Algorithm algorithm = algorithmFor(record.kind, bytes, t.ranks.size());
  if (algorithm == Algorithm::Tree || algorithm == Algorithm::Scatter) {
    swapParcels(t, record, parcels);
    if (algorithm == Algorithm::Tree) {
      passDown(t, position, root, bytesOf(buffer), bytes);
    } else {
      passParts(t, position, root, bytesOf(buffer), count, dataTypeSize(type));
    }
    finish(record, algorithm, position == root ? 0 : bytes);
    return;
  }
  for (size_t i = 0; i < parcels.size(); ++i) {
    if (position == root) {
      parcels[i].out = bytesOf(buffer);
      parcels[i].outBytes = bytes;
    } else if (static_cast<int>(i) == root) {
      parcels[i].in = bytesOf(buffer);
      parcels[i].inBytes = bytes;
    }
  }
  swapParcels(t, record, parcels);
  finish(record, Algorithm::Pairs, position == root ? 0 : bytes);
}

// Places are counted from the root. Who is at place p gets it from where the lowest bit of p is cleared, and passes it on to the
// places p + 1, p + 2, p + 4 ... below that bit, the farthest first.
void NetworkCommunicator::passDown(const Team& t, int position, int root, std::byte* buffer, int64_t bytes) {
  const int n = static_cast<int>(t.ranks.size());
  const int place = (position - root + n) % n;
  auto rankAt = [&](int p) { return t.ranks[static_cast<size_t>((p + root) % n)]; };
  int bit = 1;
  while (bit < n && (place & bit) == 0) {
    bit <<= 1;
  }
  if (place != 0) {
    pass({.from = rankAt(place - bit), .in = buffer, .inBytes = bytes});
  }
  for (bit >>= 1; bit > 0; bit >>= 1) {
    if (place + bit < n) {
      pass({.to = rankAt(place + bit), .out = buffer, .outBytes = bytes});
    }
  }
}

// The root sends a part to each rank, and all pass on what they have: nobody sends more than the whole twice.
void NetworkCommunicator::passParts(const Team& t, int position, int root, std::byte* buffer, int64_t count,
                                    int64_t elementBytes) {
  const auto n = static_cast<int64_t>(t.ranks.size());
  std::vector<int64_t> parts;
  for (int64_t i = 0; i < n; ++i) {
    parts.push_back(partBegin(count, i + 1, n) - partBegin(count, i, n));
  }
  const Blocks blocks = blocksOf(t, 0, parts);
  for (int i = 0; i < static_cast<int>(n); ++i) {
    std::byte* part = buffer + blocks.begin(i) * elementBytes;
    const int64_t bytes = blocks.of(i) * elementBytes;
    if (position == root && i != root) {
      pass({.to = t.ranks[static_cast<size_t>(i)], .out = part, .outBytes = bytes});
    } else if (position == i && i != root) {
      pass({.from = t.ranks[static_cast<size_t>(root)], .in = part, .inBytes = bytes});
    }
  }
  passAround(t, position, blocks, elementBytes, buffer, root);
}

// Where the table leaves it open: a root does not send the same to many, if that is more than goes along with the heads.
Algorithm NetworkCommunicator::algorithmFor(CallKind kind, int64_t bytes, size_t ranks) const {
  const SizeClass size = sizeClass(bytes, HostThresholds{}.slots);
  const Algorithm asked = algorithms_.onNetwork(kind, size);
  if (asked != Algorithm::Default || kind != CallKind::Broadcast || ranks <= 2 || size == SizeClass::Small) {
    return asked;
  }
  return size == SizeClass::Medium ? Algorithm::Tree : Algorithm::Scatter;
}

}  // namespace meshfuse
