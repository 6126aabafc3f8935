#include "multidevice/transport/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "base/error.h"
#include "multidevice/transport/call.h"
#include "tensor/allocator.h"

namespace meshfuse {

namespace {

constexpr std::align_val_t kAlignment{256};

class SelfCommunicator final : public Communicator {
 public:
  SelfCommunicator() { world_.ranks = {0}; }

  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view transport() const override { return "self"; }
  std::shared_ptr<void> allocate(size_t bytes) override { return allocateOrdinary(bytes); }

  void allReduce(const Team& t, const void* in, void* out, int64_t count, DataType type, ReduceOp op) override {
    copy(t, {.kind = CallKind::AllReduce, .type = type, .op = op, .count = count}, in, out);
  }
  void allGather(const Team& t, const void* in, void* out, int64_t count, DataType type) override {
    copy(t, {.kind = CallKind::AllGather, .type = type, .count = count}, in, out);
  }
  void reduceScatter(const Team& t, const void* in, void* out, int64_t count, DataType type, ReduceOp op) override {
    copy(t, {.kind = CallKind::ReduceScatter, .type = type, .op = op, .count = count}, in, out);
  }
  void allToAll(const Team& t, const void* in, void* out, int64_t count, DataType type) override {
    copy(t, {.kind = CallKind::AllToAll, .type = type, .count = count}, in, out);
  }
  void allGatherV(const Team& t, const void* in, void* out, std::span<const int64_t> counts, DataType type) override {
    copy(t, raggedRecord({.kind = CallKind::AllGather, .type = type}, t, counts), in, out);
  }
  void reduceScatterV(const Team& t, const void* in, void* out, std::span<const int64_t> counts, DataType type,
                      ReduceOp op) override {
    copy(t, raggedRecord({.kind = CallKind::ReduceScatter, .type = type, .op = op}, t, counts), in, out);
  }
  void allToAllV(const Team& t, const void* in, void* out, std::span<const int64_t> sent,
                 std::span<const int64_t> received, DataType type) override {
    CallRecord call = pairwiseRecord(type, t, positionInTeam(t, 0, 1, CallKind::AllToAll), sent, received);
    call.count = sent[0];
    copy(t, call, in, out);
  }
  void broadcast(const Team& t, void* buffer, int64_t count, DataType type, int root) override {
    copy(t, {.kind = CallKind::Broadcast, .type = type, .root = root, .count = count}, buffer, buffer);
  }
  void barrier(const Team& t) override { copy(t, {.kind = CallKind::Barrier}, nullptr, nullptr); }

  void transfer(std::span<const Transfer> transfers) override {
    checkAlive();
    checkTransfers(transfers, 1);
    moveWithinRank(transfers, 0);
    for (const Transfer& t : transfers) {
      ++counters_[t.direction == Transfer::Direction::Send ? CollectiveKind::Send : CollectiveKind::Recv].calls;
    }
  }
  std::vector<std::string> exchange(std::string_view message) override {
    checkAlive();
    return {std::string(message)};
  }

  void setStep(int64_t, std::string_view) override {}
  void setBusy(bool) override {}
  void abort(std::string_view reason) override { failure_ = fmt::format("[rank 0/1] aborted: {}", reason); }
  Survivors shrink() override {
    checkHasFailed(!failure_.empty());
    return {makeSelfCommunicator(), {0}};
  }
  const TransferCounters& counters() const override { return counters_; }
  void resetCounters() override { counters_ = {}; }

 private:
  void checkAlive() const { deviceCheck(failure_.empty(), "{}", failure_); }

  void copy(const Team& team, const CallRecord& call, const void* in, void* out) {
    checkAlive();
    static_cast<void>(positionInTeam(team, 0, 1, call.kind));
    checkArguments(call, team, in != nullptr && out != nullptr);
    ++counters_[static_cast<CollectiveKind>(call.kind)].calls;
    if (in != out && call.count > 0) {
      std::memmove(out, in, static_cast<size_t>(call.count) * static_cast<size_t>(dataTypeSize(call.type)));
    }
  }

  TransferCounters counters_;
  std::string failure_;
};

thread_local Communicator* threadWorld = nullptr;

}  // namespace

std::string_view name(CollectiveKind kind) {
  static constexpr std::array<std::string_view, 8> kNames = {"all-gather", "all-reduce", "reduce-scatter", "all-to-all",
                                                             "broadcast",  "send",       "receive",        "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

void Communicator::close() { barrier(world_); }

Communicator::Survivors Communicator::shrink() {
  throwUserError(
      fmt::format("[shrink] the {} transport makes no new world of the survivors; start the ranks again", transport()));
}

std::shared_ptr<void> allocateOrdinary(size_t bytes) {
  void* block = ::operator new(std::max<size_t>(bytes, 1), kAlignment);
  const auto counted = static_cast<int64_t>(bytes);
  hostPool().countInUse(counted);
  return {block, [counted](void* p) {
            ::operator delete(p, kAlignment);
            hostPool().countInUse(-counted);
          }};
}

std::unique_ptr<Communicator> makeSelfCommunicator() { return std::make_unique<SelfCommunicator>(); }

Communicator& defaultWorld() {
  if (threadWorld == nullptr) {
    static thread_local SelfCommunicator self;
    return self;
  }
  return *threadWorld;
}

void setDefaultWorld(Communicator* world) { threadWorld = world; }

}  // namespace meshfuse
