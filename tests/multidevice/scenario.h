// A scenario: a sharded program, run on ranks, compared with the reference on whole tensors, with the communication it took.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/fusion.h"
#include "multidevice/multidevice_test.h"
#include "tensor/argument.h"

namespace meshfuse {

struct Expected {
  std::vector<std::string> communication;  // kinds in order of steps, with team sizes: "all-gather/4"
  int64_t kernels = -1;                    // launches, -1: any
  int64_t bytes = -1;                      // received by a rank in one run, -1: any
};

class ScenarioTest : public MultiDeviceTest {
 protected:
  // `build` writes the fusion (a FusionGuard is held); inputs are global tensors. Every rank gets its shards, runs twice, and
  // compares its part of every output, its communication, and the transport's counters with the plan.
  void runScenario(int ranks, const std::function<void(Fusion&)>& build, const std::vector<Argument>& inputs,
                   const Expected& expected);
};

// Cuts dim `dim` of `tv` in blocks over the named axis, outermost among its loops.
void shardBlock(TensorView* tv, int dim, const DeviceMesh& mesh, std::string_view axis);
[[nodiscard]] TensorView* input(Fusion& fusion, std::vector<int64_t> shape, const DeviceMesh& mesh,
                                DataType type = DataType::Float);

}  // namespace meshfuse
