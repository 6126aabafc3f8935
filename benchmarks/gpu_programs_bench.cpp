// How long do the programs of gpu_static take on a GPU? gpu_static/on_gpu.py measures their twins in Triton, and PyTorch, on the same GPU.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "device/open.h"
#include "figures.h"
#include "gpu_series.h"
#include "ir/text.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> programs() {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(MESHFUSE_SOURCE_DIR "/benchmarks/gpu_static/programs")) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::unique_ptr<Fusion> read(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return parseFusion(text.str(), file.string());
}

// Numbers in [-2, 2), and positions in the dims that the programs index.
std::vector<Argument> argumentsOf(const Fusion& fusion) {
  std::vector<Argument> arguments;
  for (const Val* input : fusion.inputs()) {
    const auto* const tensor = dynamic_cast<const TensorView*>(input);
    std::vector<int64_t> sizes;
    for (const IterDomain* dim : tensor->getLogicalDomain()) {
      sizes.push_back(dim->extent().constValue());
    }
    const bool isIndex = tensor->dtype() == DataType::Int;
    const Tensor random =
        randomTensor(sizes, tensor->dtype(), arguments.size() + 1, isIndex ? 0 : -2, isIndex ? 4096 : 2);
    arguments.emplace_back(random.to(DeviceId::cuda(0)));
  }
  return arguments;
}

double secondsOfProgram(const fs::path& file) {
  std::unique_ptr<Fusion> fusion = read(file);
  const std::vector<Argument> arguments = argumentsOf(*fusion);
  FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Off});
  std::vector<Tensor> outputs = cache.runFusionWithInputs(arguments);
  return secondsOfSeries([&] { cache.run(arguments, outputs, GpuStream{}); }, [&] { cache.wait(); });
}

void measure(benchmark::State& state) {
  for (auto _ : state) {
    for (const fs::path& file : programs()) {
      record({.name = file.stem().string(), .figure = 1e6 * secondsOfProgram(file), .unit = "us", .better = "lower"});
    }
  }
}
BENCHMARK(measure)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) {
  if (const meshfuse::Gpus gpus = meshfuse::gpusOfThisMachine(); gpus.count == 0 || meshfuse::isSimulated()) {
    fmt::print("no GPU, nothing is measured: {}\n", gpus.count == 0 ? gpus.missing : "a simulated one has no speed");
    return 0;
  }
  return meshfuse::runBenchmarks(argc, argv);
}
