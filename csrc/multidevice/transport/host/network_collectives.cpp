// The collectives among ranks on several hosts, as messages between two ranks; network_all_reduce.cpp has the all-reduces.
#include "base/ranges.h"
#include "multidevice/transport/host/network_communicator.h"
#include "multidevice/transport/pull.h"
#include "multidevice/transport/reduce.h"

namespace meshfuse {

void NetworkCommunicator::run(const CollectiveCall& given) {
  checkWithinLane(given.team, given.record.kind);
  CollectiveCall call = given;
  call.record = stamped(given.record, given.team, program());
  enter(call.record);
  const Algorithm algorithm = algorithmFor(call);
  const int64_t received = carry(call, algorithm);
  event_->way = algorithm;
  leave();
  count(call.record.kind, received);
}

int64_t NetworkCommunicator::carry(const CollectiveCall& call, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::Whole:
    case Algorithm::Parts:
      return reduceByGathering(call, algorithm);
    case Algorithm::Doubling:
      return reduceByDoubling(call);
    case Algorithm::Hierarchical:
      return reduceByHost(call);
    case Algorithm::Ring:
      return call.traits().reduces ? reduceAround(call) : gatherAround(call);
    case Algorithm::Tree:
      return passDown(call);
    case Algorithm::Scatter:
      return passParts(call);
    default:
      return swapBlocks(call);
  }
}

// Every pair of ranks exchanges the blocks that one has and the other needs.
int64_t NetworkCommunicator::swapBlocks(const CollectiveCall& call) {
  const int64_t bytes = call.elementBytes();
  const CollectiveTraits& traits = call.traits();
  const int64_t own = call.result.of(0) * bytes;  // bytes of a result without blocks
  std::vector<std::byte> gathered(traits.reduces && call.gets() ? call.ranks() * own : 0);
  std::vector<Parcel> parcels(call.team.ranks.size());
  for (const int64_t i : indices(parcels)) {
    Parcel& p = parcels[i];
    if (call.gives() && call.gets(i)) {
      const int64_t block = traits.operandHasBlocks ? i : 0;
      p.out = call.in + call.operand.begin(block) * bytes;
      p.outBytes = call.operand.of(block) * bytes;
    }
    if (call.gets() && call.gives(i)) {
      p.in = traits.reduces           ? gathered.data() + i * own
             : traits.resultHasBlocks ? call.out + call.result.begin(i) * bytes
                                      : call.out;
      p.inBytes = traits.resultHasBlocks ? call.result.of(i) * bytes : own;
    }
  }
  swapParcels(call.team, call.record, parcels);
  const Parcel& mine = parcels[call.position];
  if (!traits.reduces) {
    moveBytes(mine.in, mine.out, mine.inBytes);
  } else if (mine.inBytes > 0) {
    const auto inputs = mapped(parcels, [&](const Parcel& p) { return &p == &mine ? mine.out : p.in; });
    reduceInRankOrder(inputs, call.out, call.result.of(0), call.record.type, call.record.op);
  }
  return sumOf(parcels, &Parcel::inBytes) - mine.inBytes;
}

int64_t NetworkCommunicator::gatherAround(const CollectiveCall& call) {
  const int64_t bytes = call.elementBytes();
  const int64_t own = call.result.of(call.position) * bytes;
  swapParcels(call.team, call.record, std::vector<Parcel>(call.team.ranks.size()));
  moveBytes(call.out + call.result.begin(call.position) * bytes, call.in, own);
  passAround(call.team, call.position, call.result, bytes, call.out);
  return call.result.total() * bytes - own;
}

// In step k each rank forwards the block received in step k - 1, which belongs to the rank k positions before it.
void NetworkCommunicator::passAround(const Team& t, int64_t position, const Blocks& blocks, int64_t elementBytes,
                                     std::byte* out, int64_t full) {
  const int64_t n = blocks.number;
  const auto next = (position + 1) % n;
  for (int64_t step = 0; step + 1 < n; ++step) {
    const int64_t sent = (position + n - step) % n;
    const int64_t received = (sent + n - 1) % n;
    pass({.to = next == full ? -1 : t.ranks[next],
          .out = out + blocks.begin(sent) * elementBytes,
          .outBytes = blocks.of(sent) * elementBytes,
          .from = position == full ? -1 : t.ranks[(position + n - 1) % n],
          .in = out + blocks.begin(received) * elementBytes,
          .inBytes = blocks.of(received) * elementBytes});
  }
}

// Positions are counted from the root. Position p receives from p without its lowest bit, and forwards to p + 1, p + 2, p + 4, ...
// below that bit, the farthest first.
int64_t NetworkCommunicator::passDown(const CollectiveCall& call) {
  swapParcels(call.team, call.record, std::vector<Parcel>(call.team.ranks.size()));
  std::byte* const buffer = call.out;
  const int64_t bytes = call.result.total() * call.elementBytes();
  const auto n = call.ranks();
  const int64_t place = (call.position - call.record.root + n) % n;
  auto rankAt = [&](int64_t p) { return call.team.ranks[(p + call.record.root) % n]; };
  int64_t bit = 1;
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
  return place == 0 ? 0 : bytes;
}

std::vector<int64_t> NetworkCommunicator::partsOf(const CollectiveCall& call) {
  const auto begin = [&](int64_t i) { return partBegin(call.record.count, i, call.ranks()); };
  return mapped(indices(call.team.ranks), [&](int64_t i) { return begin(i + 1) - begin(i); });
}

// The root sends a part to each rank, and every rank forwards its part: no rank sends more than twice the tensor.
int64_t NetworkCommunicator::passParts(const CollectiveCall& call) {
  swapParcels(call.team, call.record, std::vector<Parcel>(call.team.ranks.size()));
  const int64_t elementBytes = call.elementBytes();
  const int64_t root = call.record.root;
  const std::vector<int64_t> parts = partsOf(call);
  const Blocks blocks{.number = call.ranks(), .sizes = parts};
  for (int64_t i = 0; i < call.ranks(); ++i) {
    std::byte* part = call.out + blocks.begin(i) * elementBytes;
    const int64_t bytes = blocks.of(i) * elementBytes;
    if (call.position == root && i != root) {
      pass({.to = call.team.ranks[i], .out = part, .outBytes = bytes});
    } else if (call.position == i && i != root) {
      pass({.from = call.team.ranks[root], .in = part, .inBytes = bytes});
    }
  }
  passAround(call.team, call.position, blocks, elementBytes, call.out, root);
  return call.position == root ? 0 : call.record.count * elementBytes;
}

// The chosen algorithm. By default a root does not send to many ranks directly, unless the data fits into the heads of the messages.
Algorithm NetworkCommunicator::algorithmFor(const CollectiveCall& call) const {
  if (call.record.kind == Collective::Barrier || call.record.kind == Collective::Close) {
    return Algorithm::Default;
  }
  if (call.record.kind == Collective::AllReduce) {
    return algorithmOfAllReduce(call);
  }
  const Blocks& blocks = call.traits().operandHasBlocks ? call.operand : call.result;
  const SizeClass size = sizeClass(blocks.largest() * call.elementBytes(), HostThresholds{}.slots);
  const Algorithm asked = algorithms_.onNetwork(call.record.kind, size);
  if (asked != Algorithm::Default) {
    return asked;
  }
  if (call.record.kind != Collective::Broadcast || call.ranks() <= 2 || size == SizeClass::Small) {
    return Algorithm::Pairs;
  }
  return size == SizeClass::Medium ? Algorithm::Tree : Algorithm::Scatter;
}

}  // namespace meshfuse
