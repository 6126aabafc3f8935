#include "multidevice/transport/loopback/loopback.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "multidevice/transport/loopback/meeting.h"

namespace meshfuse {

namespace {

class LoopbackCommunicator final : public Communicator {
 public:
  LoopbackCommunicator(std::shared_ptr<LoopbackMeeting> meeting, int rank, LoopbackOptions options)
      : meeting_(std::move(meeting)),
        rank_(rank),
        options_(std::move(options)),
        uncaught_(std::uncaught_exceptions()),
        recorder_(meeting_->flightOf(rank), {.directory = options_.flightDirectory,
                                             .world = meeting_->world(),
                                             .transport = "loopback",
                                             .rank = rank,
                                             .size = meeting_->size()}),
        random_(hashCombine(options_.jitterSeed, static_cast<uint64_t>(rank))) {
    for (int r = 0; r < meeting_->size(); ++r) {
      world_.ranks.push_back(r);
    }
  }
  // A body that ends has said so already; a world of survivors ends with its communicator.
  ~LoopbackCommunicator() override {
    if (std::uncaught_exceptions() > uncaught_) {
      const std::string text = fmt::format("[loopback] {} was left by an exception", meeting_->place(rank_));
      meeting_->fail(text);
      writeRecords(text);
    }
    meeting_->leave(rank_);
  }

  int rank() const override { return rank_; }
  int size() const override { return meeting_->size(); }
  std::string_view transport() const override { return "loopback"; }
  std::shared_ptr<void> allocate(size_t bytes) override { return allocateOrdinary(bytes); }

  void allReduce(const Team& t, const void* in, void* out, int64_t count, DataType type, ReduceOp op) override {
    collective(t, {.kind = CallKind::AllReduce, .type = type, .op = op, .count = count}, in, out, pullAllReduce);
  }
  void allGather(const Team& t, const void* in, void* out, int64_t count, DataType type) override {
    collective(t, {.kind = CallKind::AllGather, .type = type, .count = count}, in, out, pullAllGather);
  }
  void reduceScatter(const Team& t, const void* in, void* out, int64_t count, DataType type, ReduceOp op) override {
    collective(t, {.kind = CallKind::ReduceScatter, .type = type, .op = op, .count = count}, in, out,
               pullReduceScatter);
  }
  void allToAll(const Team& t, const void* in, void* out, int64_t count, DataType type) override {
    collective(t, {.kind = CallKind::AllToAll, .type = type, .count = count}, in, out, pullAllToAll);
  }
  void broadcast(const Team& t, void* buffer, int64_t count, DataType type, int root) override {
    collective(t, {.kind = CallKind::Broadcast, .type = type, .root = root, .count = count}, buffer, buffer,
               [root](const PullCall& call) { return pullBroadcast(call, root); });
  }
  void barrier(const Team& t) override {
    collective(t, {.kind = CallKind::Barrier}, nullptr, nullptr, [](const PullCall&) { return int64_t{0}; });
  }

  void transfer(std::span<const Transfer> transfers) override {
    checkTransfers(transfers, size());
    if (!startCall([&] { return fmt::format("transfer of {} sends and receives", transfers.size()); })) {
      return;
    }
    recorded({.kind = CallKind::Send, .count = static_cast<int64_t>(transfers.size())},
             [&] { meeting_->transfer(rank_, transfers); });
    for (const Transfer& t : transfers) {
      const bool receives = t.direction == Transfer::Direction::Recv;
      TransferCounters::Entry& entry = counters_[receives ? CollectiveKind::Recv : CollectiveKind::Send];
      ++entry.calls;
      entry.bytesReceived += receives && t.peer != rank_ ? t.bytes : 0;
    }
  }

  std::vector<std::string> exchange(std::string_view message) override {
    std::string sent(message);
    bool corrupt = false;
    if (!startCall([&] { return std::string("exchange"); }, &corrupt)) {
      return std::vector<std::string>(static_cast<size_t>(size()));
    }
    if (corrupt && !sent.empty()) {
      sent[sent.size() / 2] = static_cast<char>(sent[sent.size() / 2] ^ 1);
    }
    std::vector<std::string> all;
    const CallRecord call = record(world_, {.kind = CallKind::Exchange});
    recorded(call, [&] {
      meeting_->begin(rank_, world_, call, {}, sent);
      for (int r = 0; r < size(); ++r) {
        all.emplace_back(meeting_->messageOf(r));
      }
      meeting_->synchronize(rank_, world_);
      meeting_->end(rank_);
    });
    return all;
  }

  void setStep(int64_t step, std::string_view what) override {
    meeting_->setStep(rank_, step, what);
    recorder_.setStep(step, what);
  }
  void setBusy(bool busy) override { meeting_->setBusy(rank_, busy); }
  void abort(std::string_view reason) override {
    const std::string text = fmt::format("{} aborted: {}", meeting_->place(rank_), reason);
    meeting_->fail(text);
    writeRecords(text);
  }
  void close() override {
    collective(world_, {.kind = CallKind::Close}, nullptr, nullptr, [](const PullCall&) { return int64_t{0}; });
  }
  Survivors shrink() override {
    LoopbackMeeting::Reunion reunion = meeting_->reunite(rank_);
    const auto newRank = std::lower_bound(reunion.oldRanks.begin(), reunion.oldRanks.end(), rank_);
    return {std::make_unique<LoopbackCommunicator>(
                reunion.meeting, static_cast<int>(newRank - reunion.oldRanks.begin()),
                LoopbackOptions{.deadline = options_.deadline, .flightDirectory = options_.flightDirectory}),
            reunion.oldRanks};
  }
  const TransferCounters& counters() const override { return counters_; }
  void resetCounters() override { counters_ = {}; }

  // This rank's, and those of the ranks that have left.
  void writeRecords(const std::string& failure) {
    recorder_.write(failure);
    for (int p = 0; p < size(); ++p) {
      if (p != rank_ && meeting_->hasLeft(p)) {
        recorder_.writeFor(p, meeting_->flightOf(p), failure);
      }
    }
  }

 private:
  template <class Body>
  void recorded(const CallRecord& call, const Body& body) {
    FlightEvent& event = recorder_.begin(call);
    recorder_.waits();
    try {
      meeting_->throwIfFailed();
      body();
    } catch (const DeviceError& e) {
      writeRecords(e.what());
      throw;
    }
    FlightRecorder::end(event);
  }

  CallRecord record(const Team& team, CallRecord call) const {
    call.teamHash = teamHash(team);
    call.teamMask = teamMask(team);
    call.program = program();
    return call;
  }

  template <class Pull>
  void collective(const Team& team, const CallRecord& given, const void* in, void* out, const Pull& pull) {
    const int position = positionInTeam(team, rank_, size(), given.kind);
    const CallRecord call = record(team, given);
    checkArguments(call, team, in != nullptr && out != nullptr);
    if (!startCall([&] { return describe(call); })) {
      return;
    }
    int64_t received = 0;
    recorded(call, [&] { received = move(team, call, position, in, out, pull); });
    if (call.kind != CallKind::Close) {
      TransferCounters::Entry& entry = counters_[static_cast<CollectiveKind>(call.kind)];
      ++entry.calls;
      entry.bytesReceived += received;
    }
  }

  // Returns the bytes received.
  template <class Pull>
  int64_t move(const Team& team, const CallRecord& call, int position, const void* in, void* out, const Pull& pull) {
    meeting_->begin(rank_, team, call, {static_cast<const std::byte*>(in), static_cast<const std::byte*>(out)});
    const int64_t block = call.count * dataTypeSize(call.type);
    const bool hasBlocks = call.kind == CallKind::ReduceScatter || call.kind == CallKind::AllToAll;
    std::vector<PeerBuffers> peers;
    for (int p : team.ranks) {
      peers.push_back(meeting_->buffersOf(p));
      peers.back().in += hasBlocks ? position * block : 0;
    }
    const std::function<void()> synchronize = [&] { meeting_->synchronize(rank_, team); };
    auto* const result = static_cast<std::byte*>(out);
    const int64_t received = call.count == 0 ? 0
                                             : pull(PullCall{.position = position,
                                                             .peers = peers,
                                                             .out = result,
                                                             .parts = result,
                                                             .count = call.count,
                                                             .outStride = block,
                                                             .type = call.type,
                                                             .op = call.op,
                                                             .synchronize = &synchronize});
    meeting_->synchronize(rank_, team);
    meeting_->end(rank_);
    return received;
  }

  // Traces the call, and lets the faults planned for it happen; false if it is to be dropped.
  template <class Describe>
  bool startCall(const Describe& text, bool* corrupt = nullptr) {
    const int64_t index = calls_++;
    if (options_.trace != nullptr) {
      (*options_.trace)[static_cast<size_t>(rank_)].push_back(text());
    }
    if (options_.jitterSeed != 0) {
      random_ = hashCombine(random_, static_cast<uint64_t>(index));
      if (random_ % 4 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random_ / 4 % 200));
      }
    }
    bool dropped = false;
    for (const LoopbackFault& fault : options_.faults) {
      if (fault.rank != rank_ || fault.call != index) {
        continue;
      }
      switch (fault.kind) {
        case LoopbackFault::Kind::Delay:
          std::this_thread::sleep_for(fault.delay);
          break;
        case LoopbackFault::Kind::Drop:
          dropped = true;
          break;
        case LoopbackFault::Kind::Throw:
          throwUserError(fmt::format("[rank {}/{}] fault planned for call {}: {}", rank_, size(), index, text()));
        case LoopbackFault::Kind::CorruptExchange:
          if (corrupt != nullptr) {
            *corrupt = true;
          }
          break;
      }
    }
    return !dropped;
  }

  std::shared_ptr<LoopbackMeeting> meeting_;
  int rank_;
  LoopbackOptions options_;
  int uncaught_;
  FlightRecorder recorder_;
  uint64_t random_;
  int64_t calls_ = 0;
  TransferCounters counters_;
};

// What a body threw, and whether it did so of its own accord: before anybody else failed.
struct Outcome {
  std::exception_ptr thrown;
  bool first = false;
};

void runRank(const std::shared_ptr<LoopbackMeeting>& shared, int rank, const std::function<void(Communicator&)>& body,
             const LoopbackOptions& options, Outcome& outcome) {
  LoopbackMeeting& meeting = *shared;
  LoopbackCommunicator communicator(shared, rank, options);
  setDefaultWorld(&communicator);
  auto failed = [&](std::string_view why) {
    outcome.thrown = std::current_exception();
    const std::string text = fmt::format("{} failed: {}", meeting.place(rank), why);
    outcome.first = meeting.fail(text);
    communicator.writeRecords(text);
  };
  try {
    body(communicator);
  } catch (const std::exception& e) {
    failed(e.what());
  } catch (...) {
    failed("an exception of unknown type");
  }
  setDefaultWorld(nullptr);
}

}  // namespace

void runLoopback(int ranks, const std::function<void(Communicator&)>& body, const LoopbackOptions& options) {
  check(ranks > 0, "[loopback] {} ranks asked for, expected at least 1", ranks);
  if (options.trace != nullptr) {
    options.trace->assign(static_cast<size_t>(ranks), {});
  }
  static std::atomic<int> runs = 0;
  const auto meeting = std::make_shared<LoopbackMeeting>(ranks, options.deadline, fmt::format("loopback{}", runs++));
  LoopbackOptions ofRank = options;
  if (ofRank.flightDirectory.empty()) {
    ofRank.flightDirectory = flightDirectoryOfEnvironment();
  }
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] { runRank(meeting, r, body, ofRank, outcomes[static_cast<size_t>(r)]); });
    }
  }
  for (const Outcome& o : outcomes) {
    if (o.first) {
      std::rethrow_exception(o.thrown);
    }
  }
  for (const Outcome& o : outcomes) {
    if (o.thrown) {
      std::rethrow_exception(o.thrown);
    }
  }
}

}  // namespace meshfuse
