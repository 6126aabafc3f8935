// The all-reduces among ranks on several hosts.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/ranges.h"
#include "base/rounding.h"
#include "multidevice/transport/host/network_communicator.h"
#include "multidevice/transport/pull.h"
#include "multidevice/transport/reduce.h"

namespace meshfuse {

namespace {

constexpr int64_t kReduceAll = 16 << 10;  // up to here every rank computes a whole all-reduce
constexpr size_t kManyRanks = 8;          // from more than these on small ones double, where any order will do
constexpr int64_t kLargestSmall = HostThresholds{}.slots;
constexpr int64_t kPieceBytes = 256 << 10;  // of one message between hosts

using Hosts = std::vector<std::vector<int64_t>>;

bool haveSeveralRanksEach(const Hosts& hosts) {
  return hosts.size() > 1 && std::ranges::all_of(hosts, [](const auto& h) { return h.size() > 1; });
}

// Whether the ranks of each host are adjacent in the team, so that the order of hosts is the team order.
bool areInOrder(const Hosts& hosts) { return std::ranges::is_sorted(hosts | std::views::join); }

DataType sumType(const CollectiveCall& call) { return accumulatorType(call.record.type, call.record.op); }

// Adds elements to the sums. `widened`: a buffer for as many accumulators.
void addElements(const std::byte* elements, std::byte* sums, int64_t count, const CollectiveCall& r,
                 std::byte* widened) {
  if (sumType(r) != r.record.type) {
    toAccumulators(elements, r.record.type, r.record.op, widened, count);
    elements = widened;
  }
  const void* both[] = {sums, elements};
  reduceInRankOrder(both, sums, count, sumType(r), r.record.op);
}

}  // namespace

// The requested algorithm if it is possible, else the fastest one. Doubling, in which a rank exchanges with few others, is used only
// on request.
Algorithm NetworkCommunicator::algorithmOfAllReduce(const CollectiveCall& r) const {
  const bool many = r.team.ranks.size() > 1 && r.record.count > 0;
  const bool anyOrder = algorithms_.anyOrder() || !dependsOnOrder(r.record.type);
  auto may = [&](Algorithm a) {
    switch (a) {
      case Algorithm::Default:
        return false;
      case Algorithm::Doubling:
      case Algorithm::Ring:
        return many && anyOrder;
      case Algorithm::Hierarchical:
        return many && (anyOrder || areInOrder(hostsOf(r.team)));
      default:
        return true;
    }
  };
  const int64_t bytes = r.record.count * r.elementBytes();
  const SizeClass size = sizeClass(bytes, kLargestSmall);
  const Algorithm asked = algorithms_.onNetwork(r.record.kind, size);
  if (may(asked)) {
    return asked;
  }
  if (size == SizeClass::Small && r.team.ranks.size() > kManyRanks && algorithms_.anyOrder() && many) {
    return Algorithm::Doubling;
  }
  if (bytes <= kReduceAll) {
    return Algorithm::Whole;
  }
  if (size == SizeClass::Large && haveSeveralRanksEach(hostsOf(r.team)) && may(Algorithm::Hierarchical)) {
    return Algorithm::Hierarchical;
  }
  return may(Algorithm::Ring) ? Algorithm::Ring : Algorithm::Parts;
}

NetworkCommunicator::Hosts NetworkCommunicator::hostsOf(const Team& team) const {
  Hosts hosts;
  std::vector<int64_t> numbers;
  for (int64_t position = 0; position < std::ssize(team.ranks); ++position) {
    const int64_t number = hosts_[team.ranks[position]];
    const int64_t at = positionIn(numbers, number);
    if (at == std::ssize(numbers)) {
      numbers.push_back(number);
      hosts.emplace_back();
    }
    hosts[at].push_back(position);
  }
  return hosts;
}

// Whole: every rank sends its input to every rank. Else every rank reduces a part, then the parts are gathered.
int64_t NetworkCommunicator::reduceByGathering(const CollectiveCall& r, Algorithm algorithm) {
  const bool whole = algorithm == Algorithm::Whole;
  const int64_t n = r.ranks();
  const int64_t count = r.record.count;
  const int64_t bytes = r.elementBytes();
  auto begin = [&](int64_t i) { return whole ? 0 : partBegin(count, i, n); };
  auto end = [&](int64_t i) { return whole ? count : partBegin(count, i + 1, n); };
  const int64_t own = begin(r.position) * bytes;
  const int64_t ownCount = end(r.position) - begin(r.position);
  std::vector<std::byte> gathered(n * ownCount * bytes);
  std::vector<Parcel> parcels;
  std::vector<const void*> inputs;
  for (int64_t i = 0; i < n; ++i) {
    std::byte* theirs = gathered.data() + i * ownCount * bytes;
    parcels.push_back({r.in + begin(i) * bytes, (end(i) - begin(i)) * bytes, theirs, ownCount * bytes});
    inputs.push_back(i == r.position ? r.in + own : theirs);
  }
  swapParcels(r.team, r.record, parcels);
  reduceInRankOrder(inputs, r.out + own, ownCount, r.record.type, r.record.op);
  if (whole) {
    return (n - 1) * ownCount * bytes;
  }
  parcels.clear();
  for (int64_t i = 0; i < n; ++i) {
    parcels.push_back({r.out + own, ownCount * bytes, r.out + begin(i) * bytes, (end(i) - begin(i)) * bytes});
  }
  swapParcels(r.team, r.record, parcels);
  return receivedInAllReduce(count, ownCount, n) * bytes;
}

// Ranks at distance 1, 2, 4, ... exchange their sums. Ranks beyond a power of two send their inputs to the first ranks, and get the
// result from them.
int64_t NetworkCommunicator::reduceByDoubling(const CollectiveCall& r) {
  const auto n = r.ranks();
  const auto paired = powerAtMost(n);
  const int64_t bytes = r.record.count * dataTypeSize(sumType(r));
  std::vector<std::byte> own(bytes);
  std::vector<std::byte> theirs(bytes);
  toAccumulators(r.in, r.record.type, r.record.op, own.data(), r.record.count);
  int64_t received = 0;
  auto swap = [&](int64_t with, bool gives, std::byte* takes) {
    const auto [first, second] = std::minmax({r.position, with});
    const Team two{{r.team.ranks[first], r.team.ranks[second]}};
    Parcel parcels[2];
    parcels[with == first ? 0 : 1] = {own.data(), gives ? bytes : 0, takes, takes != nullptr ? bytes : 0};
    swapParcels(two, r.record, parcels);
    received += takes != nullptr ? bytes : 0;
  };
  auto reduceWith = [&](int64_t position) {  // in the same order on both sides
    const void* inputs[] = {position < r.position ? theirs.data() : own.data(),
                            position < r.position ? own.data() : theirs.data()};
    reduceInRankOrder(inputs, own.data(), r.record.count, sumType(r), r.record.op);
  };
  if (r.position >= paired) {
    swap(r.position - paired, true, nullptr);
    swap(r.position - paired, false, own.data());
  } else {
    const int64_t joins = r.position + paired;
    if (joins < n) {
      swap(joins, false, theirs.data());
      reduceWith(joins);
    }
    for (int64_t apart = 1; apart < paired; apart *= 2) {
      swap(r.position ^ apart, true, theirs.data());
      reduceWith(r.position ^ apart);
    }
    if (joins < n) {
      swap(joins, true, nullptr);
    }
  }
  fromAccumulators(own.data(), r.record.type, r.record.op, r.out, r.record.count);
  return received;
}

// Each part goes around the ring once, and every rank adds its input; the last rank then passes the result on.
int64_t NetworkCommunicator::reduceAround(const CollectiveCall& r) {
  const int64_t n = r.ranks();
  const int64_t bytes = dataTypeSize(sumType(r));
  const std::vector<int64_t> parts = partsOf(r);
  const Blocks blocks{.number = n, .sizes = parts};
  swapParcels(r.team, r.record, std::vector<Parcel>(r.team.ranks.size()));
  std::vector<std::byte> sums(r.record.count * bytes);
  std::vector<std::byte> theirs(blocks.largest() * bytes);
  toAccumulators(r.in, r.record.type, r.record.op, sums.data(), r.record.count);
  int64_t received = 0;
  for (int64_t step = 0; step + 1 < n; ++step) {
    const int64_t sent = (r.position + 2 * n - 1 - step) % n;
    const int64_t taken = (sent + n - 1) % n;
    std::byte* part = sums.data() + blocks.begin(taken) * bytes;
    pass({.to = r.team.ranks[(r.position + 1) % n],
          .out = sums.data() + blocks.begin(sent) * bytes,
          .outBytes = blocks.of(sent) * bytes,
          .from = r.team.ranks[(r.position + n - 1) % n],
          .in = theirs.data(),
          .inBytes = blocks.of(taken) * bytes});
    const void* inputs[] = {theirs.data(), part};
    reduceInRankOrder(inputs, part, blocks.of(taken), sumType(r), r.record.op);
    received += blocks.of(taken) * bytes;
  }
  const int64_t own = blocks.begin(r.position);
  fromAccumulators(sums.data() + own * bytes, r.record.type, r.record.op, r.out + own * r.elementBytes(),
                   blocks.of(r.position));
  passAround(r.team, r.position, blocks, r.elementBytes(), r.out);
  return received + (r.record.count - blocks.of(r.position)) * r.elementBytes();
}

// The first ranks of each host share out its inputs, as many as the smallest host has. Each part goes from the first host to the last,
// reduced with the inputs of one host after the other, and its result back again, in pieces that are all under way. Then the ranks of a
// host gather the parts. So an element crosses from a host to the next once each way, however many ranks they have.
int64_t NetworkCommunicator::reduceByHost(const CollectiveCall& r) {
  swapParcels(r.team, r.record, std::vector<Parcel>(r.team.ranks.size()));
  const Hosts hosts = hostsOf(r.team);
  const auto isHere = [&](const std::vector<int64_t>& host) { return contains(host, r.position); };
  const int64_t here = std::ranges::find_if(hosts, isHere) - hosts.begin();
  const std::vector<int64_t>& neighbours = hosts[here];  // this rank is one of them
  const int64_t place = positionIn(neighbours, r.position);
  const auto shares = std::ssize(std::ranges::min(hosts, {}, &std::vector<int64_t>::size));
  auto begin = [&](int64_t i) { return partBegin(r.record.count, std::min(i, shares), shares); };
  auto bytesOf = [&](int64_t i) { return (begin(i + 1) - begin(i)) * r.elementBytes(); };
  auto at = [&](auto* data, int64_t i) { return data + begin(i) * r.elementBytes(); };
  int64_t received = 0;

  std::vector<std::byte> gathered(bytesOf(place) * std::ssize(neighbours));
  std::vector<const std::byte*> inputs;  // of this rank's part
  std::vector<Hop> there;
  std::vector<Hop> back;
  for (const int64_t i : indices(neighbours)) {
    std::byte* theirs = gathered.data() + i * bytesOf(place);
    inputs.push_back(i == place ? at(r.in, place) : theirs);
    if (i != place) {
      const int64_t rank = r.team.ranks[neighbours[i]];
      there.push_back({rank, at(r.in, i), bytesOf(i), rank, theirs, bytesOf(place)});
      back.push_back({rank, at(r.out, place), bytesOf(place), rank, at(r.out, i), bytesOf(i)});
      received += bytesOf(place) + bytesOf(i);
    }
  }
  pass(there);
  if (bytesOf(place) > 0) {
    const auto chain = mapped(hosts, [&](const std::vector<int64_t>& host) { return r.team.ranks[host[place]]; });
    received += passFromHostToHost(r, chain, here, inputs, begin(place), begin(place + 1) - begin(place));
  }
  pass(back);
  return received;
}

// Step i receives the sums of piece i from the previous host and sends those of piece i - 1. With n hosts after this one, the result of
// a piece returns n steps later, and is passed on in the next step.
int64_t NetworkCommunicator::passFromHostToHost(const CollectiveCall& r, std::span<const int64_t> chain, int64_t here,
                                                std::span<const std::byte* const> inputs, int64_t from, int64_t count) {
  const int64_t before = here > 0 ? chain[here - 1] : -1;
  const int64_t hostsAfter = std::ssize(chain) - here - 1;
  const int64_t after = hostsAfter > 0 ? chain[here + 1] : -1;
  const int64_t bytes = dataTypeSize(sumType(r));
  const int64_t pieceCount = kPieceBytes / bytes;
  const int64_t pieces = divideUp(count, pieceCount);
  auto begin = [&](int64_t piece) { return std::min(piece * pieceCount, count); };
  auto sizeOf = [&](int64_t piece) { return begin(piece + 1) - begin(piece); };
  auto isPiece = [&](int64_t piece) { return piece >= 0 && piece < pieces; };
  std::byte* out = r.out + from * r.elementBytes();
  std::vector<std::byte> sums(count * bytes);
  std::vector<std::byte> widened(std::min(pieceCount, count) * bytes);
  int64_t received = 0;
  for (int64_t step = 0; step <= pieces + hostsAfter; ++step) {
    const int64_t back = step - hostsAfter;
    std::vector<Hop> hops;
    auto take = [&](int64_t rank, int64_t piece, std::byte* to, int64_t elementBytes) {
      if (rank >= 0 && isPiece(piece)) {
        hops.push_back({.from = rank, .in = to + begin(piece) * elementBytes, .inBytes = sizeOf(piece) * elementBytes});
      }
    };
    auto give = [&](int64_t rank, int64_t piece, const std::byte* what, int64_t elementBytes) {
      if (rank >= 0 && isPiece(piece)) {
        hops.push_back(
            {.to = rank, .out = what + begin(piece) * elementBytes, .outBytes = sizeOf(piece) * elementBytes});
      }
    };
    take(before, step, sums.data(), bytes);
    give(after, step - 1, sums.data(), bytes);
    take(after, back, out, r.elementBytes());
    give(before, back - 1, out, r.elementBytes());
    pass(hops);
    received += sumOf(hops, &Hop::inBytes);
    if (isPiece(step)) {
      const int64_t size = sizeOf(step);
      std::byte* piece = sums.data() + begin(step) * bytes;
      bool begun = before >= 0;  // else the first input becomes the sums
      for (const std::byte* input : inputs) {
        const std::byte* elements = input + begin(step) * r.elementBytes();
        if (std::exchange(begun, true)) {
          addElements(elements, piece, size, r, widened.data());
        } else {
          toAccumulators(elements, r.record.type, r.record.op, piece, size);
        }
      }
      if (after < 0) {
        fromAccumulators(piece, r.record.type, r.record.op, out + begin(step) * r.elementBytes(), size);
      }
    }
  }
  return received;
}

}  // namespace meshfuse
