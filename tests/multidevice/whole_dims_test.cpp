// Dims of symbolic size that an axis owns whole, one element a rank: of inputs, intermediates and outputs.
#include "base/error.h"
#include "exec/symbolic_program.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/scenario_parts.h"
#include "multidevice/sharding/relation.h"

namespace meshfuse {
namespace {

class WholeDims : public ScenarioTest {
 protected:
  static Tensor random(std::vector<int64_t> sizes, uint64_t seed) {
    return randomTensor(std::move(sizes), DataType::Float, seed, -1, 1);
  }
  static TensorView* symbolicInput(Fusion& f, int dims) {
    TensorView* tv = makeContigTensor(f, dims);
    f.addInput(tv);
    return tv;
  }
  static TensorView* whole(TensorView* tv, int dim, const DeviceMesh& mesh) {
    tv->setDeviceMesh(mesh);
    return tv->parallelize(dim, ParallelType::DIDx);
  }
};

TEST_F(WholeDims, OfInputsReachOutputs) {
  runScenario([](int64_t n) {
    return Scenario{.build =
                        [=](Fusion& f) {
                          const DeviceMesh mesh = DeviceMesh::createForNumDevices(n);
                          TensorView* a = whole(symbolicInput(f, 2), 0, mesh);
                          TensorView* b = whole(symbolicInput(f, 2), 0, mesh);
                          TensorView* c = add(relu(a), b);
                          f.addOutput(c);
                          f.addOutput(sum(c, {1}));
                        },
                    .inputs = {random({n, 5}, 1), random({n, 5}, 2)},
                    .expected = {}};
  });
}

TEST_F(WholeDims, OfIntermediatesAndOutputsOnly) {
  runScenario([](int64_t n) {
    return Scenario{.build =
                        [=](Fusion& f) {
                          const DeviceMesh mesh = DeviceMesh::createForNumDevices(n);
                          TensorView* a = symbolicInput(f, 3);
                          a->setDeviceMesh(mesh);
                          TensorView* b = whole(mul(a, 2.0), 1, mesh);
                          TensorView* c = whole(tanh(b), 1, mesh);
                          f.addOutput(c);
                        },
                    .inputs = {random({3, n, 4}, 1)},
                    .expected = {}};
  });
}

TEST_F(WholeDims, AreGatheredAndMeetBlocks) {
  runScenario([](int64_t n) {
    return Scenario{.build =
                        [=](Fusion& f) {
                          const DeviceMesh mesh = DeviceMesh::createForNumDevices(n);
                          TensorView* a = whole(symbolicInput(f, 2), 0, mesh);
                          TensorView* blocks = relu(a);
                          blocks->setDeviceMesh(mesh);
                          blocks->outer_split(0, n)->axis(0)->parallelize(ParallelType::DIDx);
                          TensorView* all = neg(blocks);
                          all->setDeviceMesh(mesh);
                          f.addOutput(all);
                        },
                    .inputs = {random({n, 6}, 1)},
                    .expected = {.communication = among(n, "all-gather"), .bytes = (n - 1) * 6 * 4}};
  });
}

// The dim that is summed over is one contribution a rank.
TEST_F(WholeDims, AreReduced) {
  runScenario([](int64_t n) {
    return Scenario{.build =
                        [=](Fusion& f) {
                          const DeviceMesh mesh = DeviceMesh::createForNumDevices(n);
                          TensorView* total = sum(whole(symbolicInput(f, 2), 0, mesh), {0});
                          total->setDeviceMesh(mesh);
                          f.addOutput(total);
                        },
                    .inputs = {random({n, 6}, 1)},
                    .expected = {.communication = among(n, "all-reduce"), .bytes = allReduceBytes(6, n)}};
  });
}

// One propagation serves every size of the axis.
TEST_F(WholeDims, OfAnAxisWithoutASize) {
  auto fusion = std::make_unique<Fusion>();
  const DeviceMesh mesh = DeviceMesh::create({{"tp"}});
  TensorView* a = whole(symbolicInput(*fusion, 2), 0, mesh);
  fusion->addOutput(add(relu(a), whole(symbolicInput(*fusion, 2), 0, mesh)));
  SymbolicProgram program(std::move(fusion));
  runOnRanks([&](Communicator& comm) {
    const int64_t n = comm.size();
    const Tensor x = random({n, 6}, 1);
    const Tensor y = random({n, 6}, 2);
    FusionExecutorCache cache(program, {.communicator = &comm, .verify = Verify::Always});
    const std::vector<Argument> local = shardsOfRank(cache.fusion(), {x, y}, comm);
    EXPECT_EQ(cache.runFusionWithInputs(local)[0].sizes()[0], 1);
    EXPECT_TRUE(cache.commSteps().empty()) << cache.planText();
  });
}

// The second operand begins at a whole period of the axis: each rank has one element of every operand.
TEST_F(WholeDims, AreJoinedOnAnAxisWithoutASize) {
  for (const char* axis : {"dp", "tp"}) {  // before and after i0, the size of the dim, by name
    auto fusion = std::make_unique<Fusion>();
    const DeviceMesh mesh = DeviceMesh::create({{axis}});
    TensorView* a = whole(symbolicInput(*fusion, 2), 0, mesh);
    fusion->addOutput(cat({a, a}, 0));
    SymbolicProgram program(std::move(fusion));
    runOnRanks([&](Communicator& comm) {
      const int64_t n = comm.size();
      FusionExecutorCache cache(program, {.communicator = &comm, .verify = Verify::Always});
      const std::vector<Argument> local = shardsOfRank(cache.fusion(), {random({n, 6}, 1)}, comm);
      EXPECT_EQ(cache.runFusionWithInputs(local)[0].sizes()[0], 2);
      EXPECT_TRUE(cache.commSteps().empty()) << cache.planText();
    });
  }
}

TEST_F(WholeDims, OfAnotherSizeAreRefused) {
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    auto fusion = std::make_unique<Fusion>();
    const DeviceMesh mesh = DeviceMesh::createForNumDevices(n);
    TensorView* a = whole(symbolicInput(*fusion, 2), 0, mesh);
    fusion->addOutput(relu(a));
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
    try {
      (void)cache.runFusionWithInputs({random({2, 6}, 1)});
      ADD_FAILURE() << "two elements a rank were taken";
    } catch (const UserError& e) {
      const std::string text = e.what();
      const std::string expected = fmt::format(
          "dim 0 of input 0 (T0) is bound without a split to axis x of size {0}, so its global size must be {0}, got "
          "{1}",
          n, 2 * n);
      EXPECT_NE(text.find(expected), std::string::npos) << text;
    }
  });
}

}  // namespace
}  // namespace meshfuse
