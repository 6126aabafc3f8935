// What does the first call of each template cost over a warm one, beside planning?
//
// A kernel is compiled: the time of the compiler for its tile program. A routine is made and called: the time of both, less that of a
// second call. Extents differ from program to program and from run to run, so that no cache knows a kernel. The figure is the median of
// several programs.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/ranges.h"
#include "device/cpu/orc/cpu_compiler.h"
#include "device/device.h"
#include "device/open.h"
#include "exec/compile.h"
#include "figures.h"
#include "ir/fusion.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

constexpr int64_t kColumns = 4096;
constexpr int kPrograms = 9;
constexpr double kGoal = 8;         // ms
constexpr double kSoftmaxGoal = 6;  // ms

using Tensors = std::vector<TensorView*>;

struct Case {
  const char* name;
  std::vector<std::vector<int64_t>> shapes;  // of the inputs; last extents other than 1 are enlarged
  std::function<Tensors(const Tensors&)> build;
  DataType type = DataType::Float;
  double goal = kGoal;
  bool ofAnySize = false;  // the kernel
};

Tensors normBackward(const Tensors& t) {
  const std::vector<int64_t> row = {t[1]->shape().back().constValue()};
  const BackwardNormResult g = layer_norm_backward(t[0], t[1], row, t[2], t[3], t[4], t[4]);
  return {g.grad_input, g.grad_weight, g.grad_bias};
}

Tensors turned(const Tensors& t) { return {permute(t[0], {1, 0})}; }

std::vector<Case> kernels() {
  const std::vector<int64_t> few = {64, kColumns};
  const std::vector<int64_t> many = {1024, kColumns};
  const std::vector<int64_t> row = {kColumns};
  const auto softmax16 = [](const Tensors& t) { return Tensors{castOp(DataType::BFloat16, softmax(t[0], 1))}; };
  return {
      {"pointwise", {few, row}, [](const Tensors& t) { return Tensors{tanh_gelu(add(t[0], t[1]))}; }},
      {"sum of rows", {few}, [](const Tensors& t) { return Tensors{sum(t[0], {1})}; }},
      {"sum of columns", {many}, [](const Tensors& t) { return Tensors{sum(t[0], {0})}; }},
      {"softmax",
       {few},
       [](const Tensors& t) { return Tensors{softmax(t[0], 1)}; },
       DataType::Float,
       kSoftmaxGoal,
       true},
      {"softmax of many rows", {many}, [](const Tensors& t) { return Tensors{softmax(t[0], 1)}; }},
      {"softmax of many rows, bfloat16", {many}, softmax16, DataType::BFloat16},
      {"layer norm",
       {many, row, row},
       [](const Tensors& t) { return Tensors{layer_norm(t[0], 1, t[1], t[2], 1e-5).output}; }},
      {"norm backward", {many, many, {1024, 1}, {1024, 1}, row}, normBackward},
      {"transpose", {{4096, kColumns}}, turned},
      {"transpose, small", {{512, 512}}, turned},
      {"transpose, bfloat16", {{4096, kColumns}}, turned, DataType::BFloat16},
      {"transpose of odd rows", {{4095, kColumns}}, turned},
  };
}

std::vector<Case> routines() {
  const std::vector<int64_t> few = {64, kColumns};
  const auto product = [](const Tensors& t) { return Tensors{linear(t[0], t[1])}; };
  return {
      {"scan", {few}, [](const Tensors& t) { return Tensors{cumsum(t[0], 1)}; }},
      {"sort", {few}, [](const Tensors& t) { return Tensors{argsort(t[0], 1)}; }},
      {"top-k", {few}, [](const Tensors& t) { return Tensors{topk(t[0], 32).indices}; }},
      {"scatter",
       {few, few},
       [](const Tensors& t) { return Tensors{scatter(t[0], 1, castOp(DataType::Int, t[1]), t[0])}; }},
      {"product", {few, few}, product},
      {"product, bfloat16", {few, few}, product, DataType::BFloat16},
  };
}

// The steps of a case for new extents.
SegmentedProgram stepsOf(const Case& c, const DeviceInfo& device, int64_t program) {
  const int64_t more = 16 * (std::chrono::steady_clock::now().time_since_epoch().count() % 50 + 50 * program);
  Fusion fusion;
  const FusionGuard guard(&fusion);
  Tensors inputs;
  std::vector<Argument> arguments;
  for (std::vector<int64_t> shape : c.shapes) {
    shape.back() += shape.back() == 1 ? 0 : more;
    inputs.push_back(c.ofAnySize ? makeContigTensor(std::ssize(shape), c.type)
                                 : makeContigConcreteTensor(shape, c.type));
    fusion.addInput(inputs.back());
    arguments.emplace_back(Tensor::empty(shape, c.type));
  }
  for (TensorView* out : c.build(inputs)) {
    fusion.addOutput(out);
  }
  const std::unique_ptr<Communicator> self = makeSelfCommunicator();
  return compileToSegments(fusion, arguments, Agreement(*self).call(), device);
}

void note(benchmark::State& state, const Case& c, const char* what, const std::vector<double>& seconds) {
  state.SetIterationTime(median(seconds));
  record({fmt::format("cold CPU {}, {}", what, c.name), median(seconds) * 1e3, "ms", c.goal, "lower"});
}

void coldKernel(benchmark::State& state, const Case& c) {
  const std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 1, .compiles = false});
  for (auto _ : state) {
    std::vector<double> seconds;
    for (int i = 0; i < kPrograms; i++) {
      const SegmentedProgram program = stepsOf(c, device->info(), i);
      CpuCompiler compiler({.threads = 1});
      for (const Segment& s : program.segments) {
        if (s.kind == SegmentKind::Kernel) {
          seconds.push_back(secondsOf([&] { (void)compiler.compile(std::span(&s.plan.program, 1)); }));
        }
      }
    }
    note(state, c, "kernel", seconds);
  }
}

void coldRoutine(benchmark::State& state, const Case& c) {
  const std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 1});
  const std::unique_ptr<Queue> queue = device->makeQueue();
  for (auto _ : state) {
    std::vector<double> seconds;
    for (int i = 0; i < kPrograms; i++) {
      const SegmentedProgram program = stepsOf(c, device->info(), i);
      const auto step = std::ranges::find(program.segments, SegmentKind::Library, &Segment::kind);
      const Expr& op = *step->call.op;
      const std::vector<Tensor> operands = mapped(
          op.tensorInputs(), [](const TensorView* tv) { return Tensor::zeros(tv->constantShape(), tv->dtype()); });
      const std::vector<void*> addresses = mapped(operands, [](const Tensor& t) { return t.data(); });
      const Tensor out = Tensor::zeros(op.tensorOutput()->constantShape(), op.tensorOutput()->dtype());
      std::shared_ptr<const Routine> routine;
      Tensor workspace;
      const auto call = [&] {
        queue->call(*routine, addresses, out.data(), workspace.data());
        queue->wait();
      };
      const double first = secondsOf([&] {
        routine = device->routine(
            op, {.layouts = step->call.layouts, .valueOf = [](const IntExpr& offset) { return offset.constValue(); }});
        workspace = Tensor::zeros({std::max<int64_t>(1, routine->workspaceBytes())}, DataType::Byte);
        call();
      });
      seconds.push_back(first - secondsOf(call));
    }
    note(state, c, "routine", seconds);
  }
}

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) {
  using namespace meshfuse;
  static const std::vector<Case> ofKernels = kernels();
  static const std::vector<Case> ofRoutines = routines();
  const auto add = [](const Case& c, void (*run)(benchmark::State&, const Case&)) {
    benchmark::RegisterBenchmark(c.name, [&c, run](benchmark::State& s) { run(s, c); })
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  for (const Case& c : ofKernels) {
    add(c, coldKernel);
  }
  for (const Case& c : ofRoutines) {
    add(c, coldRoutine);
  }
  return runBenchmarks(argc, argv);
}
