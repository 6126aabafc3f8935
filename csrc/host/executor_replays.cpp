// Which pieces of a program are replayed: of this rank alone, or of all ranks.
//
// Ranks launch the same collectives in the same graphs, so they agree at the begin of each call:
//
//   rank 0                        rank 1                      all ranks
//   has recording 3               has recording 3             replay it
//   could record these addresses  has recording 3             record
//   has new addresses             has recording 3             run step by step
//   cannot make the call          any                         throw its error
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/ranges.h"
#include "host/arena_registration.h"
#include "host/executor.h"

namespace meshfuse {

namespace {

// Proposals; recording number n is proposed as kRecord + n.
constexpr int64_t kRefuse = -1;
constexpr int64_t kStepByStep = 0;
constexpr int64_t kRecord = 1;
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

// The error of the first rank that refuses a call. `own`: that of this rank, or empty.
std::string refusalOf(Communicator& communicator, std::string_view own) {
  const std::vector<std::string> texts = communicator.exchange(own);
  const auto first = std::ranges::find_if(texts, [](const std::string& text) { return !text.empty(); });
  return fmt::format("{}; rank {} of {} refuses the call with this error", *first, first - texts.begin(), texts.size());
}

}  // namespace

Binding::Replays::Replays(std::vector<Replay> of, size_t steps) : pieces(std::move(of)), at(steps, -1) {
  for (const int64_t k : indices(pieces)) {
    at[pieces[k].begin()] = k;
  }
}

void Binding::meet(Communicator& communicator, std::string_view where, std::span<int64_t> least) const {
  communicator.setStep(-1, where);
  communicator.setProgram(programNumber(identityFor(program_->identity, sizes_->values), 0));
  if (least.empty()) {
    communicator.barrier(communicator.world());
  } else {
    communicator.uncounted([&] {
      communicator.allReduce(communicator.world(), least.data(), least.data(), std::ssize(least), DataType::Int,
                             ReduceOp::Min);
    });
    TransferCounters met;  // it carries nothing of the program, as a barrier
    met[Collective::Barrier].calls = 1;
    communicator.addCounters(met);
  }
  communicator.setProgram(0);
  communicator.setStep(-1, "");
}

void Binding::meetAtBegin(Communicator& communicator, std::span<const Argument> inputs, const ExecuteOptions& options) {
  replaysJointly_ = false;
  if (!isAsynchronous_) {
    pending_.push_back(kRendezvous);
    const bool pauses = pausesCollectives() && std::ranges::any_of(program_->steps, &Step::runsBeside);
    return pauses ? advancePending() : endPending(1);
  }
  const int64_t own = proposal(options);
  const int64_t ofArena = registration_->proposal();
  int64_t bounds[] = {own, own == kAny ? own : -own, ofArena, -ofArena};
  meet(communicator, kBegin, bounds);
  const int64_t least = bounds[0];
  const int64_t most = -bounds[1];
  if (least == kRefuse) {
    std::string why = refusalOf(communicator, "");
    isRefused_ = true;
    throwUserError(std::move(why));
  }
  carrier().begin();
  if (registration_->agree(bounds[2], -bounds[3], carrier())) {
    registerJointly(communicator);
  }
  if (least > kRecord && least == most) {
    replaysJointly_ = true;
  } else if (least != kStepByStep && least != kAny) {
    recordJointly(communicator, inputs);
  }
}

void Binding::refuse(Communicator& communicator, const UserError& why) {
  if (isAsynchronous_) {
    int64_t bounds[] = {kRefuse, -kRefuse, 0, 0};
    meet(communicator, kBegin, bounds);
    throwUserError(refusalOf(communicator, why.what()));
  }
}

int64_t Binding::proposal(const ExecuteOptions& options) {
  bool isRecorded = true;
  bool isWorthRecording = true;
  for (Replay& piece : joint_.pieces) {
    piece.bind(queue_, pointers_);
    isRecorded = isRecorded && piece.isRecorded();
    isWorthRecording = isWorthRecording && piece.isWorthRecording();
  }
  const bool mayReplay = !options.verify && options.profile == nullptr && options.skipStep < 0;
  return joint_.pieces.empty() ? kAny
         : !mayReplay          ? kStepByStep
         : isRecorded          ? kRecord + jointNumber_
         : isWorthRecording    ? kRecord
                               : kStepByStep;
}

int64_t Binding::replayJointly(int64_t number) {
  Replay& piece = joint_.pieces[joint_.at[number]];
  joinForked();
  carrier().replay(queue_, piece.ofThisCall([this](int64_t i) { return launchOf(i); }));
  joinedSteps_ = piece.end();
  fork(piece.end());
  return piece.end();
}

int64_t Binding::put(int64_t number, CommPath& path, std::span<const Argument> inputs) {
  if (replays_.pieces.empty() || replays_.at[number] < 0) {
    execute(number, path, inputs);
    return number + 1;
  }
  Replay& replay = replays_.pieces[replays_.at[number]];
  const auto launchOfStep = [this](int64_t i) { return launchOf(i); };
  const auto steps = [&] {
    for (int64_t i = replay.begin(); i < replay.end(); i++) {
      next_ = i;
      execute(i, direct_, inputs);
    }
  };
  replay.bind(queue_, pointers_);
  if (!replay.isRecorded() && replay.isWorthRecording()) {
    carrier().finishCalls();  // a recording may wait for the device
    replay.take(queue_, queue_.capture(steps), launchOfStep);
  }
  if (replay.isRecorded()) {
    queue_.replay(replay.ofThisCall(launchOfStep));
  } else {
    steps();
  }
  return replay.end();
}

}  // namespace meshfuse
