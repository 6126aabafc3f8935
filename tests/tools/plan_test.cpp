// meshfuse plan.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "sanitized.h"
#include "tools/tool.h"
#include "tools/xml.h"

namespace meshfuse {
namespace {

TEST(ToolPlan, WritesAProgramThatRunsWithTheSameResult) {
  const std::string folder = temporaryDirectory() + "/planned";
  const ToolRun run = tool("plan {dir}/plain_mlp.fir --devices 4 --size i0=64 -o " + folder);
  ASSERT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "plan on mesh {");
  expectContains(run.out, "at most 0.00% above the best plan\n");
  expectContains(run.out, "best plan if inputs are sharded in one way only\n  data ");
  expectContains(run.out, "wrote " + folder + "/plan.fir, plan.txt, plan.json and plan.html\n");
  EXPECT_EQ(run.out,
            fileText(folder + "/plan.txt") + "wrote " + folder + "/plan.fir, plan.txt, plan.json and plan.html\n");
  const ToolRun verified = tool("run " + folder + "/plan.fir --size i0=64 --verify");
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
}

// What docs/autoplan.md shows below this command.
std::string shownBelow(const std::string& command) {
  const std::string document = fileText(MESHFUSE_SOURCE_DIR "/docs/autoplan.md");
  const std::string line = "$ meshfuse plan tests/tools/" + command + "\n";
  const size_t begin = document.find(line);
  if (begin == std::string::npos) {
    return "";
  }
  const size_t shown = begin + line.size();
  return document.substr(shown, document.find("```", shown) - shown);
}

TEST(ToolPlan, PrintsWhatTheDocumentShows) {
  const std::string plain = "plain_mlp.fir --devices 4 --size i0=4096";
  EXPECT_EQ(tool("plan {dir}/" + plain).out, shownBelow(plain));
  const std::string deep = "deep_mlp.fir --machines 2 --devices 2 --between 10GB --size i0=2048 --micro-batches 8";
  const std::string report = tool("plan {dir}/" + deep).out;
  const size_t pipeline = report.find("pipeline of 8");
  ASSERT_NE(pipeline, std::string::npos) << report;
  EXPECT_EQ(report.substr(pipeline), shownBelow(deep));
}

TEST(ToolPlan, HasAPipelineInTheReportAndOnThePage) {
  const std::string folder = temporaryDirectory() + "/pipeline";
  const ToolRun run = tool(
      "plan {dir}/deep_mlp.fir --machines 2 --devices 2 --size i0=64 --micro-batches 4 --stages 2 --json -o " + folder);
  ASSERT_EQ(run.code, 0) << run.err;
  const auto pipeline = nlohmann::ordered_json::parse(run.out)["pipeline"];
  EXPECT_EQ(pipeline["microBatches"], 4);
  ASSERT_EQ(pipeline["stages"].size(), 2U);
  EXPECT_EQ(pipeline["stages"][0]["firstDevice"], 0);
  EXPECT_EQ(pipeline["stages"][0]["ops"].size(), pipeline["virtualStages"]);
  EXPECT_GT(pipeline["seconds"], 0.0);
  EXPECT_LE(pipeline["bound"], pipeline["seconds"]);
  EXPECT_GT(pipeline["idle"], 0.0);
  for (const char* field : {"forward", "backward", "update", "memory", "numOps"}) {
    EXPECT_GT(pipeline["stages"][1][field], 0.0) << field;
  }
  EXPECT_EQ(nlohmann::ordered_json::parse(fileText(folder + "/plan.json"))["pipeline"], pipeline);
  const std::string page = fileText(folder + "/plan.html");
  expectContains(page, "id=\"pipeline\"");
  expectContains(page, "Not executed yet");
  expectContains(fileText(folder + "/plan.txt"), "not executed yet");
}

TEST(ToolPlan, MicroBatchesThatDoNotDivideTheBatchAreAUserError) {
  const ToolRun run = tool("plan {dir}/deep_mlp.fir --devices 4 --size i0=64 --micro-batches 7");
  EXPECT_NE(run.code, 0);
  expectContains(run.err,
                 "[autoplan] 7 micro-batches do not divide the batch, dim 0 of T0, which has 64 elements; "
                 "ask for a number");
}

TEST(ToolPlan, Json) {
  const std::string folder = temporaryDirectory() + "/planned_json";
  const std::string flags = " --machines 2 --devices 2 --mesh dp=2,tp=2 --size i0=64";
  const ToolRun run = tool("plan {dir}/plain_mlp.fir" + flags + " --json -o " + folder);
  ASSERT_EQ(run.code, 0) << run.err;
  const auto plan = nlohmann::ordered_json::parse(run.out);
  std::vector<std::string> keys;
  for (const auto& [key, value] : plan.items()) {
    keys.push_back(key);
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"seconds", "bound", "gap", "commBytes", "peakMemory", "pins"}));
  EXPECT_GT(plan["seconds"], 0.0);
  EXPECT_LE(plan["bound"], plan["seconds"]);
  EXPECT_GE(plan["gap"], 0.0);
  EXPECT_GE(plan["commBytes"], 0.0);
  EXPECT_GT(plan["peakMemory"], 0.0);
  ASSERT_GE(plan["pins"].size(), 3U);
  EXPECT_EQ(run.out, tool("plan {dir}/plain_mlp.fir" + flags + " --json").out);

  const auto report = nlohmann::ordered_json::parse(fileText(folder + "/plan.json"));
  EXPECT_EQ(report["mesh"], "{dp: 2, tp: 2}[0, 1, 2, 3]");
  EXPECT_EQ(report["seconds"], plan["seconds"]);
  EXPECT_EQ(report["timeLimitReached"], false);
  ASSERT_EQ(report["pins"].size(), plan["pins"].size());
  EXPECT_EQ(report["pins"][0]["tensor"], "T0");
  EXPECT_EQ(report["pins"][0]["sharding"], plan["pins"]["T0"]);
  EXPECT_EQ(report["pins"][0]["byUser"], false);
  EXPECT_GE(report["pins"][0]["nextBest"], plan["seconds"]);
  ASSERT_EQ(report["ops"].size(), 2U);
  EXPECT_GT(report["ops"][0]["compute"], 0.0);
  EXPECT_EQ(report["ideas"].size(), 4U);
}

// Everything that the report has, in one file that needs nothing else.
TEST(ToolPlan, WritesAPage) {
  const std::string folder = temporaryDirectory() + "/planned_page";
  const std::string command =
      "plan {dir}/plain_mlp.fir --machines 2 --devices 2 --mesh dp=2,tp=2 --size i0=64 -o " + folder;
  ASSERT_EQ(tool(command).code, 0);
  const std::string page = fileText(folder + "/plan.html");
  const auto report = nlohmann::ordered_json::parse(fileText(folder + "/plan.json"));
  EXPECT_EQ(xmlError(page.substr(page.find("<html"))), "");
  EXPECT_EQ(page.find("src="), std::string::npos);
  for (const auto& t : report["pins"]) {
    expectContains(page, ">" + t["tensor"].get<std::string>() + "<");
    expectContains(page, ">" + t["sharding"].get<std::string>() + "<");
    expectContains(page, fmt::format("{:.6g} s", t["nextBest"].get<double>()));
  }
  for (const auto& op : report["ops"]) {
    expectContains(page, ">" + op["strategy"].get<std::string>() + "<");
    expectContains(page, fmt::format("{:.6g} s", op["compute"].get<double>()));
    expectContains(page, fmt::format("{:.6g} s", op["communication"].get<double>()));
  }
  for (const auto& idea : report["ideas"]) {
    expectContains(page, "<td>" + idea["idea"].get<std::string>() + "</td>");
  }
  expectContains(page, fmt::format("{:.6g} s", report["seconds"].get<double>()));
  EXPECT_EQ(tool(command).code, 0);
  EXPECT_EQ(fileText(folder + "/plan.html"), page);
}

// On one queue: the steps that explain predicts for rank 0 of the annotated program.
TEST(ToolPlan, ThePlanIsSimulated) {
  const std::string folder = temporaryDirectory() + "/simulated";
  const std::string arguments = folder + "/plan.fir --machine h100 --size i0=4096";
  ASSERT_EQ(tool("plan {dir}/plain_mlp.fir --machine h100 --size i0=4096 -o " + folder).code, 0);
  const ToolRun run = tool("simulate " + arguments + " -o " + folder);
  ASSERT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "simulation of 8 ranks: 1 class, ");
  expectContains(run.out, "  idle                0.00% of the time of all ranks\n");
  expectContains(run.out, "  collectives         none\n");
  expectContains(tool("simulate {dir}/tensor_parallel_mlp.fir --devices 2 --size i0=64").out,
                 "  collectives         1 collective in one order on all ranks, so no rank waits forever\n");
  const std::string steps = fileText(folder + "/steps.txt");
  expectContains(steps, "rank 0 and 7 like it\n");
  expectContains(steps, "linear T3");
  expectContains(fileText(folder + "/simulation.html"), "8 ranks like 0");
  const auto json = nlohmann::json::parse(tool("simulate " + arguments + " --json").out);
  EXPECT_EQ(json["classes"].size(), 1u);
  EXPECT_EQ(json["classes"][0]["ranks"], 8);
  EXPECT_EQ(json["blocked"].size(), 0u);
  EXPECT_EQ(json["classes"][0]["fits"], true);
  EXPECT_EQ(run.out.find("more memory"), std::string::npos) << run.out;
  const std::string small = arguments + " --memory 1000";
  expectContains(tool("simulate " + small).out, "  8 ranks take more memory than the ");
  EXPECT_EQ(nlohmann::json::parse(tool("simulate " + small + " --json").out)["classes"][0]["fits"], false);
  const ToolRun predicted = tool("explain " + arguments);
  const size_t call = predicted.out.rfind('\n', predicted.out.find("  call\n"));
  EXPECT_NEAR(json["seconds"].get<double>() * 1e6, std::stod(predicted.out.substr(call)), 0.006);
  expectContains(tool("simulate {dir}/plain_mlp.fir --devices 4 --size i0=4096").err, "no tensor is placed on a mesh");
  expectContains(tool("simulate " + arguments + " --devices 16").out, "rank 8 and 7 like it ");
  expectContains(tool("simulate " + arguments + " --devices 4").err, "rank");
}

TEST(ToolPlan, ACallWithoutStepsIsSimulated) {
  const std::string folder = temporaryDirectory() + "/without_steps";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/empty.fir") << "fusion {\n"
                                          "  mesh M0 {x: 2} [0, 1]\n"
                                          "  T0 = input() : Float[0] mesh M0\n"
                                          "  T1 = exp(T0) : Float[0] mesh M0\n"
                                          "  output T1\n"
                                          "}\n";
  const ToolRun run = tool("simulate " + folder + "/empty.fir --devices 2 -o " + folder);
  ASSERT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "kernels 0.00%    only collectives 0.00%    idle 0.00%    memory 0 kB\n");
  EXPECT_EQ(fileText(folder + "/simulation.html").find("Timeline"), std::string::npos);
}

// No list of all ranks, and no work for each of them.
TEST(ToolPlan, PlansForManyRanks) {
  if (kSanitized) {
    GTEST_SKIP() << "takes minutes under a sanitizer";
  }
  const std::string folder = temporaryDirectory() + "/many";
  const ToolRun run = tool(
      "plan {dir}/plain_mlp.fir --machine h100 --machines 2048 --mesh pp=16,dp=64,tp=16 "
      "--size i0=1048576 -o " +
      folder);
  ASSERT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "plan on mesh {pp: 16, dp: 64, tp: 16} of 16384 devices\n");
  const ToolRun simulated = tool("simulate " + folder + "/plan.fir --machine h100 --machines 2048 --size i0=1048576");
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  expectContains(simulated.out, "simulation of 16384 ranks: 1 class, ");
  EXPECT_EQ(fileText(folder + "/plan.html").find("16383"), std::string::npos);
}

TEST(ToolPlan, ThePageHasTheNumbersOfTheReport) {
  const std::string folder = temporaryDirectory() + "/planned_numbers";
  std::filesystem::create_directories(folder);
  const std::string machine = folder + "/machine.json";
  std::ofstream(machine) << R"({"machines": 2, "devicesPerMachine": 4, "memoryPerDevice": 5e11,
    "within": {"bandwidth": 450e9, "latency": 1e-10}, "between": {"bandwidth": 50e9, "latency": 1e6}})";
  const std::string program = "plan {dir}/plain_mlp.fir --size i0=65536 --mesh a=2,b=2,c=2 -o " + folder;
  const ToolRun run = tool(program + " --machine " + machine);
  ASSERT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "  T0     S0(a,b,c) R ");
  const std::string page = fileText(folder + "/plan.html");
  for (const std::string axis : {"a", "b", "c"}) {
    const size_t begin = page.find("<td><span class=\"chip\">" + axis + "</span></td>");
    ASSERT_NE(begin, std::string::npos) << axis;
    const std::string row = page.substr(begin, page.find("</tr>", begin) - begin);
    expectContains(row, "<td>1 tensor</td>");
    expectContains(row, axis == "a" ? ">1e+06 s<" : ">0.0001 us<");
    expectContains(row, axis == "a" ? "<td>50 GB/s</td>" : "<td>450 GB/s</td>");
  }
  const std::string label = "  peak memory         ";
  const size_t peak = run.out.find(label) + label.size();
  expectContains(page, "<b>" + run.out.substr(peak, run.out.find(" on a device", peak) - peak) + "</b>");
  expectContains(page, "<small>of 500 GB</small>");
}

// Without the text from ` mesh M0` on, in the line of a tensor.
std::string withoutAnnotation(std::string program, const std::string& tensor) {
  const size_t line = program.find("  " + tensor + " = ");
  const size_t annotation = program.find(" mesh M0", line);
  return program.erase(annotation, program.find('\n', line) - annotation);
}

TEST(ToolPlan, AnEditedPlanIsPlannedAgain) {
  const std::string folder = temporaryDirectory() + "/edited";
  const std::string flags = " --devices 4 --size i0=4096 -o " + folder;
  ASSERT_EQ(tool("plan {dir}/plain_mlp.fir" + flags).code, 0);
  const std::string planned = fileText(folder + "/plan.fir");
  // without the annotation of a weight, the same plan is found again
  std::ofstream(folder + "/open.fir") << withoutAnnotation(planned, "T1");
  const ToolRun again = tool("plan " + folder + "/open.fir" + flags);
  ASSERT_EQ(again.code, 0) << again.err;
  expectContains(again.out, "T0     S0(x) R                 as annotated\n");
  expectContains(again.out, "T1     R R                     next best");
  EXPECT_EQ(fileText(folder + "/plan.fir"), planned);
  // another sharding of that weight stays, and the weight that is free is chosen for it
  std::string edited = withoutAnnotation(withoutAnnotation(planned, "T1"), "T2");
  const std::string type = "T1 = input() : Float[32, 16] contiguity[t, t]";
  edited.insert(edited.find(type) + type.size(), " mesh M0 outer_split(0, 4) parallelize(0, DIDx)");
  std::ofstream(folder + "/edited.fir") << edited;
  const ToolRun other = tool("plan " + folder + "/edited.fir" + flags);
  ASSERT_EQ(other.code, 0) << other.err;
  expectContains(other.out, "T1     S0(x) R                 as annotated\n");
  const ToolRun verified = tool("run " + folder + "/plan.fir --size i0=64 --verify");
  EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
}

TEST(ToolPlan, AProgramForAnyNumberOfDevicesStaysOne) {
  const std::string folder = temporaryDirectory() + "/any_size";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/open.fir") << withoutAnnotation(
      fileText(MESHFUSE_SOURCE_DIR "/tests/tools/mlp_of_any_size.fir"), "T2");
  const ToolRun run = tool("plan " + folder + "/open.fir --devices 4 --mesh tp=4 -o " + folder);
  ASSERT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "plan on mesh {tp: 4}[0, 1, 2, 3]\n");
  expectContains(run.out, "T2     R S1(tp)                next best");
  EXPECT_EQ(fileText(folder + "/plan.txt"), tool("plan " + folder + "/open.fir --devices 4").out);
  expectContains(fileText(folder + "/plan.fir"), "mesh M0 {tp: tp} []\n");
  for (const std::string ranks : {"2", "4"}) {
    const ToolRun verified = tool("run " + folder + "/plan.fir --mesh tp=" + ranks + " --verify");
    EXPECT_EQ(verified.code, 0) << verified.err << verified.out;
  }
}

TEST(ToolPlan, KeepsTheShardingsOfTheProgram) {
  const ToolRun run = tool("plan {dir}/tensor_parallel_mlp.fir --devices 2 --size i0=32");
  ASSERT_EQ(run.code, 0) << run.err;
  expectContains(run.out, "as annotated\n");
}

TEST(ToolPlan, MachinesAreDescribedByNameOrFile) {
  const std::string path = temporaryDirectory() + "/machine.json";
  std::ofstream(path) << R"({"machines": 2, "devicesPerMachine": 8, "memoryPerDevice": 80e9,
    "within": {"bandwidth": 450e9, "latency": 5e-6}, "between": {"bandwidth": 50e9, "latency": 2e-5},
    "device": {"flops": 67e12, "flops16": 989e12, "bandwidth": 3.35e12, "launch": 3e-6}})";
  const std::string program = "plan {dir}/plain_mlp.fir --size i0=65536 --machine ";
  const ToolRun described = tool(program + path);
  ASSERT_EQ(described.code, 0) << described.err;
  EXPECT_EQ(tool(program + "h100 --machines 2").out, described.out);
  for (const std::string& other : {std::string("a100 --machines 2"), path + " --machines 1"}) {
    const ToolRun run = tool(program + other);
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_NE(run.out, described.out) << other;
  }
}

TEST(ToolPlan, RefusesMachineFilesThatSayNothingOrTooMuch) {
  const std::string path = temporaryDirectory() + "/bad_machine.json";
  const std::pair<std::string, std::string> cases[] = {
      {"{", "is not JSON: parse error at line 1, column 2"},
      {R"({"machines": 1e999})", "has a number that no 64-bit floating type holds: number overflow parsing '1e999'"},
      {"[" + std::string(300'000, '[') + std::string(300'000, ']') + "]", "the description is a list of length 1"},
      {R"({"memoryPerDevice": )" + std::string(300'000, '[') + std::string(300'000, ']') + "}",
       "memoryPerDevice is a list of length 1, expected a number"},
      {R"({"memoryPerDevice": {"a": 1}})", "memoryPerDevice is an object, expected a number"},
      {R"({"memoryPerDevice": ")" + std::string(300'000, 'x') + "\"}",
       "memoryPerDevice is \"" + std::string(59, 'x') + "..., expected a number"},
      {R"({"device": {"memory": [[1]]}})", "device.memory has a point that is a list of length 1, expected"},
      {R"({"device": {"products": [{"dtype": "Float", "contracted": 1, "times": [[1, 1]]}]}})",
       "an entry of device.products has no field op"},
      {R"({"device": {"products": [{"op": "linear", "dtype": "Float", "times": [[1, 1]]}]}})",
       "an entry of device.products has no field contracted"},
      {R"({"device": {"products": [{"op": "lineer", "dtype": "Float", "contracted": 1, "times": [[1, 1]]}]}})",
       "device.products.op is lineer, expected a product, such as linear or matmul"},
      {R"({"within": {"collectives": [{"ranks": 2, "times": [[1, 1]]}]}})",
       "an entry of within.collectives has no field collective"},
      {R"({"within": {"collectives": [{"collective": "all_gather", "times": [[1, 1]]}]}})",
       "an entry of within.collectives has no field ranks"},
      {"[1]", "the description is a list of length 1, expected an object"},
      {R"({"machine": 2})", "there is no field machine, expected one of machines, devicesPerMachine, within"},
      {R"({"machines": 1.5})", "machines is 1.5, expected an integer of 64 bits"},
      {R"({"machines": 18446744073709551615})", "machines is 18446744073709551615, expected an integer of 64 bits"},
      {R"({"within": 3e9})", "within is 3000000000.0, expected an object"},
      {R"({"within": {"bandwidth": "fast"}})", "within.bandwidth is \"fast\", expected a number"},
      {R"({"device": {"flops8": 1e15}})", "there is no field device.flops8, expected one of flops, flops16"},
      {R"({"machines": 2, "devicesPerMachine": 2, "between": {"bandwidth": 1e12}})",
       "between.bandwidth is 1000000000000, more than within.bandwidth"},
  };
  for (const auto& [text, words] : cases) {
    std::ofstream(path) << text;
    const ToolRun run = tool("plan {dir}/plain_mlp.fir --size i0=64 --machine " + path);
    EXPECT_EQ(run.code, 2) << text;
    expectContains(run.err, words);
  }
  expectContains(tool("plan {dir}/plain_mlp.fir --size i0=64 --machine h300").err, "known are a100, h100, h200");
}

TEST(ToolPlan, RefusesWhatItCannotDo) {
  const std::pair<std::string, std::string> cases[] = {
      {"plain_mlp.fir --devices 4", "the symbols i0 in the sizes of the inputs have no value"},
      {"plain_mlp.fir --devices 4 --size i0=64 --memory 1GO", "--memory is \"1GO\", expected bytes"},
      {"plain_mlp.fir --devices 4 --size i0=64 --memory 10B", "no plan fits in memoryPerDevice, 10 bytes"},
      {"plain_mlp.fir --devices 0 --size i0=64", "devicesPerMachine is 0"},
      {"plain_mlp.fir --devices 4 --size i0=64 --seconds -1", "maxSeconds is -1, expected a positive number"},
      {"plain_mlp.fir --devices 4 --size i0=64 --mesh dp=3", "has 3 devices, the machines have 4"},
      {"plain_mlp.fir --devices 4 --size i9=64", "no input has the symbol i9"},
      {"plain_mlp.fir --machines 2 --devices 2 --size i0=64 --between 1TB", "more than within.bandwidth"},
  };
  for (const auto& [arguments, words] : cases) {
    const ToolRun run = tool("plan {dir}/" + arguments);
    EXPECT_EQ(run.code, 2) << arguments;
    expectContains(run.err, words);
  }
}

}  // namespace
}  // namespace meshfuse
