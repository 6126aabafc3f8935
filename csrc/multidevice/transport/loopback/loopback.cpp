#include "multidevice/transport/loopback/loopback.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "multidevice/transport/lanes.h"
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
  // The lane of a team. Faults and traces are of the calls of the whole.
  LoopbackCommunicator(LoopbackCommunicator& whole, const Team& team)
      : LoopbackCommunicator(
            std::shared_ptr<LoopbackMeeting>(whole.meeting_, &whole.meeting_->lane(team)), whole.rank_,
            {.deadline = whole.options_.deadline,
             .jitterSeed = whole.options_.jitterSeed == 0 ? 0 : hashCombine(whole.options_.jitterSeed, teamHash(team)),
             .flightDirectory = whole.options_.flightDirectory}) {
    world_ = team;
    isLane_ = true;
  }
  // A body that ends has said so already; a world of survivors ends with its communicator.
  ~LoopbackCommunicator() override {
    if (isLane_) {
      return;
    }
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
    collective(t, {.kind = CallKind::AllReduce, .type = type, .op = op, .count = count}, {.size = count}, in, out);
  }
  void allGather(const Team& t, const void* in, void* out, int64_t count, DataType type) override {
    collective(t, {.kind = CallKind::AllGather, .type = type, .count = count}, blocks(t, count), in, out);
  }
  void reduceScatter(const Team& t, const void* in, void* out, int64_t count, DataType type, ReduceOp op) override {
    collective(t, {.kind = CallKind::ReduceScatter, .type = type, .op = op, .count = count}, blocks(t, count), in, out);
  }
  void allToAll(const Team& t, const void* in, void* out, int64_t count, DataType type) override {
    collective(t, {.kind = CallKind::AllToAll, .type = type, .count = count}, blocks(t, count), in, out);
  }
  void allGatherV(const Team& t, const void* in, void* out, std::span<const int64_t> counts, DataType type) override {
    collective(t, raggedRecord({.kind = CallKind::AllGather, .type = type}, t, counts), blocks(t, 0, counts), in, out);
  }
  void reduceScatterV(const Team& t, const void* in, void* out, std::span<const int64_t> counts, DataType type,
                      ReduceOp op) override {
    collective(t, raggedRecord({.kind = CallKind::ReduceScatter, .type = type, .op = op}, t, counts),
               blocks(t, 0, counts), in, out);
  }
  void allToAllV(const Team& t, const void* in, void* out, std::span<const int64_t> sent,
                 std::span<const int64_t> received, DataType type) override {
    const int position = positionInTeam(t, rank_, size(), CallKind::AllToAll);
    collective(t, pairwiseRecord(type, t, position, sent, received), blocks(t, 0, received), in, out, sent);
  }
  void broadcast(const Team& t, void* buffer, int64_t count, DataType type, int root) override {
    collective(t, {.kind = CallKind::Broadcast, .type = type, .root = root, .count = count}, {.size = count}, buffer,
               buffer);
  }
  void barrier(const Team& t) override { collective(t, {.kind = CallKind::Barrier}, {}, nullptr, nullptr); }

  void transfer(std::span<const Transfer> transfers) override {
    checkTransfers(transfers, size());
    if (isLane_) {
      checkWithinLane(world_, transfers);
    }
    if (!startCall([&] { return fmt::format("transfer of {} sends and receives", transfers.size()); })) {
      return;
    }
    recorded({.kind = CallKind::Send, .count = static_cast<int64_t>(transfers.size())},
             [&] { meeting_->transfer(rank_, transfers, program(), programs().get()); });
    for (const Transfer& t : transfers) {
      const bool receives = t.direction == Transfer::Direction::Recv;
      TransferCounters::Entry& entry = counters_[receives ? CollectiveKind::Recv : CollectiveKind::Send];
      ++entry.calls;
      entry.bytesReceived += receives && t.peer != rank_ ? t.bytes : 0;
    }
  }

  Communicator* lane(const Team& team) override {
    if (isLane_) {
      return nullptr;
    }
    return lanes_.of(team, rank_, size(), [&] { return std::make_unique<LoopbackCommunicator>(*this, team); });
  }

  std::vector<std::string> exchange(std::string_view message) override {
    if (isLane_) {
      refuseInLane("exchange");
    }
    std::string sent(message);
    bool corrupt = false;
    if (!startCall([&] { return std::string("exchange"); }, &corrupt)) {
      return std::vector<std::string>(static_cast<size_t>(size()));
    }
    if (corrupt && !sent.empty()) {
      sent[sent.size() / 2] = static_cast<char>(sent[sent.size() / 2] ^ 1);
    }
    std::vector<std::string> all;
    const CallRecord call = stamped({.kind = CallKind::Exchange}, world_, program());
    recorded(call, [&] {
      meeting_->begin(rank_, world_, call, programs().get(), {}, sent);
      for (int r = 0; r < size(); ++r) {
        all.emplace_back(meeting_->messageOf(r));
      }
      meeting_->end(rank_, world_);
    });
    return all;
  }

  void setStep(int64_t step, std::string_view what) override {
    meeting_->setStep(rank_, step, what);
    recorder_.setStep(step, what);
  }
  void setBusy(bool busy) override { meeting_->whole().setBusy(rank_, busy); }
  void abort(std::string_view reason) override {
    const std::string text = fmt::format("{} aborted: {}", meeting_->place(rank_), reason);
    meeting_->fail(text);
    writeRecords(text);
  }
  void close() override {
    if (isLane_) {
      refuseInLane("close");
    }
    collective(world_, {.kind = CallKind::Close}, {}, nullptr, nullptr);
  }
  Survivors shrink() override {
    if (isLane_) {
      refuseInLane("shrink");
    }
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
    } catch (const Error& e) {
      writeRecords(e.what());
      throw;
    }
    FlightRecorder::end(event);
  }

  static Blocks blocks(const Team& team, int64_t size, std::span<const int64_t> sizes = {}) {
    return {.number = static_cast<int64_t>(team.ranks.size()), .size = size, .sizes = sizes};
  }

  // `sent`: of an all-to-all-v; its blocks are those of the output.
  void collective(const Team& team, const CallRecord& given, const Blocks& blocks, const void* in, void* out,
                  std::span<const int64_t> sent = {}) {
    const int position = positionInTeam(team, rank_, size(), given.kind);
    if (isLane_) {
      checkWithinLane(world_, team, given.kind);
    }
    const CallRecord call = stamped(given, team, program());
    checkArguments(call, team, given.ragged || (in != nullptr && out != nullptr));
    if (!startCall([&] { return describe(call); })) {
      return;
    }
    int64_t received = 0;
    recorded(call, [&] {
      meeting_->begin(rank_, team, call, programs().get(),
                      {static_cast<const std::byte*>(in), static_cast<const std::byte*>(out)}, {}, sent);
      received = move(team, call, blocks, position, static_cast<std::byte*>(out));
      meeting_->end(rank_, team);
    });
    if (call.kind != CallKind::Close) {
      TransferCounters::Entry& entry = counters_[static_cast<CollectiveKind>(call.kind)];
      ++entry.calls;
      entry.bytesReceived += received;
    }
  }

  // Returns the bytes received.
  int64_t move(const Team& team, const CallRecord& call, const Blocks& blocks, int position, std::byte* out) {
    const int64_t bytes = dataTypeSize(call.type);
    const bool inputHasBlocks = call.kind == CallKind::ReduceScatter || call.kind == CallKind::AllToAll;
    peers_.clear();
    for (int64_t i = 0; i < static_cast<int64_t>(team.ranks.size()); ++i) {
      const int p = team.ranks[static_cast<size_t>(i)];
      PeerBuffers& b = peers_.emplace_back(meeting_->buffersOf(p));
      Blocks input = blocks;
      if (const std::span<const int64_t> sent = meeting_->sentBy(p); !sent.empty()) {
        input.sizes = sent;
        checkPair(p, sent[static_cast<size_t>(position)], blocks.of(i));
      }
      b.in += inputHasBlocks ? input.begin(position) * bytes : 0;
      b.out = blocks.number > 1 ? out + blocks.begin(i) * bytes : out;
      b.bytes = blocks.number > 1 || inputHasBlocks || call.kind == CallKind::AllGather ? blocks.of(i) * bytes : 0;
    }
    const std::function<void()> synchronize = [&] { meeting_->synchronize(rank_, team); };
    const int64_t count = blocks.number > 1 ? blocks.of(position) : blocks.total();
    const PullCall pull{.position = position,
                        .peers = peers_,
                        .out = out,
                        .parts = out,
                        .count = count,
                        .type = call.type,
                        .op = call.op,
                        .synchronize = &synchronize};
    switch (call.kind) {
      case CallKind::AllReduce:
        return count == 0 ? 0 : pullAllReduce(pull);
      case CallKind::AllGather:
        return pullAllGather(pull);
      case CallKind::ReduceScatter:
        return count == 0 ? 0 : pullReduceScatter(pull);
      case CallKind::AllToAll:
        return pullAllToAll(pull);
      case CallKind::Broadcast:
        return count == 0 ? 0 : pullBroadcast(pull, call.root);
      case CallKind::Send:
      case CallKind::Recv:
      case CallKind::Barrier:
      case CallKind::Exchange:
      case CallKind::Close:
        break;
    }
    return 0;
  }

  void checkPair(int sender, int64_t sent, int64_t expected) {
    if (const std::string text = pairDifference(sender, sent, rank_, expected); !text.empty()) {
      meeting_->fail(fmt::format("[loopback] ranks {} and {} disagree: {}; {}, {}", sender, rank_, text,
                                 meeting_->place(sender), meeting_->place(rank_)));
      meeting_->leaveCall(rank_);
    }
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
  std::vector<PeerBuffers> peers_;  // of the call under way
  int64_t calls_ = 0;
  TransferCounters counters_;
  bool isLane_ = false;  // then its world is the team
  Lanes lanes_;
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
