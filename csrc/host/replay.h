// Replay: a piece of a host program that a queue of the device runs with one call, from the second call with the same addresses on.
//
//   step        softmax T3    matmul T4    gelu T5     all-reduce T6    neg T7
//   piece       ---------------------------------                       (one step is no piece)
//
// A replay gives launches the addresses of the call. Matrix products and copies keep the recorded addresses of inputs and outputs: if a call
// has other ones, its steps run one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "host/program.h"

namespace meshfuse {

class Replay {
 public:
  // Of steps [begin, end).
  Replay(const HostProgram& program, int64_t begin, int64_t end);

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  // Puts the steps on the queue. `pointers`: by tensor. execute(i) puts step i on the queue; launchOf(i) is the launch of step i, its slots with
  // the addresses and scalars of this call. `queue` is the same in all calls.
  void run(Queue& queue, const std::vector<void*>& pointers, const std::function<void(int64_t)>& execute,
           const std::function<Launch(int64_t)>& launchOf);

 private:
  void record(Queue& queue, const std::function<void(int64_t)>& execute,
              const std::function<Launch(int64_t)>& launchOf);

  int64_t begin_;
  int64_t end_;
  std::vector<int64_t> launches_;      // steps
  std::vector<int64_t> fixedTensors_;  // whose addresses a recording keeps
  std::vector<void*> fixed_;           // these addresses in the last call
  bool hasRun_ = false;
  bool isRecordable_ = true;
  std::unique_ptr<Recording> recording_;      // with the addresses fixed_; null: none
  std::vector<std::vector<uint64_t>> slots_;  // of the recording, by number of the launch
};

// The longest pieces of at least two steps: work of the device that waits for other queues before its first step only, and for which they wait
// after its last step only.
[[nodiscard]] std::vector<Replay> replaysOf(const HostProgram& program);

}  // namespace meshfuse
