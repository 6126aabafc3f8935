// How long plans of 48 transformer layers take, without and with a memory limit that the compiled program keeps, on meshes of one to three
// axes, and with the best pipeline; and plan, report and simulation on 16,384 ranks, with the memory that they take.
#include <benchmark/benchmark.h>

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "autoplan/autoplan.h"
#include "base/error.h"
#include "base/ranges.h"
#include "exec/plan_within_memory.h"
#include "figures.h"
#include "ir/fusion.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

constexpr int64_t kLayers = 48;
constexpr int64_t kBatch = 32;
constexpr int64_t kTokens = 2048;
constexpr int64_t kFeatures = 4096;
constexpr int64_t kHeads = 32;
constexpr int64_t kVocabulary = 32000;

TensorView* input(Fusion& f, const std::vector<int64_t>& shape, DataType type = DataType::BFloat16) {
  TensorView* tv = makeContigConcreteTensor(f, shape, type);
  f.addInput(tv);
  return tv;
}

std::unique_ptr<Fusion> gpt() {
  auto owned = std::make_unique<Fusion>();
  Fusion& f = *owned;
  const FusionGuard guard(&f);
  const auto narrow = [](TensorView* t) { return castOp(DataType::BFloat16, t); };
  const auto norm = [&](TensorView* t) {
    return narrow(
        layerNormOver(t, 1, input(f, {kFeatures}, DataType::Float), input(f, {kFeatures}, DataType::Float), 1e-5)
            .output);
  };
  TensorView* x = embedding_fwd(input(f, {kBatch, kTokens}, DataType::Int), input(f, {kVocabulary, kFeatures}));
  for (int64_t layer = 0; layer < kLayers; layer++) {
    TensorView* n = norm(x);
    const auto heads = [&] {
      return permute(
          reshape(linear(n, input(f, {kFeatures, kFeatures})), {kBatch, kTokens, kHeads, kFeatures / kHeads}),
          {0, 2, 1, 3});
    };
    TensorView* q = heads();
    TensorView* k = heads();
    TensorView* v = heads();
    TensorView* scores = narrow(softmax(matmul(q, transpose(k, 2, 3)), -1));
    TensorView* mixed = reshape(permute(matmul(scores, v), {0, 2, 1, 3}), {kBatch, kTokens, kFeatures});
    x = narrow(add(x, linear(mixed, input(f, {kFeatures, kFeatures}))));
    TensorView* hidden = narrow(tanh_gelu(linear(norm(x), input(f, {4 * kFeatures, kFeatures}))));
    x = narrow(add(x, linear(hidden, input(f, {kFeatures, 4 * kFeatures}))));
  }
  f.addOutput(linear(x, input(f, {kVocabulary, kFeatures})));
  return owned;
}

struct Grid {
  std::string name;
  DistributedConfig machines;
  std::vector<DeviceMesh::Axis> mesh;
  double goal = 0;  // seconds
};

const std::vector<Grid>& grids() {
  static const std::vector<Grid> all{
      {"8", {.devicesPerMachine = 8}, {{"x", 8}}, 0.5},
      {"2x4", {.machines = 2, .devicesPerMachine = 4}, {{"dp", 2}, {"tp", 4}}, 0.5},
      {"2x2x4", {.machines = 2, .devicesPerMachine = 8}, {{"pp", 2}, {"dp", 2}, {"tp", 4}}, 3},
      {"4x4x4", {.machines = 8, .devicesPerMachine = 8}, {{"pp", 4}, {"dp", 4}, {"tp", 4}}, 3},
  };
  return all;
}

// Arguments: which grid; percent of the memory of the fastest plan.
void planTransformer(benchmark::State& state) {
  const Grid& grid = grids().at(state.range(0));
  const std::unique_ptr<Fusion> model = gpt();
  DistributedConfig machines = grid.machines;
  const OptimizationConfig wishes{.maxSeconds = 60, .mesh = grid.mesh, .alternatives = false};
  machines.memoryPerDevice = 1e15;
  machines.memoryPerDevice = state.range(1) == 100 ? 1e15
                                                   : autoParallelize(*model->clone(), machines, wishes).peakMemory *
                                                         static_cast<double>(state.range(1)) / 100;
  double least = 1e30;
  double gap = 0;
  for (auto _ : state) {
    const std::unique_ptr<Fusion> copy = model->clone();
    const AutoPlan plan = planWithinMemory(*copy, machines, wishes);
    least = std::min(least, plan.search);
    gap = std::max(gap, plan.gap());
  }
  state.counters["gap %"] = 100 * gap;
  const std::string what =
      fmt::format("48 layers on {}, {}", grid.name, state.range(1) == 100 ? "no memory limit" : "half of the memory");
  record({what, least, "s", grid.goal, "lower"});
  record({what + ", gap", 100 * gap, "%", 0.1, "lower"});
}
BENCHMARK(planTransformer)
    ->ArgsProduct({{0, 1, 2, 3}, {100, 50}})
    ->ArgNames({"grid", "memory"})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

// With the best pipeline of 8 micro-batches. Argument: which grid.
void planPipeline(benchmark::State& state) {
  const Grid& grid = grids().at(state.range(0));
  const std::unique_ptr<Fusion> model = gpt();
  DistributedConfig machines = grid.machines;
  machines.memoryPerDevice = 1e15;
  double least = 1e30;
  for (auto _ : state) {
    const std::unique_ptr<Fusion> copy = model->clone();
    const AutoPlan plan = autoParallelize(
        *copy, machines, {.maxSeconds = 60, .mesh = grid.mesh, .alternatives = false, .microBatches = 8});
    least = std::min(least, plan.search);
    state.counters["gap %"] = 100 * plan.pipeline->gap();
  }
  record({fmt::format("48 layers on {}, with a pipeline", grid.name), least, "s", grid.goal, "lower"});
}
BENCHMARK(planPipeline)->DenseRange(1, 3)->ArgName("grid")->Unit(benchmark::kMillisecond)->Iterations(1);

// Runs the command-line tool beside this program; the most memory that it had, in GB.
double memoryOfTool(std::vector<std::string> arguments) {
  const std::string path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "meshfuse";
  arguments.insert(arguments.begin(), path);
  std::vector<char*> words = mapped(arguments, [](std::string& word) { return word.data(); });
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawn(&child, path.c_str(), &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  check(error == 0, "[benchmark] {} does not start; build the target meshfuse", path);
  int status = 0;
  rusage used{};
  check(wait4(child, &status, 0, &used) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
        "[benchmark] {} {} has failed; run it to see its error", path, arguments[1]);
  return static_cast<double>(used.ru_maxrss) * 1024 / 1e9;
}

// As a user has them: files in, a folder with the report as text, JSON and page, and the timeline out.
void planManyRanks(benchmark::State& state) {
  std::string folder = (std::filesystem::temp_directory_path() / "meshfuse-plan-XXXXXX").string();
  check(mkdtemp(folder.data()) != nullptr, "[benchmark] cannot create {}; set TMPDIR to another folder", folder);
  std::ofstream(folder + "/gpt.fir") << gpt()->toString();
  double least = 1e30;
  double memory = 0;
  for (auto _ : state) {
    const double seconds = secondsOf([&] {
      for (const std::vector<std::string>& words :
           {std::vector<std::string>{"plan", folder + "/gpt.fir", "--mesh", "pp=16,dp=64,tp=16"},
            {"simulate", folder + "/plan.fir"}}) {
        std::vector<std::string> arguments = words;
        for (const char* word : {"--machine", "h100", "--machines", "2048", "--devices", "8", "-o"}) {
          arguments.emplace_back(word);
        }
        arguments.push_back(folder);
        memory = std::max(memory, memoryOfTool(std::move(arguments)));
      }
    });
    least = std::min(least, seconds);
  }
  std::filesystem::remove_all(folder);
  state.counters["GB"] = memory;
  record({"48 layers on 16,384 ranks, plan, report and simulation", least, "s", 10, "lower"});
  record({"48 layers on 16,384 ranks, memory", memory, "GB", 2, "lower"});
}
BENCHMARK(planManyRanks)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace meshfuse

int main(int argc, char** argv) { return meshfuse::runBenchmarks(argc, argv); }
