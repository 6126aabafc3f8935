// Do collectives in queues of their own cost time, where the ranks' processors have none to spare?
//
//   mpirun -np 4 queues_mpi_bench [--json FILE]
//
// Programs on the transport between the processes, with queues and with all steps on one queue, interleaved call by call; a call's time is
// that of its slowest rank, and the figure is the median of the rounds' ratios.
#include <fmt/core.h>
#include <mpi.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "figures.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

constexpr double kGoal = 1.02;
constexpr int kRounds = 300;

// A tensor with a term on each rank.
TensorView* terms(Fusion& f, const DeviceMesh& mesh, std::vector<int64_t> shape) {
  shape.insert(shape.begin(), mesh.numDevices());
  TensorView* x = makeContigConcreteTensor(f, shape);
  f.addInput(x);
  x->setDeviceMesh(mesh);
  x->outer_split(0, mesh.numDevices());
  x->axis(0)->parallelize(ParallelType::DIDx);
  return x;
}

// The sum of the terms, on all ranks.
TensorView* sumOfTerms(const DeviceMesh& mesh, TensorView* x) {
  TensorView* y = sum(x, {0});
  y->setDeviceMesh(mesh);
  return y;
}

// Each all-reduce needs the result of the one before.
void dependentAllReduces(Fusion& f, const DeviceMesh& mesh) {
  constexpr int kCalls = 12;
  constexpr int64_t kElements = 1024;  // 4 KiB
  TensorView* x = terms(f, mesh, {kElements});
  TensorView* y = sumOfTerms(mesh, x);
  for (int call = 1; call < kCalls; call++) {
    y = sumOfTerms(mesh, mul(x, broadcast(y, {true, false})));
  }
  f.addOutput(y);
}

// Four linear layers, the batch over the ranks: the gradient of each weight is added up over the ranks.
void backward(Fusion& f, const DeviceMesh& mesh) {
  constexpr int64_t kLayers = 4, kRows = 256, kFeatures = 512;
  TensorView* dy = terms(f, mesh, {kRows, kFeatures});
  for (int64_t layer = 0; layer < kLayers; layer++) {
    TensorView* x = terms(f, mesh, {kRows, kFeatures});
    TensorView* w = makeContigConcreteTensor(f, {kFeatures, kFeatures});
    f.addInput(w);
    w->setDeviceMesh(mesh);
    f.addOutput(sumOfTerms(mesh, matmul(transpose(dy, 1, 2), x)));
    dy = matmul(dy, w);
  }
  f.addOutput(dy);
}

struct Program {
  std::unique_ptr<FusionExecutorCache> cache;
  std::vector<Argument> inputs;
  std::vector<Tensor> outputs;

  // Seconds of one call, of the slowest rank.
  double timed() {
    MPI_Barrier(MPI_COMM_WORLD);
    const double own = secondsOf([&] { cache->run(std::span<const Argument>(inputs), outputs); });
    double slowest = own;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
  }
};

using Build = void (*)(Fusion& f, const DeviceMesh& mesh);

Program make(Communicator& world, Build build, bool queues) {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  build(*fusion, DeviceMesh::createForNumDevices(world.size()));
  Program p;
  for (const Val* in : fusion->inputs()) {
    const TensorView* tv = in->asTensor();
    const Tensor whole = randomTensor(tv->constantShape(), tv->dtype(), in->id());
    p.inputs.emplace_back(shardTensor(whole, tv, world.rank()).clone());
  }
  const ExecutorOptions options{.communicator = &world, .passes = {.overlapCommunication = queues}};
  p.cache = std::make_unique<FusionExecutorCache>(std::move(fusion), options);
  p.outputs = p.cache->runFusionWithInputs(p.inputs);
  return p;
}

void measure(Communicator& world, const std::string& name, Build build) {
  std::array programs{make(world, build, false), make(world, build, true)};
  std::array<std::vector<double>, 2> times;
  std::vector<double> ratios;
  for (int round = -5; round < kRounds; round++) {  // those below 0 warm up
    std::array<double, 2> seconds{};
    for (int k = 0; k < 2; k++) {
      const int which = round % 2 == 0 ? k : 1 - k;
      seconds[which] = programs[which].timed();
    }
    if (round >= 0) {
      ratios.push_back(seconds[1] / seconds[0]);
      times[0].push_back(seconds[0]);
      times[1].push_back(seconds[1]);
    }
  }
  const std::string row = fmt::format("queues/{}/{} ranks", name, world.size());
  record({row, median(ratios), "x of one queue's time", kGoal, "lower"});
  if (world.rank() == 0) {
    fmt::print("{:<60} {:.3f} of the time with one queue, {:.0f} us (goal {})\n", row, median(ratios),
               median(times[0]) * 1e6, kGoal);
  }
}

}  // namespace
}  // namespace meshfuse

int main(int argc, char** argv) {
  using namespace meshfuse;
  MPI_Init(&argc, &argv);
  {
    const std::unique_ptr<Communicator> world = openWorld();
    measure(*world, "12 dependent all-reduces of 4 KiB", dependentAllReduces);
    measure(*world, "backward of 4 layers", backward);
    if (world->rank() == 0 && argc == 3 && std::strcmp(argv[1], "--json") == 0) {
      writeFigures(argv[2]);
    }
  }
  MPI_Finalize();
  return 0;
}
