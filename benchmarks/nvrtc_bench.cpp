// How long NVRTC takes with generated text, against a kernel of the same work written by hand (cuda/softmax_hand.cu).
//
//   nvrtc_bench [--json FILE]
//
// CPU time of the process, the best of seven compilations after one that pays for start-up.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>

#include "codegen/cuda/emit.h"
#include "jit/nvrtc/capabilities.h"
#include "jit/nvrtc/compiler.h"
#include "tile/builder.h"

namespace {

using namespace meshfuse;
using namespace meshfuse::tile;

double cpuMilliseconds() {
  timespec t = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

double bestOf(int repeats, const auto& body) {
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i <= repeats; i++) {
    double start = cpuMilliseconds();
    body();
    if (i > 0) {
      best = std::min(best, cpuMilliseconds() - start);
    }
  }
  return best;
}

// Rows of up to 4096 elements of bfloat16 in the registers of 128 threads; N is a multiple of 8.
Program softmax() {
  Builder b("softmax", Target::Gpu);
  IntExpr rows = b.size("M", {.lower = 1});
  IntExpr columns = b.size("N", {.lower = 1, .upper = 4096, .divisor = 8});
  int x = b.tensor({"X", DataType::BFloat16, Memory::Input, {rows, columns}, {columns, 1}, 16, false});
  int y = b.tensor({"Y", DataType::BFloat16, Memory::Output, {rows, columns}, {columns, 1}, 16, false});
  b.gridDim("row", rows);
  int s = b.space("s", {{"m", rows, {{Level::Part, 0, "row"}}},
                        {"n", columns, {{Level::Repeat, 4}, {Level::Warp, 4}, {Level::Lane, 32}, {Level::Vector, 8}}}});
  std::vector<Index> at{{b.coord(s, 0)}, {b.coord(s, 1)}};
  ValueId value = b.cast(b.load(x, at, s), DataType::Float);
  ValueId e = b.point(PointOp::Exp, {b.point(PointOp::Sub, {value, b.reduceAxis(value, 1, Combiner::Max)})});
  b.store(y, at, b.cast(b.point(PointOp::Div, {e, b.reduceAxis(e, 1, Combiner::Sum)}), DataType::BFloat16));
  return b.take();
}

}  // namespace

int main(int argc, char** argv) {
  std::string json = argc == 3 && std::string_view(argv[1]) == "--json" ? argv[2] : "";
  if (argc != 1 && json.empty()) {
    fmt::print(stderr, "usage: nvrtc_bench [--json FILE]\n");
    return 2;
  }
  if (CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
    fmt::print("skipped: {}\n", c.nvrtcNote);
    return 0;
  }
  std::ifstream file(MESHFUSE_SOURCE_DIR "/benchmarks/cuda/softmax_hand.cu");
  std::ostringstream hand;
  hand << file.rdbuf();
  NvrtcCompiler compiler;
  constexpr int kRepeats = 7;
  Program program = softmax();
  CudaSource source = emitCuda(program);
  double emit = bestOf(kRepeats, [&] { (void)emitCuda(program); });
  double generated = bestOf(kRepeats, [&] { (void)compiler.compileCubin(source.text, "sm_90a"); });
  double written = bestOf(kRepeats, [&] { (void)compiler.compileCubin(hand.str(), "sm_90a"); });
  double empty =
      bestOf(kRepeats, [&] { (void)compiler.compileCubin("extern \"C\" __global__ void k() {}\n", "sm_90a"); });

  nlohmann::json rows = nlohmann::json::array();
  auto row = [&](std::string_view name, double figure, std::string_view unit, nlohmann::json goal) {
    fmt::print("{:<44} {:9.3f} {}\n", name, figure, unit);
    rows.push_back(
        {{"name", name}, {"figure", figure}, {"unit", unit}, {"goal", std::move(goal)}, {"better", "lower"}});
  };
  row("NVRTC, generated softmax over hand-written", generated / written, "x", 1.25);
  row("NVRTC, generated softmax", generated, "ms", nullptr);
  row("NVRTC, hand-written softmax", written, "ms", nullptr);
  row("NVRTC, empty kernel", empty, "ms", nullptr);
  row("CUDA text of softmax from its tile program", emit, "ms", 2.0);
  if (!json.empty()) {
    std::ofstream(json) << rows.dump(2) << "\n";
  }
  return 0;
}
