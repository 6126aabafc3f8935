// Scans and top-k along a cut dim: what ranks send, by the plan and by the counters of the transport.
#include "meshfuse/meshfuse.h"
#include "multidevice/scenario_parts.h"

namespace meshfuse {
namespace {

class CutLines : public ScenarioTest {
 protected:
  static constexpr int64_t kRows = 6;
  static constexpr int64_t kWidth = 48;
  static std::vector<Argument> inputs() { return {randomTensor({kRows, kWidth}, DataType::Float, 1, -1, 1)}; }

  // A Float for each line and other block.
  static Scenario scanned(int64_t n) {
    return {.build =
                [=](Fusion& f) {
                  const DeviceMesh mesh = DeviceMesh::createForNumDevices(n);
                  TensorView* x = input(f, {kRows, kWidth}, mesh);
                  x->outer_split(1, n)->axis(1)->parallelize(ParallelType::DIDx);
                  f.addOutput(mul(cumsum(add(x, 1.0), 1), 0.5));
                },
            .inputs = inputs(),
            .expected = {.communication = among(n, "all-gather"), .bytes = kRows * (n - 1) * 4}};
  }
  // Three Floats for each line and other block.
  static Scenario firstThree(int64_t n) {
    return {.build =
                [=](Fusion& f) {
                  const DeviceMesh mesh = DeviceMesh::createForNumDevices(n);
                  TensorView* x = input(f, {kRows, kWidth}, mesh);
                  x->outer_split(1, n)->axis(1)->parallelize(ParallelType::DIDx);
                  f.addOutput(topk(x, 3, 1).values);
                },
            .inputs = inputs(),
            .expected = {.communication = among(n, "all-gather"), .bytes = kRows * (n - 1) * 3 * 4}};
  }
};

TEST_F(CutLines, AScanGathersANumberForEachBlock) { runScenario(scanned); }

TEST_F(CutLines, TopKGathersCandidates) { runScenario(firstThree); }

TEST_F(CutLines, OnThreeRanks) {
  runScenarioOn(3, scanned(3));
  runScenarioOn(3, firstThree(3));
}

// The blocks of both axes are in the order of the axes.
TEST_F(CutLines, OverTwoAxesOfAGrid) {
  const DeviceMesh grid = DeviceMesh::createForShape({2, 2});
  runScenarioOn(4, Scenario{.build =
                                [=](Fusion& f) {
                                  TensorView* x = input(f, {kRows, kWidth}, grid);
                                  x->outer_split(1, 4)->outer_split(1, 2);
                                  x->axis(1)->parallelize(ParallelType::DIDy);
                                  x->axis(2)->parallelize(ParallelType::DIDx);
                                  f.addOutput(scan(x, 1, ReduceOp::Max));
                                },
                            .inputs = inputs(),
                            .expected = {.communication = {"all-gather/4"}, .bytes = kRows * 3 * 4}});
}

}  // namespace
}  // namespace meshfuse
