// How long does NVRTC take with generated text, against a kernel of the same work written by hand (cuda/softmax_hand.cu)?
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>
#include <string>

#include "base/error.h"
#include "codegen/cuda/emit.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/nvrtc/compiler.h"
#include "exec/compile.h"
#include "figures.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

using namespace tile;

constexpr int kRounds = 7;
constexpr double kNever = std::numeric_limits<double>::max();

// CPU time of the process.
double cpuMilliseconds(const std::function<void()>& body) {
  auto now = [] {
    timespec t = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
  };
  const double start = now();
  body();
  return now() - start;
}

// Softmax of rows of 4096 elements of bfloat16, as the scheduler makes it for a GPU.
Program softmaxRows() {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigTensor(2, DataType::BFloat16);
  fusion.addInput(x);
  fusion.addOutput(castOp(DataType::BFloat16, softmax(x, 1)));
  const DeviceInfo gpu = DeviceInfo::hopper();
  const std::unique_ptr<Communicator> alone = makeSelfCommunicator();
  const SegmentedProgram program = compileToSegments(
      fusion, std::vector<Argument>{Tensor::zeros({16, 4096}, DataType::BFloat16)}, Agreement(*alone).call(), gpu);
  invariant(program.segments.size() == 1, "[nvrtc bench] softmax is {} kernels", program.segments.size());
  return program.segments[0].plan.program;
}

std::string handWritten() {
  std::ifstream file(MESHFUSE_SOURCE_DIR "/benchmarks/cuda/softmax_hand.cu");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Interleaved, so that a slow phase of the machine meets all of them; the best round of each counts.
void compileSoftmax(benchmark::State& state) {
  if (CudaCapabilities c = cudaCapabilities(); !c.nvrtc) {
    state.SkipWithError(c.nvrtcNote.c_str());
    return;
  }
  NvrtcCompiler compiler;
  const CudaSource source = emitCuda(softmaxRows());
  const std::string hand = handWritten();
  auto cost = [&](const std::string& text) {
    return cpuMilliseconds([&] { (void)compiler.compileCubin(text, "sm_90a"); });
  };
  for (auto _ : state) {
    (void)cost(source.text);  // pays for start-up
    double generated = kNever;
    double written = kNever;
    double empty = kNever;
    for (int i = 0; i < kRounds; i++) {
      generated = std::min(generated, cost(source.text));
      written = std::min(written, cost(hand));
      empty = std::min(empty, cost("extern \"C\" __global__ void k() {}\n"));
    }
    state.SetIterationTime(generated * 1e-3);
    record({"NVRTC, generated softmax over hand-written", generated / written, "x", 1.10, "lower"});
    record({"NVRTC, generated softmax", generated, "ms", {}, "lower"});
    record({"NVRTC, hand-written softmax", written, "ms", {}, "lower"});
    record({"NVRTC, empty kernel", empty, "ms", {}, "lower"});
  }
}

void emitSoftmax(benchmark::State& state) {
  const Program program = softmaxRows();
  (void)emitCuda(program);
  for (auto _ : state) {
    double best = kNever;
    for (int i = 0; i < kRounds; i++) {
      best = std::min(best, cpuMilliseconds([&] { (void)emitCuda(program); }));
    }
    state.SetIterationTime(best * 1e-3);
    record({"CUDA text of softmax from its tile program", best, "ms", 2.0, "lower"});
  }
}

BENCHMARK(compileSoftmax)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(emitSoftmax)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) { return meshfuse::runBenchmarks(argc, argv); }
