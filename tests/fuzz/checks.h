// The ways of running a program that must agree, and what is wrong if they do not.
//
// The reference interpreter with its bounds says what is right. A failure is told by stage and message.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/program.h"
#include "interpret/bounds.h"

namespace meshfuse::fuzz {

struct Failure {
  std::string stage;  // text, reference, one rank, ranks, ...
  std::string message;
};

// How well the bounds determine elements.
struct Certainty {
  int64_t elements = 0;
  int64_t vague = 0;      // the bound is not below 1% of the value, or 0.01; of integers and Bools: not 0
  int64_t uncertain = 0;  // within the bound of a discontinuity of the op that made the tensor

  void add(const BoundedTensor& tensor);
  void add(const Certainty& other);
};

// What a check saw beside right results.
struct Observed {
  std::vector<std::string> communication;  // kinds, of rank 0
  int64_t kernels = 0;                     // of one rank
  Certainty certainty;                     // of the outputs, on the ranks of the program
};

// What the outputs must be, and how much of it is known.
struct Reference {
  std::vector<BoundedTensor> onOneRank;
  std::vector<BoundedTensor> onRanks;  // each rank may round its part of a sum; empty if there is one rank
  Certainty certainty;                 // of the bounds with all ranks

  const std::vector<BoundedTensor>& of(bool sharded) const;
};
[[nodiscard]] Reference referenceOf(const Program& program);

// got against a bounded tensor; nothing if it agrees. Elements at a discontinuity are known only to their bound.
[[nodiscard]] std::optional<std::string> difference(const Tensor& got, const BoundedTensor& expected);

// Printing, parsing, printing; the verifier.
[[nodiscard]] std::optional<Failure> checkText(const Program& program);
// FusionExecutorCache on one rank.
[[nodiscard]] std::optional<Failure> checkOneRank(const Program& program, const Reference& reference, bool verify,
                                                  Observed* observed = nullptr);

struct RanksCheck {
  bool verify = false;              // every step of every rank
  std::string_view device = "cpu";  // of each rank, see localDevice()
  int64_t calls = 1;  // each with tensors of its own; all but the first communicate as planned, in calls and bytes
  // Each rank has a device of its own that counts its memory: a call more takes the bytes of the plan. Else only where that is so.
  bool measuresMemory = false;
};
// FusionExecutorCache on program.ranks loopback ranks, each with its shards.
[[nodiscard]] std::optional<Failure> checkRanks(const Program& program, const Reference& reference,
                                                const RanksCheck& how, Observed* observed = nullptr);

// All of the above.
[[nodiscard]] std::optional<Failure> checkProgram(const Program& program, bool verify, Observed* observed = nullptr);
// The same in a process of its own, so that a crash or a hang is a failure like others.
[[nodiscard]] std::optional<Failure> checkInChild(const Program& program, bool verify);
// The ranks of a program on the devices of this name, in a process of its own. On as many GPUs as ranks, each rank measures its memory.
[[nodiscard]] std::optional<Failure> checkOnDevicesInChild(const Program& program, std::string_view device);

}  // namespace meshfuse::fuzz
