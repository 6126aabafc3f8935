#include "multidevice/transport/loopback/loopback.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "multidevice/transport/lanes.h"
#include "multidevice/transport/loopback/rendezvous.h"

namespace meshfuse {

namespace {

class LoopbackCommunicator final : public Communicator {
 public:
  LoopbackCommunicator(std::shared_ptr<LoopbackRendezvous> rendezvous, int64_t rank, LoopbackOptions options)
      : rendezvous_(std::move(rendezvous)),
        rank_(rank),
        options_(std::move(options)),
        recorder_(rendezvous_->flightOf(rank), {.directory = options_.flightDirectory,
                                                .world = rendezvous_->world(),
                                                .transport = "loopback",
                                                .rank = rank,
                                                .size = rendezvous_->size()}),
        random_(hashCombine(options_.jitterSeed, static_cast<uint64_t>(rank))) {
    world_.ranks = firstRanks(size());
  }
  // The lane of a team. Faults and traces apply to the calls of the whole world only.
  LoopbackCommunicator(LoopbackCommunicator& whole, const Team& team)
      : LoopbackCommunicator(
            std::shared_ptr<LoopbackRendezvous>(whole.rendezvous_, &whole.rendezvous_->lane(team)), whole.rank_,
            {.deadline = whole.options_.deadline,
             .link = whole.options_.link,
             .jitterSeed = whole.options_.jitterSeed == 0 ? 0 : hashCombine(whole.options_.jitterSeed, teamHash(team)),
             .flightDirectory = whole.options_.flightDirectory}) {
    world_ = team;
    isLane_ = true;
    recorder_.isOfLaneOf(whole.recorder_);
  }
  // A body that has ended has reported it already; a world of survivors ends with its communicator.
  ~LoopbackCommunicator() override {
    if (isLeftByException()) {
      rendezvous_->fail(
          fmt::format("[loopback] {} closed its communicator because of an exception", rendezvous_->place(rank_)));
    }
    if (const std::optional<GroupFailure> failure = rendezvous_->failure()) {
      writeRecords(failure->text);
    }
    if (!isLane_) {
      rendezvous_->leave(rank_);
    }
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return rendezvous_->size(); }
  std::string_view transport() const override { return "loopback"; }
  bool sparesProcessor() const override { return options_.link.delay.count() > 0 || options_.link.bytesPerSecond > 0; }
  std::shared_ptr<void> allocate(size_t bytes) override { return allocateOrdinary(bytes); }

  void run(const CollectiveCall& given) override {
    checkWithinLane(given.team, given.record.kind);
    CollectiveCall call = given;
    call.record = stamped(given.record, given.team, program());
    if (!startCall([&] { return describe(call.record); })) {
      return;
    }
    int64_t received = 0;
    recorded(call.record, [&] {
      rendezvous_->begin(rank_, call.team,
                         {.record = call.record,
                          .programs = programs().get(),
                          .buffers = {call.in, call.out},
                          .sent = isPairwise(call.record) ? call.operand.sizes : std::span<const int64_t>()});
      received = call.gets() ? move(call) : 0;
      takeTime(received);
      rendezvous_->end(rank_, call.team);
    });
    count(call.record.kind, received);
  }

  void transfer(std::span<const Transfer> transfers) override {
    checkTransfers(transfers, size());
    checkWithinLane(transfers);
    if (!startCall([&] { return fmt::format("transfer of {} sends and receives", transfers.size()); })) {
      return;
    }
    recorded({.kind = Collective::Send, .count = std::ssize(transfers)}, [&] {
      rendezvous_->transfer(rank_, transfers, program(), programs().get());
      takeTime(
          sumOf(transfers, [](const Transfer& t) { return t.direction == Transfer::Direction::Recv ? t.bytes : 0; }));
    });
    count(transfers);
  }

  void await(const Team& team, const std::function<bool()>& ready) override { rendezvous_->await(rank_, team, ready); }

  Communicator* lane(const Team& team) override {
    const auto make = [&] { return std::make_unique<LoopbackCommunicator>(*this, team); };
    return isLane_ ? nullptr : lanes_.of(team, rank_, size(), make);
  }

  std::vector<std::string> exchange(std::string_view message) override {
    refuseInLane("exchange");
    std::string sent(message);
    bool corrupt = false;
    if (!startCall([&] { return std::string("exchange"); }, &corrupt)) {
      return std::vector<std::string>(size());
    }
    if (corrupt && !sent.empty()) {
      sent[sent.size() / 2] = static_cast<char>(sent[sent.size() / 2] ^ 1);
    }
    std::vector<std::string> all;
    const CallRecord call = stamped({.kind = Collective::Exchange}, world_, program());
    recorded(call, [&] {
      rendezvous_->begin(rank_, world_, {.record = call, .programs = programs().get(), .message = sent});
      all = mapped<std::string>(world_.ranks, [&](int64_t r) { return rendezvous_->callOf(r).message; });
      rendezvous_->end(rank_, world_);
    });
    return all;
  }

  void setStep(int64_t step, std::string_view what) override {
    rendezvous_->setStep(rank_, step, what);
    recorder_.setStep(step, what);
  }
  void setBusy(bool busy) override { rendezvous_->whole().setBusy(rank_, busy); }
  void abort(std::string_view reason) override {
    recorder_.abort();
    rendezvous_->fail(fmt::format("{} aborted: {}", rendezvous_->place(rank_), reason));
  }
  Survivors survivors() override {
    refuseInLane("shrink");
    const LoopbackRendezvous::Rejoin rejoin = rendezvous_->rejoin(rank_);
    const auto newRank = positionIn(rejoin.oldRanks, rank_);
    const LoopbackOptions options{.deadline = options_.deadline, .flightDirectory = options_.flightDirectory};
    return {std::make_unique<LoopbackCommunicator>(rejoin.rendezvous, newRank, options), rejoin.oldRanks};
  }

  // Writes the records of this rank and of the ranks that have left.
  void writeRecords(const std::string& failure) {
    recorder_.write(failure);
    for (int64_t p = 0; p < size(); ++p) {
      if (p != rank_ && rendezvous_->hasLeft(p)) {
        recorder_.writeFor(p, rendezvous_->flightOf(p), failure);
      }
    }
  }

 private:
  // Makes a call, with its record. An exception of any kind that leaves it is a failure of all ranks.
  template <class Body>
  void recorded(const CallRecord& call, const Body& body) {
    try {
      if (recorder_.hasAborted()) {
        rendezvous_->throwIfFailed();
      }
      FlightEvent& event = recorder_.begin(call);
      recorder_.waits();
      rendezvous_->throwIfFailed();
      body();
      FlightRecorder::end(event);
    } catch (...) {
      writeRecords(rendezvous_->leaveByException(rank_));
      throw;
    }
  }

  void takeTime(int64_t bytesReceived) const {
    const LoopbackLink& link = options_.link;
    const double seconds = link.bytesPerSecond > 0 ? static_cast<double>(bytesReceived) / link.bytesPerSecond : 0;
    const std::chrono::duration<double> time = link.delay + std::chrono::duration<double>(seconds);
    if (time.count() > 0) {
      std::this_thread::sleep_for(time);
    }
  }

  // Returns the bytes received.
  int64_t move(const CollectiveCall& call) {
    const int64_t bytes = call.elementBytes();
    peers_.clear();
    for (const int64_t i : indices(call.team.ranks)) {
      const int64_t p = call.team.ranks[i];
      PeerBuffers& b = peers_.emplace_back(rendezvous_->callOf(p).buffers);
      Blocks theirs = call.operand;
      if (isPairwise(call.record)) {
        theirs.sizes = rendezvous_->callOf(p).sent;
        checkPair(p, theirs.of(call.position), call.result.of(i));
      }
      b.in += call.traits().operandHasBlocks && call.gives(i) ? theirs.begin(call.position) * bytes : 0;
      b.out = call.out + (call.traits().resultHasBlocks ? call.result.begin(i) * bytes : 0);
      b.bytes = call.traits().resultHasBlocks ? call.result.of(i) * bytes : 0;
    }
    const std::function<void()> synchronize = [&] { rendezvous_->synchronize(rank_, call.team); };
    return pull({.position = call.position,
                 .peers = peers_,
                 .out = call.out,
                 .parts = call.out,
                 .count = call.result.of(0),
                 .type = call.record.type,
                 .op = call.record.op,
                 .kind = call.record.kind,
                 .root = call.record.root,
                 .synchronize = &synchronize});
  }

  void checkPair(int64_t sender, int64_t sent, int64_t expected) {
    if (const std::string text = pairDifference(sender, sent, rank_, expected); !text.empty()) {
      rendezvous_->failCall(rank_, fmt::format("[loopback] ranks {} and {} disagree: {}; {}, {}", sender, rank_, text,
                                               rendezvous_->place(sender), rendezvous_->place(rank_)));
    }
  }

  // Traces the call, and lets the faults planned for it happen; false if it is to be dropped.
  template <class Describe>
  bool startCall(const Describe& text, bool* corrupt = nullptr) {
    const int64_t index = calls_++;
    if (options_.trace != nullptr) {
      (*options_.trace)[rank_].push_back(text());
    }
    if (options_.jitterSeed != 0) {
      random_ = hashCombine(random_, static_cast<uint64_t>(index));
      if (random_ % 4 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random_ / 4 % 200));
      }
    }
    bool dropped = false;
    const auto isDue = [&](const LoopbackFault& fault) { return fault.rank == rank_ && fault.call == index; };
    for (const LoopbackFault& fault : options_.faults | std::views::filter(isDue)) {
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

  std::shared_ptr<LoopbackRendezvous> rendezvous_;
  int64_t rank_;
  LoopbackOptions options_;
  FlightRecorder recorder_;
  uint64_t random_;
  std::vector<PeerBuffers> peers_;  // of the call under way
  int64_t calls_ = 0;
  Lanes lanes_;
};

// The exception of a body, and whether it was the first failure of the group.
struct Outcome {
  std::exception_ptr thrown;
  bool first = false;
};

void runRank(const std::shared_ptr<LoopbackRendezvous>& shared, int64_t rank,
             const std::function<void(Communicator&)>& body, const LoopbackOptions& options, Outcome& outcome) {
  LoopbackRendezvous& rendezvous = *shared;
  LoopbackCommunicator communicator(shared, rank, options);
  setDefaultWorld(&communicator);
  auto failed = [&](std::string_view why) {
    outcome.thrown = std::current_exception();
    outcome.first = rendezvous.fail(fmt::format("{} failed: {}", rendezvous.place(rank), why));
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

void runLoopback(int64_t ranks, const std::function<void(Communicator&)>& body, const LoopbackOptions& options) {
  check(ranks > 0, "[loopback] got {} ranks, expected at least 1", ranks);
  if (options.trace != nullptr) {
    options.trace->assign(ranks, {});
  }
  static std::atomic<int64_t> runs = 0;
  const auto rendezvous =
      std::make_shared<LoopbackRendezvous>(ranks, options.deadline, fmt::format("loopback{}", runs++));
  LoopbackOptions ofRank = options;
  ofRank.flightDirectory = flightDirectory(options.flightDirectory);
  std::vector<Outcome> outcomes(ranks);
  {
    std::vector<std::jthread> threads;
    for (int64_t r = 0; r < ranks; ++r) {
      threads.emplace_back([&, r] { runRank(rendezvous, r, body, ofRank, outcomes[r]); });
    }
  }
  for (const bool first : {true, false}) {
    for (const Outcome& o : outcomes) {
      if (o.thrown && o.first == first) {
        std::rethrow_exception(o.thrown);
      }
    }
  }
}

}  // namespace meshfuse
