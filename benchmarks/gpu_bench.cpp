// How fast is a GPU: a warm call, the device's own copy, and typical fusions against that copy? On a simulated GPU the figures say nothing of
// speed, and their names say `simulated`.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/open.h"
#include "figures.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

bool isSimulated() {
  const char* const libraries = std::getenv("MESHFUSE_CUDA_LIBRARIES");
  return libraries != nullptr && std::filesystem::exists(std::filesystem::path(libraries) / "simgpu_engine");
}

std::string named(const std::string& what) { return (isSimulated() ? "simulated: " : "") + what; }

struct Shape {
  int64_t rows;
  int64_t columns;
};
Shape shape() { return isSimulated() ? Shape{8, 64} : Shape{8192, 4096}; }

double medianSeconds(const std::function<void()>& call) {
  const int rounds = isSimulated() ? 3 : 50;
  call();
  std::vector<double> seconds;
  for (int i = 0; i < rounds; i++) {
    seconds.push_back(secondsOf(call));
  }
  return median(seconds);
}

// Bytes read and written in a second, in GB.
double copyBandwidth() {
  const std::shared_ptr<Device> gpu = openDevice(DeviceId::cuda(0));
  const int64_t bytes = 2 * shape().rows * shape().columns;
  const std::shared_ptr<void> from = gpu->allocate(bytes);
  const std::shared_ptr<void> to = gpu->allocate(bytes);
  const std::unique_ptr<Queue> queue = gpu->makeQueue();
  const BytePiece whole{.bytes = bytes};
  queue->clear(from.get(), bytes);
  return 2e-9 * static_cast<double>(bytes) / medianSeconds([&] {
           queue->copy(to.get(), from.get(), {&whole, 1});
           queue->wait();
         });
}

struct Case {
  std::string name;
  std::function<TensorView*(const std::vector<TensorView*>&)> result;
  double tensorsMoved;  // of the size of the input
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"add", [](const auto& x) { return add(x[0], x[0]); }, 2},
      {"bias and gelu", [](const auto& x) { return tanh_gelu(add(x[0], x[1])); }, 2},
      {"softmax", [](const auto& x) { return softmax(x[0], 1); }, 2},
      {"layer norm", [](const auto& x) { return layer_norm(x[0], 1, x[1], x[1], 1e-5).output; }, 2},
      {"sum of rows", [](const auto& x) { return sum(x[0], {1}); }, 1},
      {"sum of columns", [](const auto& x) { return sum(x[0], {0}); }, 1},
  };
  return all;
}

double secondsOfCase(const Case& c, DataType type, Shape s) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    const std::vector<TensorView*> inputs = {makeContigConcreteTensor({s.rows, s.columns}, type),
                                             makeContigConcreteTensor({s.columns}, type)};
    for (TensorView* in : inputs) {
      fusion->addInput(in);
    }
    fusion->addOutput(castOp(type, c.result(inputs)));
  }
  FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Off});
  const std::vector<Argument> arguments = {randomTensor({s.rows, s.columns}, type, 1, -2, 2).to(DeviceId::cuda(0)),
                                           randomTensor({s.columns}, type, 2, -2, 2).to(DeviceId::cuda(0))};
  return medianSeconds([&] { (void)cache.runFusionWithInputs(arguments); });
}

void measure(benchmark::State& state) {
  for (auto _ : state) {
    record({.name = named("warm call of a small kernel"),
            .figure = 1e6 * secondsOfCase(cases()[0], DataType::Float, {1, 64}),
            .unit = "us",
            .better = "lower"});
    const double copy = copyBandwidth();
    record({.name = named("device copy"), .figure = copy, .unit = "GB/s", .better = "higher"});
    for (const DataType type : {DataType::Float, DataType::BFloat16}) {
      const double bytes = static_cast<double>(shape().rows * shape().columns * dataTypeSize(type));
      for (const Case& c : cases()) {
        const double bandwidth = 1e-9 * c.tensorsMoved * bytes / secondsOfCase(c, type, shape());
        record({.name = named(fmt::format("{} of {}, of the copy", c.name, name(type))),
                .figure = bandwidth / copy,
                .unit = "",
                .better = "higher"});
      }
    }
  }
}
BENCHMARK(measure)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) {
  if (const meshfuse::Gpus gpus = meshfuse::gpusOfThisMachine(); gpus.count == 0) {
    fmt::print("no GPU, nothing is measured: {}\n", gpus.missing);
    return 0;
  }
  return meshfuse::runBenchmarks(argc, argv);
}
