// Predicted and measured times of the steps of a host program.
#include "exec/timed_steps.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/ranges.h"
#include "exec/fusion_executor_cache.h"
#include "host/program.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

constexpr int64_t kTwoRanks = 2;

// Rows cut over the ranks: a kernel with two functions, a product whose contracted dim is cut, and its all-reduce.
std::unique_ptr<Fusion> rowsAndProduct() {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(kTwoRanks);
  TensorView* x = input(*fusion, {8, 64});
  TensorView* w = input(*fusion, {16, 64});
  for (TensorView* tv : {x, w}) {
    tv->setDeviceMesh(mesh);
    tv->outer_split(1, kTwoRanks)->axis(1)->parallelize(ParallelType::DIDx);
  }
  TensorView* y = linear(add(exp(x), tanh(x)), w);
  y->setDeviceMesh(mesh);
  fusion->addOutput(y);
  return fusion;
}

TEST(TimedSteps, ArePredictedFromTheirWork) {
  runLoopback(kTwoRanks, [](Communicator& comm) {
    FusionExecutorCache cache(rowsAndProduct(), {.communicator = &comm});
    (void)cache.runFusionWithInputs({random({8, 32}), random({16, 32})});
    const std::shared_ptr<const HostProgram> host = cache.hostProgram();
    ASSERT_EQ(host->steps.size(), 3U);
    // each number changes one step
    const DistributedConfig machines{.devicesPerMachine = kTwoRanks,
                                     .within = {.bandwidth = 1e3, .latency = 0.25},
                                     .device = {.flops = 1e9,
                                                .bandwidth = 1e9,
                                                .launch = 1e-3,
                                                .products = {{{"linear", DataType::Float, 32}, {{{1, 1}, {1e6, 1e6}}}}},
                                                .functions = {{{1, 1}, {1e6, 1e6}}}}};
    const std::vector<double> times = predictSteps(*host, machines);
    ASSERT_EQ(times.size(), 3U);
    // elements of functions are 1 s each, and added to those of other ops
    EXPECT_NEAR(times[0], 2 * 8 * 32, 1e-5);
    EXPECT_NEAR(times[1], 2 * 8 * 16 * 32, 1e-5) << "flops are 1 s each";
    EXPECT_NEAR(times[2], 0.25 + 8 * 16 * 4 / 1e3, 1e-9);

    DistributedConfig others = machines;
    others.devicesPerMachine = 1;
    others.machines = kTwoRanks;
    others.between.collectives = {{Collective::AllReduce, kTwoRanks, {{{1, 7}, {1e6, 7}}}}};
    EXPECT_NEAR(predictSteps(*host, others)[2], 7, 1e-9);
  });
}

// A table is not read whole: only the rows that an index names.
TEST(TimedSteps, CountOnlyTheRowsThatAnIndexNames) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* ids = input(*fusion, {4}, DataType::Int);
  TensorView* words = input(*fusion, {1000, 8});
  fusion->addOutput(embedding_fwd(ids, words));
  FusionExecutorCache cache(std::move(fusion));
  (void)cache.runFusionWithInputs({Tensor::zeros({4}, DataType::Int), random({1000, 8})});
  const DistributedConfig machines{.device = {.flops = 1e9, .bandwidth = 1, .launch = 0}};
  const std::vector<double> times = predictSteps(*cache.hostProgram(), machines);
  ASSERT_EQ(times.size(), 1U);
  EXPECT_NEAR(times[0], 4 * 8 + 4 * 8 * 4, 1e-5) << "ids and results";
}

// A kernel computes and reads only what its slices take: here the columns of the rank.
TEST(TimedSteps, CountOnlyTheElementsThatSlicesTake) {
  const auto secondsOf = [](bool isOutput, double flops, double bandwidth) {
    double seconds = 0;
    runLoopback(kTwoRanks, [&](Communicator& comm) {
      auto fusion = std::make_unique<Fusion>();
      FusionGuard guard(fusion.get());
      TensorView* x = input(*fusion, {64, 40});
      TensorView* y = mul(x, x);
      TensorView* sums = sum(y, {0});
      for (TensorView* tv : {x, y, sums}) {
        tv->setDeviceMesh(DeviceMesh::createForNumDevices(kTwoRanks));
      }
      sums->outer_split(1, kTwoRanks)->axis(1)->parallelize(ParallelType::DIDx);
      fusion->addOutput(sums);
      if (isOutput) {
        fusion->addOutput(y);
      }
      FusionExecutorCache cache(std::move(fusion), {.communicator = &comm});
      (void)cache.runFusionWithInputs({random({64, 40})});
      if (comm.rank() == 0) {
        seconds = sumOf(predictSteps(
            *cache.hostProgram(),
            {.devicesPerMachine = kTwoRanks, .device = {.flops = flops, .bandwidth = bandwidth, .launch = 0}}));
      }
    });
    return seconds;
  };
  EXPECT_NEAR(secondsOf(false, 1e9, 1), (64 * 20 + 20) * 4, 1e-3);
  EXPECT_NEAR(secondsOf(false, 1, 1e9), 3 * 64 * 20, 1e-3) << "the product, the slice and the sum";
  EXPECT_GE(secondsOf(true, 1e9, 1), 2 * 64 * 40 * 4) << "the products are an output";
}

TEST(TimedSteps, AreMeasuredTogether) {
  std::vector<double> seconds(kTwoRanks);
  runLoopback(kTwoRanks, [&](Communicator& comm) {
    FusionExecutorCache cache(rowsAndProduct(), {.communicator = &comm});
    const Profile p = timeSteps(cache, {random({8, 32}), random({16, 32})}, comm, 1e-3);
    EXPECT_EQ(p.rank, comm.rank());
    ASSERT_EQ(p.steps.size(), 3U);
    double sum = 0;
    for (const StepTime& step : p.steps) {
      EXPECT_GT(step.seconds, 0);
      sum += step.seconds;
    }
    EXPECT_GE(p.seconds, sum) << "the longest call";
    seconds[comm.rank()] = p.seconds;
  });
  EXPECT_EQ(seconds[0], seconds[1]);
}

TEST(TimedSteps, AreScaledToTheRankOnWhichTheyTakeLongest) {
  const std::vector<std::vector<double>> measured{{4, 1, 1}, {7, 4, 2}};  // a call, then its steps
  EXPECT_EQ(timesOfRanks(measured, 0), (std::vector<double>{7, 3.75, 2.25}));
  EXPECT_EQ(timesOfRanks(measured, 1), timesOfRanks(measured, 0));
  EXPECT_EQ(timesOfRanks({{4, 0, 0}, {3, 0, 0}}, 0), (std::vector<double>{4, 0, 0}));
}

TEST(TimedSteps, OfRanksWithDifferentNumbersOfStepsAreThoseOfTheRank) {
  EXPECT_EQ(timesOfRanks({{4, 1, 2}, {7, 5}}, 0), (std::vector<double>{7, 1, 2}));
  EXPECT_EQ(timesOfRanks({{4, 1, 2}, {7, 5}}, 1), (std::vector<double>{7, 5}));
}

}  // namespace
}  // namespace meshfuse
