#include "multidevice/transport/host/network_communicator.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "base/error.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/network_reunion.h"
#include "multidevice/transport/pull.h"
#include "multidevice/transport/reduce.h"
#include "multidevice/transport/wait_observer.h"

namespace meshfuse {

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr int64_t kDataBehindHead = 4096;
constexpr int64_t kReduceAll = 16 << 10;  // up to here every rank computes a whole all-reduce
constexpr size_t kHeadBytes = sizeof(CallRecord) + kDataBehindHead;
constexpr auto kPeerIsSlow = 200us;

const std::byte* bytesOf(const void* p) { return static_cast<const std::byte*>(p); }
std::byte* bytesOf(void* p) { return static_cast<std::byte*>(p); }
bool isShort(int64_t bytes) { return bytes <= kDataBehindHead; }

void copyBytes(std::byte* to, const std::byte* from, int64_t bytes) {
  if (to != from && bytes > 0) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
}

}  // namespace

NetworkCommunicator::NetworkCommunicator(std::unique_ptr<Bootstrap> bootstrap, const TransportOptions& options,
                                         std::string world)
    : bootstrap_(std::move(bootstrap)),
      rank_(bootstrap_->rank()),
      size_(bootstrap_->size()),
      options_(options),
      recorder_(
          flight_,
          {.directory = options.flightDirectory, .world = world, .transport = "network", .rank = rank_, .size = size_}),
      name_(std::move(world)),
      watch_(*bootstrap_, options.deadline),
      link_(openUcxLink()),
      peers_(static_cast<size_t>(size_)),
      uncaught_(std::uncaught_exceptions()) {
  for (int r = 0; r < size_; ++r) {
    world_.ranks.push_back(r);
  }
  watch_.whereThisRankIs([this] { return place(); });
  watch_.whenFailed([this](const std::string& text) { recorder_.write(text); });
  link_->connect(bootstrap_->allGather(link_->address()));
  barrier(world_);
  resetCounters();
}

NetworkCommunicator::~NetworkCommunicator() {
  if (std::uncaught_exceptions() > uncaught_) {
    const std::string text = fmt::format("[network] {} was left by an exception", place());
    watch_.recordFailure(text);
    recorder_.write(text);
    return;
  }
  // The library moves messages only while their sender is in it: what was sent last arrives before this rank leaves.
  try {
    options_.deadline = std::min(options_.deadline, std::chrono::milliseconds(2000));
    watch_.throwIfFailed();
    barrier(world_);
  } catch (const DeviceError&) {
    // The group has failed or a peer left without a word; there is nobody left to tell.
  }
}

void NetworkCommunicator::swapParcels(const Team& team, const CallRecord& record, std::span<const Parcel> parcels) {
  const size_t n = team.ranks.size();
  heads_.resize(2 * n * kHeadBytes);
  auto headTo = [&](size_t i) { return heads_.data() + i * kHeadBytes; };
  auto headFrom = [&](size_t i) { return heads_.data() + (n + i) * kHeadBytes; };
  const bool pairwise = record.ragged && record.kind == CallKind::AllToAll;
  std::vector<Pending> heads;
  std::vector<Pending> data;
  for (size_t i = 0; i < n; ++i) {  // receives first: an expected message needs no copy
    const int p = team.ranks[i];
    if (p == rank_) {
      continue;
    }
    const uint32_t sequence = ++peers_[static_cast<size_t>(p)].calls;
    heads.push_back({link_->receive(headFrom(i), kHeadBytes, tag(Tag::Head, sequence, p)), p, -1});
    if (!isShort(parcels[i].inBytes)) {
      data.push_back(
          {link_->receive(parcels[i].in, static_cast<size_t>(parcels[i].inBytes), tag(Tag::Data, sequence, p)), p,
           parcels[i].inBytes});
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const int p = team.ranks[i];
    if (p == rank_) {
      continue;
    }
    const Parcel& parcel = parcels[i];
    const uint32_t sequence = peers_[static_cast<size_t>(p)].calls;
    CallRecord announced = record;
    announced.count = pairwise ? parcel.outBytes : record.count;
    std::memcpy(headTo(i), &announced, sizeof(record));
    const int64_t behind = isShort(parcel.outBytes) ? parcel.outBytes : 0;
    copyBytes(headTo(i) + sizeof(record), parcel.out, behind);
    heads.push_back(
        {link_->send(p, headTo(i), sizeof(record) + static_cast<size_t>(behind), tag(Tag::Head, sequence, rank_)), p,
         -1});
    if (!isShort(parcel.outBytes)) {
      data.push_back(
          {link_->send(p, parcel.out, static_cast<size_t>(parcel.outBytes), tag(Tag::Data, sequence, rank_)), p, -1});
    }
  }
  try {
    waitForAll(heads);
    checkHeads(team, record, parcels);
    waitForAll(data);
  } catch (...) {
    abandon({&heads, &data});
    throw;
  }
}

// What the peers say of the call, and the short data right behind.
void NetworkCommunicator::checkHeads(const Team& team, const CallRecord& record, std::span<const Parcel> parcels) {
  const size_t n = team.ranks.size();
  const bool pairwise = record.ragged && record.kind == CallKind::AllToAll;
  const int64_t elementBytes = dataTypeSize(record.type);
  for (size_t i = 0; i < n; ++i) {
    const int p = team.ranks[i];
    const std::byte* head = heads_.data() + (n + i) * kHeadBytes;
    CallRecord theirs;
    std::memcpy(&theirs, head, sizeof(theirs));
    if (pairwise && p != rank_) {
      const int64_t sent = theirs.count / elementBytes;
      theirs.count = 0;
      const std::string text = pairDifference(p, sent, rank_, parcels[i].inBytes / elementBytes);
      if (theirs == record && !text.empty()) {
        watch_.fail(fmt::format("[network] ranks {} and {} disagree: {}; {}", p, rank_, text, place()));
      }
    }
    if (p != rank_ && theirs != record) {
      watch_.fail(fmt::format("[network] ranks {} and {} disagree: {}; {}", rank_, p,
                              difference(rank_, record, p, theirs), place()));
    }
    if (p != rank_ && isShort(parcels[i].inBytes)) {
      copyBytes(parcels[i].in, head + sizeof(theirs), parcels[i].inBytes);
    }
  }
}

void NetworkCommunicator::abandon(std::initializer_list<std::vector<Pending>*> messages) {
  for (std::vector<Pending>* pending : messages) {
    for (Pending& p : *pending) {
      link_->abandon(p.operation);
    }
  }
  link_.reset();
}

void NetworkCommunicator::waitForAll(std::vector<Pending>& pending) {
  std::optional<ObservedWait> observed;
  const auto begin = Clock::now();
  auto idleSince = begin;
  auto limit = begin + options_.deadline;
  auto settle = [&](Pending& p) {
    const NetworkLink::Outcome outcome = link_->ask(p.operation);
    if (!outcome.error.empty()) {
      failedMessage(p.peer, outcome.error);
    }
    if (outcome.done && (outcome.tooLong || (p.expected >= 0 && outcome.bytes >= 0 && outcome.bytes != p.expected))) {
      watch_.fail(fmt::format(
          "[network] ranks {} and {} disagree: rank {} sends {}, rank {} receives {} bytes; {}", p.peer, rank_, p.peer,
          outcome.tooLong ? std::string("more") : std::to_string(outcome.bytes), rank_, p.expected, place()));
    }
    return outcome.done;
  };
  for (;;) {
    std::erase_if(pending, settle);
    if (pending.empty()) {
      return;
    }
    if (!observed) {
      observed.emplace();
    }
    const auto now = Clock::now();
    if (link_->progress()) {
      idleSince = now;
      continue;
    }
    watch_.throwIfFailed();
    if (now - idleSince < kPeerIsSlow) {
      sched_yield();
      continue;
    }
    link_->sleep(5ms);
    if (std::any_of(pending.begin(), pending.end(), [&](const Pending& p) { return watch_.isBusy(p.peer); }) &&
        now < begin + options_.busyLimit) {
      limit = now + options_.deadline;
    }
    const auto gone =
        std::find_if(pending.begin(), pending.end(), [&](const Pending& p) { return watch_.hasLeft(p.peer); });
    // What a rank sent before it left may still be on its way.
    if (gone != pending.end() && now - idleSince > 500ms) {
      watch_.fail(
          fmt::format("[network] {} has left its world, which {} still waits for", peerName(gone->peer), place()));
    }
    if (now >= limit) {
      watch_.fail(fmt::format("[network] a deadline of {} ms expired: {} waits for {}", options_.deadline.count(),
                              place(), peerName(pending[0].peer)));
    }
  }
}

// The watch says more than the library does, if a little later.
void NetworkCommunicator::failedMessage(int peer, const std::string& error) {
  for (int i = 0; i < 1000; ++i) {
    watch_.throwIfFailed();
    std::this_thread::sleep_for(1ms);
  }
  watch_.fail(fmt::format("[network] a message between {} and {} failed: {}", place(), peerName(peer), error));
}

int NetworkCommunicator::start(const Team& team, CallRecord& record, bool buffersGiven) {
  const int position = positionInTeam(team, rank_, size_, record.kind);
  checkArguments(record, team, buffersGiven);
  record = stamped(record, team, program());
  event_ = &recorder_.begin(record);
  recorder_.waits();
  watch_.throwIfFailed();
  enter(record);
  return position;
}

void NetworkCommunicator::enter(const CallRecord& record) {
  std::lock_guard lock(placeMutex_);
  call_ = record;
  inCall_ = true;
}

void NetworkCommunicator::leave() {
  std::lock_guard lock(placeMutex_);
  inCall_ = false;
}

void NetworkCommunicator::finish(const CallRecord& record, int64_t received) {
  leave();
  FlightRecorder::end(*event_);
  if (record.kind != CallKind::Close) {
    TransferCounters::Entry& entry = counters_[static_cast<CollectiveKind>(record.kind)];
    ++entry.calls;
    entry.bytesReceived += received;
  }
}

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
  std::vector<Parcel> parcels;
  for (int64_t i = 0; i < blocks.number; ++i) {
    parcels.push_back({bytesOf(in), own, bytesOf(out) + blocks.begin(i) * bytes, blocks.of(i) * bytes});
  }
  swapParcels(t, record, parcels);
  copyBytes(bytesOf(out) + blocks.begin(position) * bytes, bytesOf(in), own);
  finish(record, blocks.total() * bytes - own);
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
  finish(record, received.total() * bytes - own.inBytes);
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
  finish(record, (blocks.number - 1) * own);
}

// Small: everybody sends everything to everybody. Large: everybody reduces a part, then the parts are gathered.
void NetworkCommunicator::allReduce(const Team& t, const void* in, void* out, int64_t count, DataType type,
                                    ReduceOp op) {
  CallRecord record{.kind = CallKind::AllReduce, .type = type, .op = op, .count = count};
  const int position = start(t, record, in != nullptr && out != nullptr);
  const auto n = static_cast<int64_t>(t.ranks.size());
  const int64_t bytes = dataTypeSize(type);
  const bool whole = count * bytes <= kReduceAll;
  auto begin = [&](int64_t i) { return whole ? 0 : partBegin(count, i, n); };
  auto end = [&](int64_t i) { return whole ? count : partBegin(count, i + 1, n); };
  const int64_t own = begin(position) * bytes;
  const int64_t ownCount = end(position) - begin(position);
  std::vector<std::byte> gathered(static_cast<size_t>(n * ownCount * bytes));
  std::vector<Parcel> parcels;
  std::vector<const void*> inputs;
  for (int64_t i = 0; i < n; ++i) {
    std::byte* theirs = gathered.data() + i * ownCount * bytes;
    parcels.push_back({bytesOf(in) + begin(i) * bytes, (end(i) - begin(i)) * bytes, theirs, ownCount * bytes});
    inputs.push_back(i == position ? bytesOf(in) + own : theirs);
  }
  swapParcels(t, record, parcels);
  reduceInRankOrder(inputs, bytesOf(out) + own, ownCount, type, op);
  int64_t received = (n - 1) * ownCount * bytes;
  if (!whole) {
    parcels.clear();
    for (int64_t i = 0; i < n; ++i) {
      parcels.push_back(
          {bytesOf(out) + own, ownCount * bytes, bytesOf(out) + begin(i) * bytes, (end(i) - begin(i)) * bytes});
    }
    swapParcels(t, record, parcels);
    received += (count - ownCount) * bytes;
  }
  finish(record, received);
}

void NetworkCommunicator::broadcast(const Team& t, void* buffer, int64_t count, DataType type, int root) {
  CallRecord record{.kind = CallKind::Broadcast, .type = type, .root = root, .count = count};
  const int position = start(t, record, buffer != nullptr);
  const int64_t bytes = count * dataTypeSize(type);
  std::vector<Parcel> parcels(t.ranks.size());
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
  finish(record, position == root ? 0 : bytes);
}

void NetworkCommunicator::barrier(const Team& t) { meet(t, CallKind::Barrier); }
void NetworkCommunicator::close() { meet(world_, CallKind::Close); }

void NetworkCommunicator::meet(const Team& t, CallKind kind) {
  CallRecord record{.kind = kind};
  start(t, record, true);
  swapParcels(t, record, std::vector<Parcel>(t.ranks.size()));
  finish(record, 0);
}

std::vector<std::string> NetworkCommunicator::exchange(std::string_view message) {
  CallRecord record{.kind = CallKind::Exchange};
  start(world_, record, true);
  auto length = static_cast<int64_t>(message.size());
  std::vector<int64_t> lengths(static_cast<size_t>(size_));
  std::vector<Parcel> parcels;
  for (int64_t& l : lengths) {
    parcels.push_back({bytesOf(&length), sizeof(length), bytesOf(&l), sizeof(l)});
  }
  swapParcels(world_, record, parcels);
  lengths[static_cast<size_t>(rank_)] = length;
  std::vector<std::string> all;
  for (int64_t l : lengths) {
    all.emplace_back(static_cast<size_t>(l), '\0');
  }
  parcels.clear();
  for (std::string& text : all) {
    parcels.push_back({bytesOf(message.data()), length, bytesOf(text.data()), static_cast<int64_t>(text.size())});
  }
  swapParcels(world_, record, parcels);
  all[static_cast<size_t>(rank_)] = message;
  leave();
  FlightRecorder::end(*event_);
  return all;
}

void NetworkCommunicator::transfer(std::span<const Transfer> transfers) {
  checkTransfers(transfers, size_);
  const CallRecord record{.kind = CallKind::Send, .count = static_cast<int64_t>(transfers.size())};
  FlightEvent& event = recorder_.begin(record);
  recorder_.waits();
  watch_.throwIfFailed();
  enter(record);
  moveWithinRank(transfers, rank_);
  std::vector<Pending> pending;
  for (const Transfer& t : transfers) {
    const bool receives = t.direction == Transfer::Direction::Recv;
    TransferCounters::Entry& entry = counters_[receives ? CollectiveKind::Recv : CollectiveKind::Send];
    ++entry.calls;
    if (t.peer == rank_) {
      continue;
    }
    PeerState& peer = peers_[static_cast<size_t>(t.peer)];
    if (receives) {
      entry.bytesReceived += t.bytes;
      pending.push_back(
          {link_->receive(t.data, static_cast<size_t>(t.bytes), tag(Tag::Transfer, peer.received++, t.peer)), t.peer,
           t.bytes});
    } else {
      pending.push_back(
          {link_->send(t.peer, t.data, static_cast<size_t>(t.bytes), tag(Tag::Transfer, peer.sent++, rank_)), t.peer,
           -1});
    }
  }
  try {
    waitForAll(pending);
  } catch (...) {
    abandon({&pending});
    throw;
  }
  leave();
  FlightRecorder::end(event);
}

void NetworkCommunicator::setStep(int64_t step, std::string_view what) {
  std::unique_lock lock(placeMutex_);
  step_ = step;
  what_ = what;
  lock.unlock();
  recorder_.setStep(step, what);
}

void NetworkCommunicator::abort(std::string_view reason) {
  const std::string text = fmt::format("[network] {} aborted: {}", place(), reason);
  watch_.recordFailure(text);
  recorder_.write(text);
}

Communicator::Survivors NetworkCommunicator::shrink() {
  checkHasFailed(watch_.hasFailed());
  // An attempt fails when one more rank does.
  for (int attempt = 0;; ++attempt) {
    auto reunion = std::make_unique<NetworkReunion>(watch_, rank_, size_, options_, place());
    const std::vector<int> members = reunion->members();
    try {
      Survivors survivors{openAmong(std::move(reunion), options_, name_ + ".survivors"), members};
      tellThoseWhoComeLater();
      return survivors;
    } catch (const DeviceError&) {
      if (attempt == size_) {
        throw;
      }
    }
  }
}

void NetworkCommunicator::tellThoseWhoComeLater() {
  answers_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (watch_.meetingPlace().waitFor(POLLIN, Clock::now() + 50ms)) {
        NetworkReunion::sendAway(watch_, rank_);
      }
    }
  });
}

std::string NetworkCommunicator::peerName(int rank) const { return fmt::format("[rank {}/{}]", rank, size_); }

std::string NetworkCommunicator::place() const {
  std::lock_guard lock(placeMutex_);
  std::string text = peerName(rank_);
  if (step_ >= 0) {
    text += fmt::format(" at step {} ({})", step_, what_);
  } else if (!what_.empty()) {
    text += fmt::format(" ({})", what_);
  }
  if (!inCall_) {
    return text + " outside any call";
  }
  return text + " in " +
         (call_.kind == CallKind::Send ? fmt::format("a group of {} sends and receives", call_.count)
                                       : describe(call_));
}

}  // namespace meshfuse
