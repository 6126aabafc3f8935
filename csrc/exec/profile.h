// Profile: the times of the steps of a call, with the bytes that each step moves.
//
//   Profile p = cache.profile(inputs, 10);   // each step: the fastest of 10 calls
//   fmt::print("{}", p.text());
//
//   rank 0: 0.050 ms a call, 0.004 ms in kernels and library calls, 0.046 ms in collectives
//            us    GB/s         read      written     received  step
//           2.2   12.19        10240        16384               linear T3[128, 32, r{16}]
//          45.7    0.18         8192         8192         8192  all-reduce T5[128, 16]
//
// The calls run the plan and the steps that run() runs. Steps that run beside each other are timed side by side, so the times of all steps may
// exceed that of the call. Where a collective has paused in a fiber, its time lasts until it has gone on and ended, with the kernels that ran
// meanwhile. On a GPU the times of steps are those between events on their streams, and no graph is replayed: the call takes
// longer than run().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace meshfuse {

struct StepTime {
  std::string name;  // in the plan: "pointwise T2[4, 8]", "all-reduce T4"
  std::string kind;  // as of ExplainedStep: kernel, library, communicate, copy, reference
  double seconds = 0;
  int64_t bytesRead = 0;  // the sizes of the tensors that it reads, each once
  int64_t bytesWritten = 0;
  int64_t bytesReceived = 0;  // of a collective, as counted by the transport

  bool communicates() const { return kind == "communicate"; }
};

struct Profile {
  int64_t rank = 0;
  double seconds = 0;  // of a call with a plan, from its arguments to its results
  std::vector<StepTime> steps;

  [[nodiscard]] std::string text() const;
  // One object: rank, seconds, steps (name, kind, seconds, bytes_read, bytes_written, bytes_received).
  [[nodiscard]] std::string json() const;
};

}  // namespace meshfuse
