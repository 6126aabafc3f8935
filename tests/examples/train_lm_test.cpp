// The language model of examples/train_lm.cpp: its gradients, its plans, its loss curves, its traffic.
// MESHFUSE_UPDATE_GOLDEN=1 writes the plans anew.
#include "../../examples/train_lm_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <utility>

#include "../../examples/train_lm_report.h"
#include "../../examples/train_lm_text.h"
#include "device/open.h"
#include "exec/fusion_executor_cache.h"
#include "exec/local_device.h"
#include "host/program.h"
#include "meshfuse_config.h"
#include "multidevice/transport/loopback/loopback.h"

namespace train_lm {

namespace {

const ModelSizes kSmall = {.batch = 64, .context = 16, .embedding = 8, .hidden = 64};

// The same text whatever the sources are: 7 times 12 is 84.
std::string multiplicationTable() {
  std::string text;
  for (int a = 1; a <= 60; a++) {
    for (int b = 1; b <= 60; b++) {
      text += fmt::format("{} times {} is {}.\n", a, b, a * b);
    }
  }
  return text;
}

Batches batchesOf(const ModelSizes& m) { return {multiplicationTable(), m.batch, m.context}; }

using StepBuilder = std::function<std::unique_ptr<Fusion>(const ModelSizes&)>;

// What rank 0 saw; loopback ranks on GPUs share them.
std::vector<double> lossCurve(int ranks, int steps, const char* device = "cpu",
                              const StepBuilder& build = trainingStep) {
  std::vector<double> losses;
  runLoopback(ranks, [&](Communicator& comm) {
    ModelSizes m = kSmall;
    m.ranks = ranks;
    Batches batches = batchesOf(m);
    FusionExecutorCache cache(build(m));
    const DeviceId id = localDevice(device, comm);
    std::vector<Tensor> parameters;
    for (const Tensor& initial : initialParameters(m, cache.fusion(), comm.rank())) {
      parameters.push_back(initial.to(id));
    }
    for (int step = 0; step < steps; step++) {
      batches.draw(step);
      double loss =
          cache.runFusionWithInputs(arguments(cache.fusion(), comm.rank(), batches, 0.25, parameters))[0].item();
      if (comm.rank() == 0) {
        losses.push_back(loss);
      }
    }
    EXPECT_EQ(cache.plansCompiled(), 1);
  });
  return losses;
}

// Along its own direction, the slope of the loss is the square of a gradient's length.
TEST(TrainLm, GradientsAreSlopesOfTheLoss) {
  Batches batches = batchesOf(kSmall);
  batches.draw(0);
  FusionExecutorCache cache(trainingStep(kSmall));
  const std::vector<Tensor> at = initialParameters(kSmall, cache.fusion(), 0);
  auto copies = [&] {
    std::vector<Tensor> list;
    for (const Tensor& t : at) {
      list.push_back(t.clone());
    }
    return list;
  };
  std::vector<Tensor> moved = copies();
  cache.runFusionWithInputs(arguments(cache.fusion(), 0, batches, 1.0, moved));  // by minus the gradient
  for (size_t p = 0; p < kParameters; p++) {
    double square = 0;
    for (int64_t i = 0; i < at[p].numel(); i++) {
      square += std::pow(at[p].data_as<float>()[i] - moved[p].data_as<float>()[i], 2);
    }
    double reach = 0.02 / std::sqrt(square);
    double loss[2];
    for (int side = 0; side < 2; side++) {
      std::vector<Tensor> shifted = copies();
      for (int64_t i = 0; i < at[p].numel(); i++) {
        double gradient = at[p].data_as<float>()[i] - moved[p].data_as<float>()[i];
        shifted[p].data_as<float>()[i] += static_cast<float>((side == 0 ? -reach : reach) * gradient);
      }
      loss[side] = cache.runFusionWithInputs(arguments(cache.fusion(), 0, batches, 0.0, shifted))[0].item();
    }
    EXPECT_NEAR((loss[1] - loss[0]) / (2 * reach), square, 0.02 * square) << "parameter " << p;
  }
}

TEST(TrainLm, LossFallsAndDoesNotDependOnTheRanks) {
  std::vector<double> one = lossCurve(1, 30), two = lossCurve(2, 30);
  EXPECT_LT(two.back(), two.front() - 1);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); i++) {
    EXPECT_NEAR(one[i], two[i], 1e-4 * one[i]) << "step " << i;
  }
}

TEST(TrainLm, LossWithPlannedShardingsIsThatOfOneRank) {
  const std::vector<double> one = lossCurve(1, 10);
  const std::pair<int, std::vector<DeviceMesh::Axis>> meshes[] = {
      {2, {{"x", 2}}}, {4, {{"x", 4}}}, {4, {{"dp", 2}, {"tp", 2}}}};
  for (const auto& [ranks, mesh] : meshes) {
    const DistributedConfig slowDevices{.devicesPerMachine = ranks,
                                        .within = {.bandwidth = 1e12, .latency = 0},
                                        .device = {.flops = 1e6, .flops16 = 1e6, .bandwidth = 1e6, .launch = 0}};
    const std::vector<double> losses = lossCurve(ranks, 10, "cpu", [&](const ModelSizes& m) {
      std::unique_ptr<Fusion> step = unshardedStep(m);
      const AutoPlan plan = autoParallelize(*step, slowDevices, {.mesh = mesh, .alternatives = false});
      EXPECT_TRUE(std::ranges::any_of(plan.pins, [](const PlannedTensor& t) { return t.sharding.starts_with("S0("); }));
      return step;
    });
    ASSERT_EQ(losses.size(), one.size());
    for (size_t i = 0; i < one.size(); i++) {
      EXPECT_NEAR(losses[i], one[i], 1e-4 * one[i]) << "step " << i << " on " << ranks << " ranks";
    }
  }
}

// A transport reads small tensors whole and large ones in parts.
TEST(TrainLm, AllReducesOfBothKindsAgreeWithThePlan) {
  const CommRecord small{.kind = "all-reduce", .team = {0, 1, 2, 3}, .bytesReceived = 6};
  const CommRecord large{.kind = "all-reduce", .team = {0, 1, 2, 3}, .bytesReceived = 24576};
  const auto agrees = [&](int64_t counted) {
    TransferCounters counters;
    counters[Collective::AllReduce] = {.calls = 2, .bytesReceived = counted};
    return traffic({large, small}, counters).agree();
  };
  EXPECT_TRUE(agrees(6 + 24576));
  EXPECT_TRUE(agrees(12 + 24576));
  EXPECT_TRUE(agrees(12 + 49152));
  EXPECT_FALSE(agrees(6 + 49152));
  EXPECT_FALSE(agrees(24576));
}

TEST(TrainLm, LossOnGpusIsThatOnCpus) {
  if (const Gpus gpus = gpusOfThisMachine(); gpus.count == 0) {
    GTEST_SKIP() << "no GPU: " << gpus.missing;
  }
  for (const int ranks : {1, 2, 4}) {
    const std::vector<double> onCpus = lossCurve(ranks, 5), onGpus = lossCurve(ranks, 5, "cuda");
    ASSERT_EQ(onCpus.size(), onGpus.size());
    for (size_t i = 0; i < onCpus.size(); i++) {
      EXPECT_NEAR(onCpus[i], onGpus[i], 1e-4 * onCpus[i]) << "step " << i << " on " << ranks << " ranks";
    }
  }
}

TEST(TrainLm, EveryStepMatchesTheReference) {
  for (int ranks : {1, 2}) {
    runLoopback(ranks, [&](Communicator& comm) {
      ModelSizes m = {.batch = 6, .context = 16, .embedding = 4, .hidden = 8, .ranks = ranks};
      Batches batches = batchesOf(m);
      batches.draw(0);
      FusionExecutorCache step(trainingStep(m), {.verify = Verify::Always});
      std::vector<Tensor> parameters = initialParameters(m, step.fusion(), comm.rank());
      step.runFusionWithInputs(arguments(step.fusion(), comm.rank(), batches, 0.5, parameters));
      step.runFusionWithInputs(arguments(step.fusion(), comm.rank(), batches, 0.5, parameters));
      FusionExecutorCache sampler(prediction(m, step.fusion()), {.verify = Verify::Always});
      std::vector<Argument> inputs = {Tensor::full({1, m.context}, DataType::Int, 'x')};
      inputs.insert(inputs.end(), parameters.begin(), parameters.end());
      EXPECT_EQ(sampler.runFusionWithInputs(inputs)[0].size(1), kBytes);
    });
  }
}

TEST(TrainLm, CountersAgreeWithThePlanUnlessAStepIsDropped) {
  runLoopback(2, [](Communicator& comm) {
    ModelSizes m = kSmall;
    m.ranks = 2;
    Batches batches = batchesOf(m);
    batches.draw(0);
    FusionExecutorCache cache(trainingStep(m));
    std::vector<Tensor> parameters = initialParameters(m, cache.fusion(), comm.rank());
    auto step = [&] {
      comm.resetCounters();
      cache.runFusionWithInputs(arguments(cache.fusion(), comm.rank(), batches, 0.0, parameters));
      return traffic(cache.commSteps(), comm.counters());
    };
    step();
    Traffic whole = step();
    EXPECT_TRUE(whole.agree());
    EXPECT_GT(whole.planned["all-reduce"], 0);
    for (int dropped = 0; dropped < std::ssize(cache.commSteps()); dropped++) {
      cache.skipCommunication(dropped);
      Traffic less = step();
      EXPECT_FALSE(less.agree()) << "without step " << dropped;
      EXPECT_EQ(less.planned, whole.planned);
    }
    cache.skipCommunication(-1);
    EXPECT_TRUE(step().agree());
  });
}

// The planned program of all ranks, then what one rank does.
std::string planOf(int ranks) {
  std::vector<std::string> texts(ranks);
  runLoopback(ranks, [&](Communicator& comm) {
    ModelSizes m;
    m.ranks = ranks;
    Batches batches = batchesOf(m);
    batches.draw(0);
    FusionExecutorCache cache(trainingStep(m), {.threads = 1});
    cache.runFusionWithInputs(
        arguments(cache.fusion(), comm.rank(), batches, 0.0, initialParameters(m, cache.fusion(), comm.rank())));
    std::string text = fmt::format("{}\ncollectives\n", cache.planText());
    for (const CommRecord& c : cache.commSteps()) {
      text += fmt::format("  {} {} among [{}], {} bytes received\n", c.kind, c.tensor, fmt::join(c.team, ", "),
                          c.bytesReceived);
    }
    text += "\nsteps\n";
    std::shared_ptr<const HostProgram> program = cache.hostProgram();
    for (const Step& s : program->steps) {
      text += fmt::format("  {}\n", s.name);
    }
    texts[comm.rank()] = text;
  });
  for (const std::string& text : texts) {
    EXPECT_EQ(text, texts[0]);
  }
  return texts[0];
}

TEST(TrainLm, PlansAreTheGoldenOnes) {
  if (!kHasOneDnn || !kHasLlvm) {
    GTEST_SKIP() << "the golden plans have library matmuls and CPU kernels";
  }
  for (int ranks : {1, 2, 4}) {
    std::string path = fmt::format(MESHFUSE_SOURCE_DIR "/tests/examples/golden/train_lm_{}.plan", ranks);
    std::string text = planOf(ranks);
    if (std::getenv("MESHFUSE_UPDATE_GOLDEN") != nullptr) {
      std::ofstream(path) << text;
    }
    std::ifstream in(path);
    std::ostringstream golden;
    golden << in.rdbuf();
    EXPECT_EQ(text, golden.str()) << path;
  }
}

TEST(TrainLm, TextWithoutSourcesIsAUserError) {
  EXPECT_THROW(readSources(MESHFUSE_SOURCE_DIR "/no such folder"), UserError);
  EXPECT_THROW(Batches(readSources(MESHFUSE_SOURCE_DIR "/tools"), 4, 16), UserError);
}

}  // namespace

}  // namespace train_lm
