// What the scheduler of communication decided, in words: where each tensor lives, what each edge needs, which steps move it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace meshfuse {

class Fusion;

struct TensorNote {
  std::string tensor;    // T3
  std::string sharding;  // S0(x) R on {x: 4}[0, 1, 2, 3]
};

struct EdgeNote {
  std::string producer;
  std::string consumer;
  std::string relation;  // aligned, local, comm
  std::string reason;
};

struct StepNote {
  std::string producer;
  std::string consumer;
  std::string step;   // all_gather(x)
  int64_t bytes = 0;  // received by the busiest rank
  std::string note;   // why the plan is not a better one; empty otherwise
};

struct ShardingReport {
  std::vector<TensorNote> tensors;
  std::vector<EdgeNote> edges;  // those that are not aligned
  std::vector<StepNote> steps;  // of all Redistributes, in order

  int64_t bytes() const;
  std::string toString() const;
};

// Of a fusion with constant sizes, before or after decompose_reshardings: steps are those of its Redistributes.
[[nodiscard]] ShardingReport explainSharding(const Fusion& fusion);

}  // namespace meshfuse
