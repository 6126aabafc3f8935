// Redistributions between random placements, sums among them, as ranks run them.
#include <cstdio>

#include "exec/fusion_executor_cache.h"
#include "interpret/interpret.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/scenario.h"
#include "multidevice/sharding/planner.h"
#include "multidevice/sharding/random_pair.h"

namespace meshfuse {

namespace {

// x and what sums it: y = sum of x over dim 0, which is cut over the axes that `from` is partial over, two rows a rank.
struct Move {
  ShardState from;
  ShardState to;
  std::vector<int64_t> extents;

  int64_t contributions() const {
    int64_t n = 1;
    for (int axis : from.partial) {
      n *= from.mesh.axisSize(axis).constValue();
    }
    return n;
  }

  std::vector<int64_t> inputShape() const {
    std::vector<int64_t> shape = extents;
    if (!from.partial.empty()) {
      shape.insert(shape.begin(), 2 * contributions());
    }
    return shape;
  }

  ShardState inputState() const {
    if (from.partial.empty()) {
      return from;
    }
    std::vector<Digit> owned;
    int64_t stride = 2 * contributions();
    for (int axis : from.partial) {
      stride /= from.mesh.axisSize(axis).constValue();
      owned.push_back({0, stride, from.mesh.axisSize(axis), Owner::device(axis)});
    }
    ShardState state{from.mesh, {fillLocal(0, 2 * contributions(), owned)}, {}};
    for (size_t k = 0; k < extents.size(); k++) {
      std::vector<Digit> moved;
      for (Digit d : from.dims[k].digits()) {
        d.dim = static_cast<int>(k) + 1;
        if (d.owner.isDevice()) {
          moved.push_back(d);
        }
      }
      state.dims.push_back(fillLocal(static_cast<int>(k) + 1, extents[k], moved));
    }
    return state;
  }

  std::unique_ptr<Fusion> program() const {
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    TensorView* x = input(*fusion, inputShape(), from.mesh);
    setShardState(x, inputState());
    TensorView* y = from.partial.empty() ? set(x) : sum(x, {0});
    fusion->addOutput(y);
    setShardState(y, to);
    return fusion;
  }

  std::string toString() const { return from.toString() + " -> " + to.toString(); }
};

// Whole numbers, so that sums are exact in any order.
Tensor wholeNumbers(const std::vector<int64_t>& shape) {
  Tensor t = Tensor::empty(shape, DataType::Float);
  auto* data = static_cast<float*>(t.data());
  int64_t n = 1;
  for (int64_t size : shape) {
    n *= size;
  }
  for (int64_t i = 0; i < n; i++) {
    data[i] = static_cast<float>(i * 37 % 1009 - 500);
  }
  return t;
}

class RandomPairs : public ScenarioTest {
 protected:
  void runPairs(const DeviceMesh& mesh, const std::vector<int64_t>& extents, int count, StateChoice choice) {
    std::mt19937 rng(16);
    std::vector<Move> moves;
    for (int k = 0; k < count; k++) {
      const ShardState from = randomPlacement(rng, mesh, extents, {choice.anyDigit, true});
      moves.push_back({from, randomPlacement(rng, mesh, extents, {choice.anyDigit, false}), extents});
    }
    runOnRanks(static_cast<int>(mesh.numDevices()), [&](Communicator& comm) {
      for (const Move& move : moves) {
        SCOPED_TRACE(move.toString());
        ASSERT_NO_FATAL_FAILURE(runMove(comm, move));
      }
    });
  }

 private:
  static void runMove(Communicator& comm, const Move& move) {
    std::unique_ptr<Fusion> program = move.program();
    const Tensor whole = wholeNumbers(move.inputShape());
    const std::vector<Tensor> expected = interpret(*program, {whole});
    const std::vector<Argument> mine = shardsOfRank(*program, {whole}, comm);
    FusionExecutorCache cache(std::move(program), {.communicator = &comm, .verify = Verify::Always});
    const std::vector<Tensor> got = cache.runFusionWithInputs(mine);
    const TensorView* y = cache.planned()->outputs()[0]->asTensor();
    const Tensor part = shardTensor(expected[0], y, comm.rank()).contiguous();
    const Tensor result = got[0].to(DeviceId::cpu()).contiguous();
    ASSERT_TRUE(std::ranges::equal(result.sizes(), part.sizes()));
    const auto* a = static_cast<const float*>(result.data());
    const auto* b = static_cast<const float*>(part.data());
    ASSERT_TRUE(std::equal(a, a + part.numel(), b)) << cache.planText();
    int64_t bytes = 0;
    for (const CommRecord& c : cache.commSteps()) {
      bytes += c.bytesReceived;
    }
    const RedistributionPlan plan = planRedistribution(move.from, move.to);
    EXPECT_LE(cache.commSteps().size(), 4U) << cache.planText();
    EXPECT_LE(bytes, plan.elements * 4) << cache.planText();
  }
};

TEST_F(RandomPairs, OnALine) { runPairs(DeviceMesh::create({{"x", 2}}), {4, 6}, 24, {.anyDigit = true}); }

TEST_F(RandomPairs, OnASquare) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 2}});
  runPairs(mesh, {8, 4}, 40, {.anyDigit = false});
  runPairs(mesh, {8, 4}, 40, {.anyDigit = true});
}

TEST_F(RandomPairs, OnThreeAxes) {
  runPairs(DeviceMesh::create({{"x", 2}, {"y", 3}, {"z", 2}}), {12, 6, 4}, 16, {.anyDigit = false});
}

}  // namespace

}  // namespace meshfuse
