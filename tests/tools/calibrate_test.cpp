// meshfuse calibrate, and the times that explain predicts with its file.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "meshfuse_config.h"
#include "tools/tool.h"

namespace meshfuse {
namespace {

using Json = nlohmann::ordered_json;

// Sizes ascend, seconds are positive.
void expectTable(const Json& table, const std::string& name) {
  ASSERT_GE(table.size(), 2U) << name;
  double last = 0;
  for (const Json& point : table) {
    EXPECT_GT(point.at(0).get<double>(), last) << name;
    EXPECT_GT(point.at(1).get<double>(), 0) << name;
    last = point.at(0);
  }
}

void expectTablesOfDevice(const Json& device) {
  for (const std::string name : {"functions", "points", "memory"}) {
    expectTable(device.at(name), name);
  }
  std::set<std::string> forms;
  for (const Json& product : device.at("products")) {
    forms.insert(product.at("op").get<std::string>() + " of " + product.at("dtype").get<std::string>());
    expectTable(product.at("times"), *forms.rbegin());
  }
  const std::set<std::string> expected{"linear of BFloat16", "linear of Float", "linear of Half",
                                       "matmul of BFloat16", "matmul of Float", "matmul of Half"};
  EXPECT_EQ(forms, expected);
}

TEST(ToolCalibrate, WritesAMachineThatPlanAndExplainRead) {
  const std::string path = temporaryDirectory() + "/calibrated.json";
  const ToolRun run = tool("calibrate --ranks 2 --seconds 0.1 -o " + path);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, "wrote " + path + ": 1 machine of 2 devices\n");
  const Json machine = Json::parse(fileText(path));
  EXPECT_EQ(machine.at("machines"), 1);
  EXPECT_EQ(machine.at("devicesPerMachine"), 2);
  EXPECT_GT(machine.at("memoryPerDevice"), 1e6);
  EXPECT_FALSE(machine.contains("between")) << "nothing was measured there";
  expectTablesOfDevice(machine.at("device"));
  std::set<std::string> kinds;
  for (const Json& c : machine.at("within").at("collectives")) {
    kinds.insert(c.at("collective").get<std::string>());
    EXPECT_EQ(c.at("ranks"), 2);
    expectTable(c.at("times"), c.at("collective"));
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"all_gather", "all_reduce", "all_to_all", "reduce_scatter"}));

  const ToolRun plan = tool("plan {dir}/plain_mlp.fir --size i0=4096 --machine " + path);
  ASSERT_EQ(plan.code, 0) << plan.err;
  expectContains(plan.out, "plan on mesh {x: 2}");
  EXPECT_EQ(tool("plan {dir}/plain_mlp.fir --size i0=4096 --machine " + path).out, plan.out);

  const std::string explain = "explain {dir}/sharded_sum.fir --machine ";
  const ToolRun predicted = tool(explain + path);
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  expectContains(predicted.out, "times of rank 0 for");
  EXPECT_EQ(predicted.out.substr(0, predicted.out.find("times of rank 0 for")),
            tool("explain {dir}/sharded_sum.fir").out);
  EXPECT_EQ(tool(explain + path).out, predicted.out);
}

TEST(ToolCalibrate, MeasuresTheLinksBetweenHosts) {
  if (!kHasUcx || !kHasPmix || std::system("command -v mpirun >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no UCX, no PMIx or no mpirun";
  }
  const std::string path = temporaryDirectory() + "/hosts.json";
  const auto calibrate = [&](const std::string& ranks, const std::string& host) {
    return tool("calibrate --mpi --seconds 0.1 -o " + path,
                "mpirun --allow-run-as-root --oversubscribe --bind-to none -np " + ranks +
                    " sh -c 'MESHFUSE_HOST=h$((" + host + R"()) exec "$0" "$@"')");
  };
  const ToolRun run = calibrate("2", "OMPI_COMM_WORLD_RANK");
  ASSERT_EQ(run.code, 0) << run.err;
  expectContains(run.out, ": 2 machines of 1 device");
  const Json machine = Json::parse(fileText(path));
  EXPECT_FALSE(machine.contains("within")) << "nothing was measured there";
  EXPECT_EQ(machine.at("between").at("collectives").size(), 4U);
  EXPECT_EQ(tool("plan {dir}/plain_mlp.fir --size i0=64 --machine " + path).code, 0);

  const ToolRun scattered = calibrate("3", "OMPI_COMM_WORLD_RANK % 2");
  EXPECT_EQ(scattered.code, 2) << scattered.err;
  expectContains(scattered.err, "start as many ranks on every host, host by host");
}

TEST(ToolCalibrate, RefusesWhatItCannotMeasure) {
  const std::pair<std::string, std::string> cases[] = {
      {"--ranks 0 -o {tmp}/m.json", "--ranks is 0, expected 1 to 256"},
      {"--seconds 0 -o {tmp}/m.json", "got 0 seconds, expected a positive number"},
      {"--ranks 2", "-o is required"},
      {"--ranks 2 --mpi -o {tmp}/m.json", "excludes"},
  };
  for (const auto& [arguments, words] : cases) {
    const ToolRun run = tool("calibrate " + arguments);
    EXPECT_EQ(run.code, 2) << arguments;
    expectContains(run.err, words);
  }
}

// One step for each step of the host program, and the sum.
TEST(ToolExplain, PrintsPredictedBesideMeasuredTimes) {
  const std::string command = "explain {dir}/sharded_sum.fir --machine h100 ";
  const ToolRun text = tool(command + "--measure");
  ASSERT_EQ(text.code, 0) << text.err;
  const std::string times = text.out.substr(text.out.find("times of rank 0 for h100\n"));
  expectContains(times, "   predicted     measured  step, in us\n");
  expectContains(times, "  reduction T5[r{2}, 3]\n");
  expectContains(times, "  all-reduce T2[3]\n");
  expectContains(times, "  call\n");

  const Json measured = Json::parse(tool(command + "--measure --json").out).at("times");
  ASSERT_EQ(measured.at("steps").size(), 2U);
  double predicted = 0;
  for (const Json& step : measured.at("steps")) {
    EXPECT_GT(step.at("measured"), 0.0);
    predicted += step.at("predicted").get<double>();
  }
  EXPECT_DOUBLE_EQ(measured.at("call").at("predicted"), predicted);
  EXPECT_GT(measured.at("call").at("measured"), measured.at("steps").at(0).at("measured"));

  const Json alone = Json::parse(tool(command + "--json").out).at("times");
  EXPECT_EQ(alone.at("call").at("predicted"), measured.at("call").at("predicted"));
  EXPECT_FALSE(alone.at("call").contains("measured"));
  EXPECT_FALSE(Json::parse(tool("explain {dir}/sharded_sum.fir --json").out).contains("times"));
}

TEST(ToolExplain, MeasuresOnlyForAMachine) {
  expectContains(tool("explain {dir}/sharded_sum.fir --measure").err, "--measure requires --machine");
  expectContains(tool("explain {dir}/sharded_sum.fir --machine h100 --html {tmp}/a.html").err,
                 "got --machine and --html, expected one of them");
  expectContains(tool("explain {dir}/sharded_sum.fir --machine h100 --measure --device sm_90a").err,
                 "--measure measures the CPU, --device is sm_90a");
}

}  // namespace
}  // namespace meshfuse
