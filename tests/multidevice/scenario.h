// A scenario: a sharded program, run on ranks, compared with the reference on whole tensors, with the communication it took.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "analysis/pass_settings.h"
#include "ir/fusion.h"
#include "multidevice/multidevice_test.h"
#include "tensor/argument.h"

namespace meshfuse {

struct BoundedTensor;

struct Expected {
  std::vector<std::string> communication;   // kinds in order of steps, with team sizes: "all-gather/4"
  int64_t kernels = -1;                     // launches, -1: any
  int64_t bytes = 0;                        // received by a rank in one run
  std::vector<std::string> relations = {};  // aligned, local or comm, of the edges in order; empty: any
};

struct Scenario {
  std::function<void(Fusion&)> build;  // writes the fusion; a FusionGuard is held
  std::vector<Argument> inputs;        // global tensors
  Expected expected;
  std::vector<Expected> byRank = {};  // where ranks differ, instead of `expected`
  PassSettings passes = {};
};

class ScenarioTest : public MultiDeviceTest {
 protected:
  // A scenario as a function of the number of ranks, on 2 and on 4 loopback ranks, or on all ranks of the launcher.
  // Every rank gets its shards, runs twice, and compares its part of every output, its communication, and the transport's
  // counters with the plan; on loopback, all ranks must have made the same sequence of calls.
  void runScenario(const std::function<Scenario(int64_t ranks)>& scenario);
  // On `ranks` loopback ranks, or on the first ones of a launcher; a launcher that started fewer skips the test.
  void runScenarioOn(int ranks, const Scenario& scenario);

 private:
  void runScenarioOnLoopback(int ranks, const std::function<Scenario(int64_t ranks)>& scenario);
};

// `step` among `team` ranks as communication: nothing if there is only one.
[[nodiscard]] std::vector<std::string> among(int64_t team, const std::string& step);

[[nodiscard]] int64_t sumOverRanks(Communicator& comm, int64_t mine);
// Bounds of the whole, cut like the tensor they bound.
[[nodiscard]] BoundedTensor shardOf(const BoundedTensor& whole, const TensorView* tv, int rank);

// Cuts dim `dim` of `tv` in blocks over the named axis, outermost among its loops.
void shardBlock(TensorView* tv, int dim, const DeviceMesh& mesh, std::string_view axis);
[[nodiscard]] TensorView* input(Fusion& fusion, std::vector<int64_t> shape, const DeviceMesh& mesh,
                                DataType type = DataType::Float);

}  // namespace meshfuse
