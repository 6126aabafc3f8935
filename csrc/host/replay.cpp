#include "host/replay.h"

#include <algorithm>
#include <utility>

#include "base/ranges.h"

namespace meshfuse {

namespace {

bool isRecordable(const Step& step) {
  switch (step.kind) {
    case HostStepKind::Launch:
    case HostStepKind::Routine:
    case HostStepKind::Copy:
      return step.order.queue == 0;
    case HostStepKind::Communicate:
    case HostStepKind::Reference:
      return false;
  }
  return false;
}

}  // namespace

Replay::Replay(const HostProgram& program, int64_t begin, int64_t end) : begin_(begin), end_(end) {
  for (int64_t i = begin; i < end; i++) {
    const Step& s = program.steps[i];
    if (s.kind == HostStepKind::Launch) {
      launches_.push_back(i);
      continue;
    }
    for (const auto* tensors : {&s.reads, &s.writes}) {
      for (const int64_t t : *tensors) {
        if (program.tensors[t].place != Place::Arena) {
          fixedTensors_.push_back(t);
        }
      }
    }
  }
  fixed_.resize(fixedTensors_.size());
  slots_.resize(launches_.size());
}

void Replay::bind(Queue& queue, const std::vector<void*>& pointers) {
  isAsBefore_ = std::exchange(isBound_, true);
  for (const int64_t k : indices(fixedTensors_)) {
    void* const address = pointers[fixedTensors_[k]];
    isAsBefore_ = std::exchange(fixed_[k], address) == address && isAsBefore_;
  }
  if (!isAsBefore_) {
    drop(queue);
  }
}

void Replay::take(Queue& queue, std::unique_ptr<Recording> recording, const LaunchOf& launchOf) {
  drop(queue);
  recording_ = std::move(recording);
  isRecordable_ = recording_ != nullptr;
  for (const int64_t k : indices(launches_)) {
    const Launch launch = launchOf(launches_[k]);
    slots_[k].assign(launch.slots.begin(), launch.slots.end());
  }
}

void Replay::giveUp(Queue& queue) {
  isRecordable_ = false;
  drop(queue);
}

void Replay::drop(Queue& queue) {
  if (recording_ != nullptr) {
    queue.retire(std::move(recording_));
  }
}

Recording& Replay::ofThisCall(const LaunchOf& launchOf) {
  for (const int64_t k : indices(launches_)) {
    const Launch launch = launchOf(launches_[k]);
    if (!std::ranges::equal(launch.slots, slots_[k])) {
      recording_->relaunch(k, launch);
      slots_[k].assign(launch.slots.begin(), launch.slots.end());
    }
  }
  return *recording_;
}

std::vector<Replay> replaysOf(const HostProgram& program) {
  std::vector<bool> isAwaited(program.steps.size());  // by another queue
  for (const Step& s : program.steps) {
    for (const int64_t earlier : s.order.waits) {
      isAwaited[earlier] = isAwaited[earlier] || program.steps[earlier].order.queue != s.order.queue;
    }
  }
  std::vector<Replay> replays;
  int64_t begin = 0;
  const auto close = [&](int64_t end) {
    if (end - begin > 1) {
      replays.emplace_back(program, begin, end);
    }
  };
  for (const int64_t i : indices(program.steps)) {
    const Step& s = program.steps[i];
    const bool waits = std::ranges::any_of(
        s.order.waits, [&](int64_t earlier) { return program.steps[earlier].order.queue != s.order.queue; });
    if (waits || !isRecordable(s) || (i > begin && isAwaited[i - 1])) {
      close(i);
      begin = isRecordable(s) ? i : i + 1;
    }
  }
  close(std::ssize(program.steps));
  return replays;
}

std::optional<std::string> whyOnHost(const Step& step, const DeviceInfo& device) {
  switch (step.kind) {
    case HostStepKind::Launch:
    case HostStepKind::Routine:
    case HostStepKind::Copy:
      return std::nullopt;
    case HostStepKind::Communicate:
      if (device.refuseCollective == nullptr) {
        return "the device has no collectives";
      }
      if (!step.comm.root.isConst()) {
        return "its root is known in the call only";
      }
      return device.refuseCollective({step.comm.kind, step.comm.dtype, step.comm.reduce});
    case HostStepKind::Reference:
      return "the reference interpreter computes it";
  }
  return std::nullopt;
}

std::vector<Replay> jointReplaysOf(const HostProgram& program) {
  std::vector<Replay> replays;
  int64_t begin = 0;
  bool communicates = false;
  const auto close = [&](int64_t end) {
    if (std::exchange(communicates, false)) {
      replays.emplace_back(program, begin, end);
    }
    begin = end + 1;
  };
  for (const int64_t i : indices(program.steps)) {
    if (whyOnHost(program.steps[i], program.device->info())) {
      close(i);
    } else {
      communicates = communicates || program.steps[i].kind == HostStepKind::Communicate;
    }
  }
  close(std::ssize(program.steps));
  return replays;
}

}  // namespace meshfuse
