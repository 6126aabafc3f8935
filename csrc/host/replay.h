// Replay: a piece of a host program that a queue of the device runs with one call, from the second call with the same addresses on.
//
//   step                 softmax T3    matmul T4    gelu T5     all-reduce T6    neg T7
//   piece of one rank    ---------------------------------                       (one step is no piece)
//   piece of all ranks   --------------------------------------------------------------
//
// A replay gives launches the addresses of the call. All other steps keep the recorded addresses of inputs and outputs: a recording is for
// calls with the same ones.
//
// Pieces with collectives are recorded and replayed by all ranks or by none, so the ranks agree (executor_replays.cpp). In a call in which they
// do not, the pieces between collectives are replayed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/program.h"

namespace meshfuse {

class Replay {
 public:
  using LaunchOf = std::function<Launch(int64_t)>;  // of a step, its slots with the addresses and scalars of this call

  // Of steps [begin, end).
  Replay(const HostProgram& program, int64_t begin, int64_t end);

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  // The addresses of a call, by tensor. If the recording has other ones, `queue` destroys it.
  void bind(Queue& queue, const std::vector<void*>& pointers);
  bool isRecorded() const { return recording_ != nullptr; }
  // The addresses are those of the call before, and the device has not refused a recording.
  bool isWorthRecording() const { return isAsBefore_ && isRecordable_; }
  // Of the steps, with the addresses of this call; null if the device cannot record them. `queue` destroys the one before.
  void take(Queue& queue, std::unique_ptr<Recording> recording, const LaunchOf& launchOf);
  // Not every rank could record the piece: it is not tried again.
  void giveUp(Queue& queue);
  // The recording, whose launches have the slots of this call.
  Recording& ofThisCall(const LaunchOf& launchOf);

 private:
  void drop(Queue& queue);

  int64_t begin_;
  int64_t end_;
  std::vector<int64_t> launches_;      // steps
  std::vector<int64_t> fixedTensors_;  // whose addresses a recording keeps
  std::vector<void*> fixed_;           // these addresses in the last call
  bool isBound_ = false;
  bool isAsBefore_ = false;
  bool isRecordable_ = true;
  std::unique_ptr<Recording> recording_;      // with the addresses fixed_; null: none
  std::vector<std::vector<uint64_t>> slots_;  // of the recording, by number of the launch
};

// The longest pieces of at least two steps: work of the device that waits for other queues before its first step only, and for which they wait
// after its last step only.
[[nodiscard]] std::vector<Replay> replaysOf(const HostProgram& program);
// The longest pieces with collectives, on all queues of the device. A collective is in such a piece on all ranks or on none.
[[nodiscard]] std::vector<Replay> jointReplaysOf(const HostProgram& program);
// Why a step depends on the host, and so is in no piece of all ranks; nothing if it is in one.
[[nodiscard]] std::optional<std::string> whyOnHost(const Step& step, const DeviceInfo& device);

}  // namespace meshfuse
