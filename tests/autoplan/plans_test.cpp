// Plans of whole programs: on 2, 4 and 8 loopback ranks they compute what the interpreter computes without a mesh, and ranks receive the
// planned bytes.
#include <gtest/gtest.h>

#include "autoplan/autoplan.h"
#include "autoplan/programs.h"
#include "base/error.h"
#include "base/ranges.h"
#include "exec/explain.h"
#include "exec/fusion_executor_cache.h"
#include "host/program.h"
#include "interpret/bounds.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/scenario.h"
#include "multidevice/sharding/shard_tensor.h"
#include "ops/normalization.h"
#include "ops/tensors.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

// Slow links and small memories make plans differ.
struct Setting {
  std::string name;
  DistributedConfig machines;
  OptimizationConfig wishes;
};

std::vector<Setting> settingsFor(int64_t ranks) {
  const auto of = [&](int64_t machines) {
    return DistributedConfig{.machines = machines, .devicesPerMachine = ranks / machines};
  };
  DistributedConfig slow = of(1);
  slow.within = {.bandwidth = 1e6, .latency = 1e-3};
  DistributedConfig computing = of(1);  // compute is what takes time
  computing.within = {.bandwidth = 1e12, .latency = 0};
  computing.device = {.flops = 1e6, .flops16 = 1e6, .bandwidth = 1e6, .launch = 0};
  std::vector<Setting> all{{"one machine", of(1), {}},
                           {"slow links", slow, {}},
                           {"slow devices", computing, {}},
                           {"uneven", computing, {.allowUneven = true}}};
  if (ranks > 2) {
    all.push_back({"two machines", of(2), {}});
    DistributedConfig grid = computing;
    all.push_back({"grid", grid, {.mesh = {{"dp", 2}, {"tp", ranks / 2}}}});
  }
  return all;
}

class Plans : public MultiDeviceTest, public testing::WithParamInterface<ProgramOfSearch> {
 protected:
  // The bytes that the busiest rank received.
  int64_t runPlan(const Fusion& whole, const Fusion& annotated, const std::vector<Argument>& inputs, int64_t ranks,
                  const std::string& where) {
    std::vector<int64_t> received(ranks, 0);
    const std::vector<BoundedTensor> expected = interpretWithBounds(whole, inputs, {.partials = ranks});
    runOnRanks(static_cast<int>(ranks), [&](Communicator& comm) {
      std::unique_ptr<Fusion> own = annotated.clone();
      std::vector<Argument> local;
      for (size_t i = 0; i < inputs.size(); i++) {
        const Tensor* t = std::get_if<Tensor>(&inputs[i]);
        local.push_back(t == nullptr ? inputs[i]
                                     : Argument(shardTensor(*t, own->inputs()[i]->asTensor(), comm.rank()).clone()));
      }
      FusionExecutorCache cache(std::move(own), {.communicator = &comm});
      const std::vector<Tensor> got = cache.runFusionWithInputs(local);
      received[comm.rank()] = sumOf(cache.commSteps(), &CommRecord::bytesReceived);
      const std::shared_ptr<const Fusion> planned = cache.planned();
      for (size_t i = 0; i < got.size(); i++) {
        const BoundedTensor part =
            shardOf(expected[i], planned->outputs()[i]->asTensor(), static_cast<int>(comm.rank()));
        EXPECT_EQ(compare(got[i], part).value_or(""), "") << where << ", output " << i << "\n" << cache.planText();
      }
    });
    return std::ranges::max(received);
  }

  // In a program whose passes may compute a product in another way than planned, not much more.
  void expectPlanned(int64_t received, const AutoPlan& plan, const std::string& where) {
    if (GetParam().productsMayDiffer) {
      EXPECT_LE(static_cast<double>(received), 2 * plan.commBytes) << where;
    } else {
      EXPECT_NEAR(static_cast<double>(received), plan.commBytes, 1e-6 * plan.commBytes) << where;
    }
  }
};

TEST_P(Plans, ComputeWhatTheProgramWithoutAMeshComputes) {
  for (const int64_t ranks : kSanitized ? std::vector<int64_t>{4} : std::vector<int64_t>{2, 4, 8}) {
    for (const Setting& setting : settingsFor(ranks)) {
      const std::unique_ptr<Fusion> whole = GetParam().build();
      const std::unique_ptr<Fusion> annotated = whole->clone();
      const AutoPlan plan = autoParallelize(*annotated, setting.machines, setting.wishes);
      const std::string where = std::to_string(ranks) + " ranks, " + setting.name + "\n" + plan.text();
      EXPECT_GT(plan.seconds, 0) << where;
      EXPECT_LE(plan.bound, plan.seconds) << where;
      EXPECT_LE(plan.gap(), 1e-9) << where;
      const int64_t received = runPlan(*whole, *annotated, valuesFor(*whole), ranks, where);
      expectPlanned(received, plan, where);
      if (HasFailure()) {
        return;
      }
    }
  }
}

// A memory limit between the smallest plan and the fastest.
TEST_P(Plans, FitInMemory) {
  const DistributedConfig machines{.devicesPerMachine = 4};
  const std::unique_ptr<Fusion> whole = GetParam().build();
  const OptimizationConfig wishes{.alternatives = false};
  const AutoPlan fastest = autoParallelize(*whole->clone(), machines, wishes);
  DistributedConfig tight = machines;
  tight.memoryPerDevice = 1;
  EXPECT_THROW((void)autoParallelize(*whole->clone(), tight, wishes), UserError);
  for (const double part : {0.95, 0.8, 0.6}) {
    tight.memoryPerDevice = part * fastest.peakMemory;
    const std::unique_ptr<Fusion> annotated = whole->clone();
    try {
      const AutoPlan plan = autoParallelize(*annotated, tight, wishes);
      EXPECT_LE(plan.peakMemory, tight.memoryPerDevice);
      EXPECT_LE(plan.bound, plan.seconds);
      EXPECT_GE(plan.seconds, fastest.seconds * (1 - 1e-9));
      expectPlanned(runPlan(*whole, *annotated, valuesFor(*whole), 4, plan.text()), plan, plan.text());
    } catch (const UserError& e) {
      const std::string text = e.what();
      const std::string words = "the least that would do is ";
      const size_t at = text.find(words);
      ASSERT_NE(at, std::string::npos) << text;
      const double least = std::stod(text.substr(at + words.size()));
      EXPECT_GT(least, tight.memoryPerDevice) << text;
      tight.memoryPerDevice = least * 1.001;  // rounded to four digits
      EXPECT_LE(autoParallelize(*whole->clone(), tight, wishes).peakMemory, tight.memoryPerDevice) << text;
      EXPECT_EQ(annotated->toString(), whole->toString());
    }
  }
}

class UnevenPlans : public MultiDeviceTest {};

// A plan for 10 rows holds for other numbers of rows, also if they leave ranks without rows.
TEST_F(UnevenPlans, ADimThatTwoAxesCutIsPaddedOnce) {
  Fusion fusion;
  {
    const FusionGuard guard(&fusion);
    TensorView* x = makeContigTensor(2);
    fusion.addInput(x);
    fusion.addOutput(softmax(x, 1));
  }
  const std::unique_ptr<Fusion> whole = fusion.clone();
  (void)autoParallelize(fusion, {.machines = 2, .devicesPerMachine = 2},
                        {.allowUneven = true, .mesh = {{"y", 2}, {"x", 2}}, .sizes = {{"i0", 10}, {"i1", 1000000}}});
  const std::string once = "outer_split(0, 4) outer_split(0, 2) parallelize(0, DIDy) parallelize(1, DIDx)";
  EXPECT_NE(fusion.toString().find(once), std::string::npos) << fusion.toString();
  runOnRanks(4, [&](Communicator& comm) {
    FusionExecutorCache cache(fusion.clone(), {.communicator = &comm});
    for (const int64_t rows : {10, 6, 128, 2}) {
      const std::vector<Argument> inputs = {randomTensor({rows, 16}, DataType::Float, 1, -1, 1)};
      const std::vector<BoundedTensor> expected = interpretWithBounds(*whole, inputs, {.partials = 4});
      const Tensor& x = std::get<Tensor>(inputs[0]);
      const std::vector<Tensor> got =
          cache.runFusionWithInputs({shardTensor(x, fusion.inputs()[0]->asTensor(), comm.rank())});
      const BoundedTensor part = shardOf(expected[0], cache.planned()->outputs()[0]->asTensor(), comm.rank());
      EXPECT_EQ(compare(got[0], part).value_or(""), "") << rows << " rows\n" << cache.planText();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Programs, Plans, testing::ValuesIn(plannedPrograms()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshfuse
