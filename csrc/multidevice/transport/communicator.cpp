#include "multidevice/transport/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/exact.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "multidevice/transport/call.h"
#include "multidevice/transport/call_queue.h"
#include "tensor/allocator.h"

namespace meshfuse {

namespace {

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator() { world_.ranks = {0}; }

  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  std::string_view transport() const override { return "self"; }
  std::shared_ptr<void> allocate(size_t bytes) override { return allocateOrdinary(bytes); }

  void run(const CollectiveCall& call) override {
    checkAlive();
    ++counters_[call.record.kind].calls;
    moveBytes(call.out, call.in, call.operand.total() * call.elementBytes());
  }
  void transfer(std::span<const Transfer> transfers) override {
    checkAlive();
    checkTransfers(transfers, 1);
    moveWithinRank(transfers, 0);
    count(transfers);
  }
  void await(const Team&, const std::function<bool()>& ready) override {
    while (!ready()) {
      checkAlive();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::vector<std::string> exchange(std::string_view message) override {
    checkAlive();
    return {std::string(message)};
  }

  void setStep(int64_t, std::string_view) override {}
  void setBusy(bool) override {}
  void abort(std::string_view reason) override { failure_ = fmt::format("[rank 0/1] aborted: {}", reason); }
  Survivors survivors() override {
    checkHasFailed(!failure_.empty());
    return {makeSelfCommunicator(), {0}};
  }

 private:
  void checkAlive() const { deviceCheck(failure_.empty(), "{}", failure_); }

  std::string failure_;
};

constexpr int64_t kMostElementBytes = 8;

thread_local Communicator* threadWorld = nullptr;

void checkCounts(Collective kind, const Team& team, std::span<const int64_t> counts) {
  const std::string call = callName(kind, BlockForm::Counted);
  check(counts.size() == team.ranks.size(), "[{}] {} counts for a team of {} ranks; give one for each", call,
        counts.size(), team.ranks.size());
  for (const int64_t i : indices(counts)) {
    check(counts[i] >= 0, "[{}] the count of rank {} is {}, expected 0 or more elements", call, team.ranks[i],
          counts[i]);
  }
}

// The record of a call with a count for each rank; UserError if there is not one count for each rank, or if one is negative.
CallRecord raggedRecord(CallRecord call, const Team& team, std::span<const int64_t> counts) {
  checkCounts(call.kind, team, counts);
  call.ragged = true;
  call.count = sumExact(counts);
  call.countHash = shortHash(std::accumulate(counts.begin(), counts.end(), uint64_t{counts.size()}, hashCombine));
  return call;
}

// The root of a call, as a record keeps it; UserError unless it is a position of the team.
int32_t checkedRoot(Collective kind, const Team& team, int64_t root) {
  check(root >= 0 && root < std::ssize(team.ranks), "[{}] root is position {} of a team of {} ranks, expected 0 to {}",
        name(kind), root, team.ranks.size(), std::ssize(team.ranks) - 1);
  return static_cast<int32_t>(root);
}

// UserError unless the counts, the bytes of both buffers, and the buffers are valid.
void checkArguments(const CollectiveCall& call) {
  const CallRecord& record = call.record;
  const CollectiveTraits& traits = call.traits();
  check(record.count >= 0, "[{}] count is {}, expected 0 or more elements", traits.name, record.count);
  if (!multipliedIfExact(record.count, kMostElementBytes * call.ranks())) [[unlikely]] {
    throwUserError(fmt::format("[{}] count is {} for {} ranks, which is more than 2^63 bytes; expected fewer",
                               traits.name, record.count, call.ranks()));
  }
  const bool given = (call.in != nullptr || !call.gives()) && (call.out != nullptr || !call.gets());
  check(given || record.ragged || record.count == 0, "[{}] a buffer is null, expected one for {} elements", traits.name,
        record.count);
}

}  // namespace

Communicator::Communicator() = default;
Communicator::~Communicator() = default;

void Communicator::addCounters(const TransferCounters& more) { counters_ += more; }

double Communicator::coreShare() const {
  return coreShare_ > 0 ? coreShare_ : static_cast<double>(availableCores()) / static_cast<double>(size());
}

CallQueue& Communicator::calls() {
  if (calls_ == nullptr) {
    calls_ = std::make_unique<CallQueue>(*this);
  }
  return *calls_;
}

void Communicator::call(const Team& team, const CallRecord& record, const void* in, void* out, Counts sent,
                        Counts received) {
  const int64_t position = positionInTeam(team, rank(), size(), record.kind);
  const CollectiveTraits& t = traits(record.kind);
  const auto blocks = [&](bool forEachRank, Counts counts) {
    return forEachRank ? Blocks{.number = std::ssize(team.ranks), .size = record.count, .sizes = counts}
                       : Blocks{.size = counts.empty() ? record.count : counts[position]};
  };
  const CollectiveCall call{.team = team,
                            .position = position,
                            .record = record,
                            .operand = blocks(t.operandHasBlocks, sent),
                            .result = blocks(t.resultHasBlocks, received),
                            .in = static_cast<const std::byte*>(in),
                            .out = static_cast<std::byte*>(out)};
  checkArguments(call);
  run(call);
}

void Communicator::allReduce(const Team& t, const void* in, void* out, int64_t count, DataType type, ReduceOp op) {
  call(t, {.kind = Collective::AllReduce, .type = type, .op = op, .count = count}, in, out);
}
void Communicator::allGather(const Team& t, const void* in, void* out, int64_t count, DataType type) {
  call(t, {.kind = Collective::AllGather, .type = type, .count = count}, in, out);
}
void Communicator::reduceScatter(const Team& t, const void* in, void* out, int64_t count, DataType type, ReduceOp op) {
  call(t, {.kind = Collective::ReduceScatter, .type = type, .op = op, .count = count}, in, out);
}
void Communicator::allToAll(const Team& t, const void* in, void* out, int64_t count, DataType type) {
  call(t, {.kind = Collective::AllToAll, .type = type, .count = count}, in, out);
}
void Communicator::broadcast(const Team& t, void* buffer, int64_t count, DataType type, int64_t root) {
  call(t,
       {.kind = Collective::Broadcast,
        .type = type,
        .root = checkedRoot(Collective::Broadcast, t, root),
        .count = count},
       buffer, buffer);
}
void Communicator::gather(const Team& t, const void* in, void* out, int64_t count, DataType type, int64_t root) {
  call(t, {.kind = Collective::Gather, .type = type, .root = checkedRoot(Collective::Gather, t, root), .count = count},
       in, out);
}
void Communicator::scatter(const Team& t, const void* in, void* out, int64_t count, DataType type, int64_t root) {
  call(t,
       {.kind = Collective::Scatter, .type = type, .root = checkedRoot(Collective::Scatter, t, root), .count = count},
       in, out);
}
void Communicator::reduce(const Team& t, const void* in, void* out, int64_t count, DataType type,
                          const RootReduction& reduction) {
  call(t,
       {.kind = Collective::Reduce,
        .type = type,
        .op = reduction.op,
        .root = checkedRoot(Collective::Reduce, t, reduction.root),
        .count = count},
       in, out);
}
void Communicator::barrier(const Team& t) { call(t, {.kind = Collective::Barrier}, nullptr, nullptr); }
void Communicator::close() {
  call(world_, {.kind = Collective::Close}, nullptr, nullptr);
  isClosed_ = true;
}

void Communicator::allGatherV(const Team& t, const void* in, void* out, Counts counts, DataType type) {
  call(t, raggedRecord({.kind = Collective::AllGather, .type = type}, t, counts), in, out, counts, counts);
}
void Communicator::reduceScatterV(const Team& t, const void* in, void* out, Counts counts, DataType type, ReduceOp op) {
  call(t, raggedRecord({.kind = Collective::ReduceScatter, .type = type, .op = op}, t, counts), in, out, counts,
       counts);
}
void Communicator::allToAllV(const Team& t, const void* in, void* out, Counts sent, Counts received, DataType type) {
  const int64_t own = positionInTeam(t, rank(), size(), Collective::AllToAll);
  checkCounts(Collective::AllToAll, t, sent);
  checkCounts(Collective::AllToAll, t, received);
  check(sent[own] == received[own], "[all-to-all-v] {}", pairDifference(rank(), sent[own], rank(), received[own]));
  call(t, {.kind = Collective::AllToAll, .type = type, .ragged = true}, in, out, sent, received);
}

Communicator::Survivors Communicator::shrink() {
  Survivors made = survivors();
  if (coreShare_ > 0) {
    made.world->setCoreShare(coreShare_);
  }
  return made;
}

Communicator::Survivors Communicator::survivors() {
  throwUserError(fmt::format(
      "[shrink] the {} transport cannot make a new world of the surviving ranks; restart all ranks", transport()));
}

void Communicator::checkOfLane(const Team& team, Collective kind) const {
  if (kind == Collective::Close) {
    refuseInLane(name(kind));
  }
  for (int64_t r : team.ranks) {
    check(contains(world_.ranks, r),
          "[{}] rank {} is not in the team of {} ranks that this lane belongs to; post the call for a team that "
          "contains it",
          name(kind), r, world_.ranks.size());
  }
}

void Communicator::checkWithinLane(std::span<const Transfer> transfers) const {
  for (const Transfer& t : transfers) {
    check(!isLane_ || contains(world_.ranks, t.peer),
          "[transfer] rank {} is not in the team of {} ranks that this lane belongs to; post the transfer for a team "
          "that contains it",
          t.peer, world_.ranks.size());
  }
}

void Communicator::refuseInLane(std::string_view call) const {
  check(!isLane_, "[{}] called on the lane of a team; call it on the communicator itself", call);
}

void Communicator::count(std::span<const Transfer> transfers) {
  const int64_t own = rank();
  for (const Transfer& t : transfers) {
    const bool receives = t.direction == Transfer::Direction::Recv;
    count(receives ? Collective::Recv : Collective::Send, receives && t.peer != own ? t.bytes : 0);
  }
}

std::shared_ptr<void> allocateOrdinary(size_t bytes) {
  return {hostPool().allocate(bytes), [bytes](void* p) { hostPool().deallocate(p, bytes); }};
}

std::unique_ptr<Communicator> makeSelfCommunicator() { return std::make_unique<SelfCommunicator>(); }

std::shared_ptr<Communicator> sharedDefaultWorld() {
  if (threadWorld != nullptr) {
    return {std::shared_ptr<void>(), threadWorld};
  }
  static thread_local const std::shared_ptr<Communicator> self = makeSelfCommunicator();
  return self;
}

Communicator& defaultWorld() { return *sharedDefaultWorld(); }

void setDefaultWorld(Communicator* world) { threadWorld = world; }

}  // namespace meshfuse
