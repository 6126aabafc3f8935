// How fast is a GPU: a warm call, the device's own copy, and typical fusions against that copy? gpu_peers.py measures the same rows with other
// libraries. On a simulated GPU the figures say nothing of speed, and their names say `simulated`.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/open.h"
#include "figures.h"
#include "gpu_series.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

std::string named(const std::string& what) { return (isSimulated() ? "simulated: " : "") + what; }

struct Shape {
  int64_t rows;
  int64_t columns;
};
// Larger than the caches of a GPU.
Shape shape() { return isSimulated() ? Shape{8, 64} : Shape{16384, 8192}; }

// Bytes read and written in a second, in GB.
double copyBandwidth() {
  const std::shared_ptr<Device> gpu = openDevice(DeviceId::cuda(0));
  const int64_t bytes = 4 * shape().rows * shape().columns;
  const std::shared_ptr<void> from = gpu->allocate(bytes);
  const std::shared_ptr<void> to = gpu->allocate(bytes);
  const std::unique_ptr<Queue> queue = gpu->makeQueue();
  const BytePiece whole{.bytes = bytes};
  queue->clear(from.get(), bytes);
  return 2e-9 * static_cast<double>(bytes) /
         secondsOfSeries(
             [&] {
               queue->copy(to.get(), from.get(), {&whole, 1});
             },
             [&] { queue->wait(); });
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
      {"transpose", [](const auto& x) { return transpose(x[0], 0, 1); }, 2},
      {"transpose and bias", [](const auto& x) { return transpose(add(x[0], x[1]), 0, 1); }, 2},
  };
  return all;
}

struct Program {
  std::unique_ptr<FusionExecutorCache> cache;
  std::vector<Argument> arguments;
};

Program programOf(const Case& c, DataType type, Shape s) {
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
  return {.cache = std::make_unique<FusionExecutorCache>(std::move(fusion), ExecutorOptions{.verify = Verify::Off}),
          .arguments = {randomTensor({s.rows, s.columns}, type, 1, -2, 2).to(DeviceId::cuda(0)),
                        randomTensor({s.columns}, type, 2, -2, 2).to(DeviceId::cuda(0))}};
}

// Of calls in the order of a stream.
double secondsOfCase(const Case& c, DataType type, Shape s) {
  Program program = programOf(c, type, s);
  std::vector<Tensor> outputs = program.cache->runFusionWithInputs(program.arguments);
  return secondsOfSeries([&] { program.cache->run(program.arguments, outputs, GpuStream{}); },
                         [&] { program.cache->wait(); });
}

// Of a call whose end the host awaits.
double secondsOfAwaitedCall(const Case& c, Shape s) {
  Program program = programOf(c, DataType::Float, s);
  std::vector<Tensor> outputs = program.cache->runFusionWithInputs(program.arguments);
  return secondsOfSeries([&] { program.cache->run(program.arguments, outputs); }, [] {});
}

// x [rows, columns] through a layer of 4 times the columns and back, as the MLP of a transformer.
double secondsOfMlp(DataType type) {
  const auto [rows, columns] = isSimulated() ? Shape{8, 16} : Shape{8192, 4096};
  const std::vector<std::vector<int64_t>> shapes = {
      {rows, columns}, {4 * columns, columns}, {4 * columns}, {columns, 4 * columns}, {columns}};
  auto fusion = std::make_unique<Fusion>();
  std::vector<Argument> arguments;
  {
    FusionGuard guard(fusion.get());
    std::vector<TensorView*> in;
    for (const std::vector<int64_t>& shape : shapes) {
      in.push_back(makeContigConcreteTensor(shape, type));
      fusion->addInput(in.back());
      arguments.emplace_back(randomTensor(shape, type, in.size(), -0.1, 0.1).to(DeviceId::cuda(0)));
    }
    TensorView* hidden = castOp(type, tanh_gelu(linear(in[0], in[1], in[2])));
    fusion->addOutput(linear(hidden, in[3], in[4]));
  }
  FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Off});
  std::vector<Tensor> outputs = cache.runFusionWithInputs(arguments);
  return secondsOfSeries([&] { cache.run(arguments, outputs, GpuStream{}); }, [&] { cache.wait(); });
}

void measure(benchmark::State& state) {
  for (auto _ : state) {
    const Shape small{1, 64};
    record({.name = named("small kernel, awaited"),
            .figure = 1e6 * secondsOfAwaitedCall(cases()[0], small),
            .unit = "us",
            .better = "lower"});
    record({.name = named("small kernel, in a stream"),
            .figure = 1e6 * secondsOfCase(cases()[0], DataType::Float, small),
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
      record({.name = named(fmt::format("mlp of {}", name(type))),
              .figure = 1e3 * secondsOfMlp(type),
              .unit = "ms",
              .better = "lower"});
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
