// The plans of models whose best shardings a person can judge, on 1x2, 2x4 and 4x8 devices: tests/autoplan/golden/MODEL.txt.
// MESHFUSE_UPDATE_GOLDEN=1 writes them anew.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "autoplan/autoplan.h"
#include "autoplan/models.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "meshfuse_config.h"

namespace meshfuse {
namespace {

// Equal lines that follow each other as one, with their number.
std::string counted(const std::vector<std::string>& lines) {
  std::string text;
  for (auto at = lines.begin(); at != lines.end();) {
    const auto end = std::find_if(at, lines.end(), [&](const std::string& line) { return line != *at; });
    text += end - at == 1 ? fmt::format("     {}\n", *at) : fmt::format("{:>3}x {}\n", end - at, *at);
    at = end;
  }
  return text;
}

std::string typeOf(const TensorView* tv) {
  return fmt::format("{}[{}]", name(tv->dtype()), fmt::join(tv->constantShape(), ", "));
}

// The mesh and the costs, the annotated inputs and results, the strategies of products and tables, and the best plan for each single idea.
std::string textOf(const Fusion& fusion, const AutoPlan& plan) {
  std::vector<std::string> inputs;
  std::vector<std::string> results;
  for (const PlannedTensor& t : plan.pins) {
    const TensorView* tv = fusion.val(t.id)->asTensor();
    if (tv->isFusionInput()) {
      const double more = t.nextBest.value_or(plan.seconds) / plan.seconds - 1;
      inputs.push_back(fmt::format("{:<24} {:<12} next best {:+.2f}%", typeOf(tv), t.sharding, 100 * more));
    } else {
      results.push_back(fmt::format("{:<12} {:<28} {}", tv->definition()->opName(), typeOf(tv), t.sharding));
    }
  }
  std::vector<std::string> ops;
  for (const PlannedOp& op : plan.ops) {
    const TensorView* tv = fusion.val(std::stoll(op.name.substr(1)))->asTensor();
    if (isContraction(*tv->definition()) || hasIndex(*tv->definition())) {
      ops.push_back(fmt::format("{:<12} {:<28} {}", tv->definition()->opName(), typeOf(tv), op.strategy));
    }
  }
  const std::string text = plan.text();
  return text.substr(0, text.find("shardings\n")) + "inputs\n" + counted(inputs) +
         (results.empty() ? "" : "results\n" + counted(results)) + "products and tables\n" + counted(ops) +
         text.substr(text.find("best plan if inputs"));
}

class GoldenPlans : public testing::TestWithParam<Model> {};

TEST_P(GoldenPlans, AreTheseOnSmallAndLargeMachines) {
  std::string text;
  for (const auto& [machines, devices] : {std::pair{1, 2}, {2, 4}, {4, 8}}) {
    const std::unique_ptr<Fusion> fusion = GetParam().build();
    const AutoPlan plan =
        autoParallelize(*fusion, {.machines = machines, .devicesPerMachine = devices}, {.maxSeconds = 600});
    EXPECT_LE(plan.gap(), 0.001);
    text += fmt::format("{} machine{} of {} devices: {}\n", machines, machines == 1 ? "" : "s", devices,
                        textOf(*fusion, plan));
  }
  const std::string path = MESHFUSE_SOURCE_DIR "/tests/autoplan/golden/" + GetParam().name + ".txt";
  if (std::getenv("MESHFUSE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
  }
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenPlans, testing::ValuesIn(plannedModels()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshfuse
