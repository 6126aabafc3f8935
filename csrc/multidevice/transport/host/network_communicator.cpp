#include "multidevice/transport/host/network_communicator.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/network_rejoin.h"
#include "multidevice/transport/wait_observer.h"

namespace meshfuse {

namespace {

using Clock = WaitingClock;
using namespace std::chrono_literals;

constexpr int64_t kDataAfterHead = 4096;
constexpr size_t kHeadBytes = sizeof(CallRecord) + kDataAfterHead;
constexpr auto kNetworkPeerIsSlow = 200us;
constexpr int64_t kMostExchanged = int64_t{1} << 30;
constexpr auto kOnItsWay = 500ms;  // the longest time by which a message may arrive after a later action of its sender

bool isShort(int64_t bytes) { return bytes <= kDataAfterHead; }

// A message of an exchange, or its beginning: short data of a call.
struct Opening {
  int64_t bytes = 0;  // of the whole message
  char begin[kDataAfterHead - sizeof(int64_t)];

  Opening() = default;
  explicit Opening(std::string_view message) : bytes(std::ssize(message)) {
    std::memset(begin, 0, sizeof(begin));
    std::memcpy(begin, message.data(), std::min(message.size(), sizeof(begin)));
  }
  bool isWhole() const { return bytes <= static_cast<int64_t>(sizeof(begin)); }
  std::string_view text() const { return {begin, std::min(static_cast<size_t>(bytes), sizeof(begin))}; }
};
static_assert(sizeof(Opening) == kDataAfterHead);

}  // namespace

NetworkCommunicator::NetworkCommunicator(std::shared_ptr<Bootstrap> bootstrap, const TransportOptions& options,
                                         std::string world, std::vector<int64_t> hosts)
    : bootstrap_(std::move(bootstrap)),
      rank_(bootstrap_->rank()),
      size_(bootstrap_->size()),
      options_(options),
      algorithms_(AlgorithmTable::parse(options.algorithms)),
      hosts_(hosts.empty() ? firstRanks(size_) : std::move(hosts)),
      recorder_(flight_, {.directory = options.flightDirectory,
                          .world = std::move(world),
                          .transport = "network",
                          .rank = rank_,
                          .size = size_}),
      ownWatch_(std::make_unique<NetworkWatch>(*bootstrap_, options.deadline)),
      watch_(*ownWatch_),
      link_(openUcxLink()),
      calls_(size_) {
  check(size_ <= 1 << kSourceBits, "[network] {} ranks, expected at most {}", size_, 1 << kSourceBits);
  world_.ranks = firstRanks(size_);
  watch_.whereThisRankIs([this] { return place(); });
  try {
    connect();
  } catch (...) {
    watch_.whereThisRankIs({});  // its thread outlives the lanes
    throw;
  }
}

void NetworkCommunicator::connect() {
  const std::vector<std::string> addresses = bootstrap_->allGather(link_->address());
  try {
    link_->connect(addresses);
  } catch (const DeviceError&) {
    awaitNews();
    throw;
  }
  barrier(world_);
  resetCounters();
}

NetworkCommunicator::NetworkCommunicator(NetworkCommunicator& whole, const Team& team)
    : rank_(whole.rank_),
      size_(whole.size_),
      options_(whole.options_),
      algorithms_(whole.algorithms_),
      hosts_(whole.hosts_),
      recorder_(flight_, {.directory = options_.flightDirectory,
                          .world = laneName(whole.worldName(), team),
                          .transport = "network",
                          .rank = rank_,
                          .size = size_}),
      watch_(whole.watch_),
      link_(whole.link_),
      lane_(1 + static_cast<uint32_t>(teamHash(team) % ((1U << kLaneBits) - 1))),
      sharesLink_(true),
      calls_(size_) {
  world_ = team;
  isLane_ = true;
  recorder_.isOfLaneOf(whole.recorder_);
}

bool NetworkCommunicator::sparesProcessor() const {
  return std::ranges::any_of(hosts_, [&](int64_t host) { return host != hosts_.front(); });
}

Communicator* NetworkCommunicator::lane(const Team& team) {
  const auto make = [&] {
    auto lane = std::make_unique<NetworkCommunicator>(*this, team);
    const auto [known, isNew] = teams_.try_emplace(lane->lane_, team);
    deviceCheck(isNew || known->second == team,
                "[network] the messages of two teams, {} and {}, cannot be distinguished; use fewer teams", worldName(),
                lane->worldName());
    sharesLink_ = true;
    return lane;
  };
  return isLane_ ? nullptr : lanes_.of(team, rank_, size_, make);
}

NetworkCommunicator::~NetworkCommunicator() {
  if (isLeftByException()) {
    watch_.recordFailure({fmt::format("[network] {} closed its communicator because of an exception", place())});
  }
  // The library moves messages only while their sender calls it, so this rank waits until its last messages have arrived.
  leaving_ = true;
  try {
    options_.deadline = std::min(options_.deadline, std::chrono::milliseconds(2000));
    throwIfFailed();
    if (!isLane_) {
      barrier(world_);
    }
  } catch (const Error&) {
    // The group has failed or a peer has left: no rank needs to be told.
  }
  if (!isLane_) {
    watch_.whereThisRankIs({});  // its thread outlives the lanes
  }
}

void NetworkCommunicator::swapParcels(const Team& team, const CallRecord& record, std::span<const Parcel> parcels) {
  const size_t n = team.ranks.size();
  heads_.resize(2 * n * kHeadBytes);
  auto headTo = [&](int64_t i) { return heads_.data() + i * kHeadBytes; };
  auto headFrom = [&](int64_t i) { return heads_.data() + (n + i) * kHeadBytes; };
  const bool pairwise = isPairwise(record);
  std::vector<Pending> heads;
  std::vector<Pending> data;
  auto others = positionsOfOthers(team);
  for (const int64_t i : others) {  // receives first: an expected message needs no copy
    const int64_t p = team.ranks[i];
    const uint32_t sequence = ++calls_[p];
    heads.push_back({link_->receive(headFrom(i), kHeadBytes, tag(Tag::Head, sequence, p)), p, -1});
    if (!isShort(parcels[i].inBytes)) {
      data.push_back(
          {link_->receive(parcels[i].in, parcels[i].inBytes, tag(Tag::Data, sequence, p)), p, parcels[i].inBytes});
    }
  }
  for (const int64_t i : others) {
    const int64_t p = team.ranks[i];
    const Parcel& parcel = parcels[i];
    const uint32_t sequence = calls_[p];
    CallRecord announced = record;
    announced.count = pairwise ? parcel.outBytes : record.count;
    std::memcpy(headTo(i), &announced, sizeof(record));
    const int64_t appended = isShort(parcel.outBytes) ? parcel.outBytes : 0;
    moveBytes(headTo(i) + sizeof(record), parcel.out, appended);
    heads.push_back({link_->send(p, headTo(i), sizeof(record) + appended, tag(Tag::Head, sequence, rank_)), p, -1});
    if (!isShort(parcel.outBytes)) {
      data.push_back({link_->send(p, parcel.out, parcel.outBytes, tag(Tag::Data, sequence, rank_)), p, -1});
    }
  }
  orAbandon({&heads, &data}, [&] {
    waitForAll(heads);
    checkHeads(team, record, parcels);
    waitForAll(data);
  });
}

std::string_view NetworkCommunicator::messageIn(const CallRecord& call, const std::byte* head) {
  if (call.kind != Collective::Exchange) {
    return {};
  }
  int64_t bytes = 0;
  std::memcpy(&bytes, head + sizeof(call), sizeof(bytes));
  return {reinterpret_cast<const char*>(head + sizeof(call) + sizeof(bytes)),
          std::min<size_t>(bytes, kDataAfterHead - sizeof(bytes))};
}

// The peers' records of the call, and the short data that follows each.
void NetworkCommunicator::checkHeads(const Team& team, const CallRecord& record, std::span<const Parcel> parcels) {
  const size_t n = team.ranks.size();
  const bool pairwise = isPairwise(record);
  const int64_t elementBytes = dataTypeSize(record.type);
  for (const int64_t i : positionsOfOthers(team)) {
    const int64_t p = team.ranks[i];
    const std::byte* head = heads_.data() + (n + i) * kHeadBytes;
    CallRecord theirs;
    std::memcpy(&theirs, head, sizeof(theirs));
    if (pairwise) {
      const int64_t sent = theirs.count / elementBytes;
      theirs.count = 0;
      const std::string text = pairDifference(p, sent, rank_, parcels[i].inBytes / elementBytes);
      if (theirs == record && !text.empty()) {
        failCall({fmt::format("[network] ranks {} and {} disagree: {}; {}", p, rank_, text, place())});
      }
    }
    if (theirs != record) {
      const DifferingCall own{rank_, record, messageIn(record, heads_.data() + i * kHeadBytes), place()};
      failCall(
          differenceOf("network", programs().get(), own,
                       {p, theirs, messageIn(theirs, head), fmt::format("{} in {}", peerName(p), describe(theirs))}));
    }
    if (isShort(parcels[i].inBytes)) {
      moveBytes(parcels[i].in, head + sizeof(theirs), parcels[i].inBytes);
    }
  }
}

// Messages after the heads of a call, all under way together.
void NetworkCommunicator::pass(std::span<const Hop> hops) {
  std::vector<Pending> pending;
  auto tagOf = [&](int64_t peer, int64_t source) { return tag(Tag::Data, calls_[peer], source); };
  for (const Hop& hop : hops) {  // receives first: an expected message needs no copy
    if (hop.from >= 0 && hop.inBytes > 0) {
      pending.push_back({link_->receive(hop.in, hop.inBytes, tagOf(hop.from, hop.from)), hop.from, hop.inBytes});
    }
  }
  for (const Hop& hop : hops) {
    if (hop.to >= 0 && hop.outBytes > 0) {
      pending.push_back({link_->send(hop.to, hop.out, hop.outBytes, tagOf(hop.to, rank_)), hop.to, -1});
    }
  }
  orAbandon({&pending}, [&] { waitForAll(pending); });
}

void NetworkCommunicator::checkCome(const std::vector<Pending>& pending) {
  const CallRecord own = call_;
  for (const Pending& awaited : pending) {
    const int64_t p = awaited.peer;
    if (awaited.expected < 0 || programs() == nullptr || isLane_) {
      continue;  // a sent message completes when its receiver reaches the call
    }
    CallRecord theirs{.kind = Collective::Send, .program = own.program};
    std::vector<std::byte> head(kHeadBytes);
    const uint64_t next = tag(Tag::Head, calls_[p] + 1, p);
    if (link_->find(next, ~uint64_t{0})) {
      std::vector<Pending> heads{{link_->receive(head.data(), head.size(), next), p, -1}};
      waitForAll(heads);
      std::memcpy(&theirs, head.data(), sizeof(theirs));
    } else if (const auto other = link_->find(transferTag(0, p), kAllButProgram)) {
      theirs.program = static_cast<uint32_t>(*other >> kSourceBits);
    }
    if (std::optional<GroupFailure> why =
            disagreement(programs().get(), {rank_, own, {}, place()},
                         {p, theirs, messageIn(theirs, head.data()),
                          peerName(p) + (theirs.kind == Collective::Send ? "" : " in " + describe(theirs))})) {
      failCall(*why);
    }
  }
}

void NetworkCommunicator::waitForAll(std::vector<Pending>& pending, const std::function<void()>& idle) {
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
      failCall({fmt::format(
          "[network] ranks {} and {} disagree: rank {} sends {}, rank {} receives {} bytes; {}", p.peer, rank_, p.peer,
          outcome.tooLong ? std::string("more") : std::to_string(outcome.bytes), rank_, p.expected, place())});
    }
    return outcome.done;
  };
  auto settledSince = begin;
  for (;;) {
    const size_t before = pending.size();
    for (int64_t i = 0; i < std::ssize(pending);) {  // the list is always consistent: a failed entry throws
      if (settle(pending[i])) {
        pending[i] = pending.back();
        pending.pop_back();
      } else {
        ++i;
      }
    }
    if (pending.empty()) {
      return;
    }
    if (!observed) {
      observed.emplace();
    }
    const auto now = Clock::now();
    const bool moved = link_->progress();
    idleSince = moved ? now : idleSince;
    settledSince = pending.size() < before ? now : settledSince;
    throwIfFailed();
    const auto quiet =
        now - (sharesLink_ ? settledSince : idleSince);  // progress on a shared link may belong to another lane
    if (quiet < kNetworkPeerIsSlow) {
      if (!moved) {
        sched_yield();
      }
      continue;
    }
    link_->sleep(sharesLink_ ? 1ms : 5ms);  // another lane may consume the event that this one waits for
    if (!leaving_ && now < begin + options_.busyLimit &&
        std::ranges::any_of(pending, [&](const Pending& p) { return watch_.isBusy(p.peer); })) {
      limit = now + options_.deadline;
    }
    if (idle && now - idleSince > kOnItsWay) {
      idle();
    }
    const auto gone = std::ranges::find_if(pending, [&](const Pending& p) { return watch_.hasLeft(p.peer); });
    if (gone != pending.end() && quiet > kOnItsWay) {
      failCall({fmt::format("[network] {} has closed its communicator, but {} waits for it", peerName(gone->peer),
                            place())});
    }
    if (now >= limit) {
      failCall({fmt::format("[network] a deadline of {} ms expired: {} waits for {}", options_.deadline.count(),
                            place(), peerName(pending[0].peer))});
    }
  }
}

void NetworkCommunicator::await(const Team& team, const std::function<bool()>& ready) {
  const ObservedWait observed;
  const auto begin = Clock::now();
  auto limit = begin + options_.deadline;
  while (!ready()) {
    if (watch_.hasFailed() && !ready()) {  // complete work succeeds, even if the world has failed since
      throwIfFailed();
    }
    link_->progress();  // messages of this rank may still be on their way
    std::this_thread::sleep_for(1ms);
    const auto now = Clock::now();
    if (now < begin + options_.busyLimit &&
        std::ranges::any_of(team.ranks, [&](int64_t p) { return watch_.isBusy(p); })) {
      limit = now + options_.deadline;
    } else if (now >= limit) {
      failCall({fmt::format("[network] a deadline of {} ms expired: {} waits for work that it does with {}",
                            options_.deadline.count(), place(),
                            joined(team.ranks, ", ", [this](int64_t p) { return peerName(p); }))});
    }
  }
}

// The watch reports more detail than the library, a little later.
void NetworkCommunicator::awaitNews() {
  for (const auto limit = Clock::now() + promptLimit(options_.deadline); Clock::now() < limit;) {
    throwIfFailed();
    std::this_thread::sleep_for(1ms);
  }
}

// A rank that waited in vain and leaves alone is not a failure for the others.
void NetworkCommunicator::failCall(const GroupFailure& failure) {
  if (leaving_) {
    throwDeviceError(failure.text);
  }
  watch_.recordFailure(failure);
  throwIfFailed();
  meshfuse::throwFailure(failure);
}

void NetworkCommunicator::throwIfFailed() {
  try {
    watch_.throwIfFailed();
  } catch (const Error& e) {
    recorder_.write(e.what());
    throw;
  }
}

void NetworkCommunicator::failedMessage(int64_t peer, const std::string& error) {
  awaitNews();
  failCall({fmt::format("[network] a message between {} and {} failed: {}", place(), peerName(peer), error)});
}

void NetworkCommunicator::enter(const CallRecord& record) {
  if (recorder_.hasAborted()) {
    throwIfFailed();
  }
  event_ = &recorder_.begin(record);
  recorder_.waits();
  throwIfFailed();
  std::lock_guard lock(placeMutex_);
  call_ = record;
  inCall_ = true;
}

void NetworkCommunicator::leave() {
  std::unique_lock lock(placeMutex_);
  inCall_ = false;
  lock.unlock();
  FlightRecorder::end(*event_);
}

std::vector<std::string> NetworkCommunicator::exchange(std::string_view message) {
  refuseInLane("exchange");
  check(std::ssize(message) <= kMostExchanged, "[network] a message of {} bytes, expected at most {}", message.size(),
        kMostExchanged);
  const CallRecord record = stamped({.kind = Collective::Exchange}, world_, program());
  enter(record);
  const Opening own(message);
  std::vector<Opening> openings(size_);
  const auto parcelOf = [&](Opening& o) { return Parcel{&own, sizeof(own), &o, sizeof(o)}; };
  swapParcels(world_, record, mapped(openings, parcelOf));
  openings[rank_] = own;
  std::vector<std::string> all;
  for (const int64_t r : indices(openings)) {
    const int64_t bytes = openings[r].bytes;
    if (bytes < 0 || bytes > kMostExchanged) {
      failCall({fmt::format("[network] a message of {} bytes came from {}, expected at most {}; {}", bytes, peerName(r),
                            kMostExchanged, place())});
    }
    all.emplace_back(openings[r].text());
    all.back().resize(bytes);
  }
  if (!std::ranges::all_of(openings, &Opening::isWhole)) {
    const auto rest = [&](std::string& text) {
      return Parcel{message.data(), std::ssize(message), text.data(), std::ssize(text)};
    };
    swapParcels(world_, record, mapped(all, rest));
    all[rank_] = message;
  }
  leave();
  return all;
}

void NetworkCommunicator::transfer(std::span<const Transfer> transfers) {
  checkTransfers(transfers, size_);
  checkWithinLane(transfers);
  const CallRecord record{.kind = Collective::Send, .count = std::ssize(transfers), .program = shortHash(program())};
  enter(record);
  moveWithinRank(transfers, rank_);
  count(transfers);
  std::vector<Pending> pending;
  for (const Transfer& t : transfers) {
    if (t.peer != rank_ && t.direction == Transfer::Direction::Recv) {
      pending.push_back({link_->receive(t.data, t.bytes, transferTag(record.program, t.peer)), t.peer, t.bytes});
    } else if (t.peer != rank_) {
      pending.push_back({link_->send(t.peer, t.data, t.bytes, transferTag(record.program, rank_)), t.peer, -1});
    }
  }
  orAbandon({&pending}, [&] { waitForAll(pending, [&] { checkCome(pending); }); });
  leave();
}

void NetworkCommunicator::setStep(int64_t step, std::string_view what) {
  std::unique_lock lock(placeMutex_);
  step_ = step;
  what_ = what;
  lock.unlock();
  recorder_.setStep(step, what);
}

void NetworkCommunicator::abort(std::string_view reason) {
  recorder_.abort();
  watch_.recordFailure({fmt::format("[network] {} aborted: {}", place(), reason)});
}

Communicator::Survivors NetworkCommunicator::survivors() {
  refuseInLane("shrink");
  checkHasFailed(watch_.hasFailed());
  answers_ = {};  // from here on the rejoin alone accepts connections
  // An attempt fails if one more rank fails.
  for (int64_t attempt = 0;; ++attempt) {
    auto rejoin = std::make_shared<NetworkRejoin>(watch_, rank_, size_, options_, place());
    try {
      Survivors made{openAmong(rejoin, options_, worldName() + ".survivors"), rejoin->members()};
      static_cast<void>(rejoin->allGather("open"));  // all members return this world, or none does
      rejoin_ = std::move(rejoin);
      tellThoseWhoComeLater();
      return made;
    } catch (const DeviceError&) {
      if (attempt == size_) {
        throw;
      }
    }
  }
}

void NetworkCommunicator::tellThoseWhoComeLater() {
  answers_ = std::jthread([this](const std::stop_token& stop) {
    watch_.rejoinDoor().begin();
    while (!stop.stop_requested()) {
      watch_.rendezvousPoint().waitFor(POLLIN, Clock::now() + 50ms);
      NetworkRejoin::sendAway(watch_, NetworkRejoin::Word::Late, stop);
    }
  });
}

std::string NetworkCommunicator::peerName(int64_t rank) const { return fmt::format("[rank {}/{}]", rank, size_); }

NetworkCommunicator::Place NetworkCommunicator::ownPlace() const {
  std::lock_guard lock(placeMutex_);
  return {
      .known = inCall_     ? 2
               : step_ < 0 ? 0
                           : 1,
      .text = describeRank(rank_, size_, step_, what_) + (inCall_ ? " in " + describe(call_) : " outside any call")};
}

std::string NetworkCommunicator::place() const {
  Place best = ownPlace();
  lanes_.forEach([&](const Communicator& lane) {
    Place place = static_cast<const NetworkCommunicator&>(lane).ownPlace();
    if (place.known > best.known) {
      best = std::move(place);
    }
  });
  return std::move(best.text);
}

}  // namespace meshfuse
