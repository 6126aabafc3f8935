// What README.md shows, with an installed meshfuse and one header: a function on one rank and on four, an explanation, the program of a rank,
// and files. Ends with 1 if a number is wrong.
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>

#include "meshfuse/meshfuse.h"

#if __has_include("base/error.h") || __has_include("tensor/tensor.h")
#error "an installed meshfuse takes other names than meshfuse/..."
#endif

using namespace meshfuse;

namespace {

// The sums of squares of the rows of x, which are cut over all ranks.
Tensor sumsOfSquares(Communicator& world, const Tensor& x) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* tv = makeContigTensor(2);
  fusion->addInput(tv, "x");
  tv->setDeviceMesh(DeviceMesh::createForNumDevices(world.size()));
  tv->outer_split(1, world.size())->axis(1)->parallelize(ParallelType::DIDx);
  fusion->addOutput(sum(mul(tv, tv), {1}), "y");
  FusionExecutorCache cache(std::move(fusion), {.communicator = &world});
  const Tensor y = cache.run({{"x", shardTensor(x, tv, world.rank())}})[0];
  const bool isKnown = !cache.explain().tensors.empty() && !cache.hostProgram()->toString().empty() &&
                       cache.commSteps().empty() == (world.size() == 1);
  return isKnown ? y : Tensor();
}

}  // namespace

int main(int, char** argv) {
  const std::string folder = std::string(argv[0]) + "_";
  writeNpy(folder + "x.npy", Tensor::of({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}));
  writeSafetensors(folder + "x.safetensors", {{"x", readNpy(folder + "x.npy")}});
  const Tensor x = SafetensorsFile(folder + "x.safetensors").get("x");
  std::atomic<bool> isRight = true;
  for (const int ranks : {1, 4}) {
    runLoopback(ranks, [&](Communicator& world) {
      const Tensor y = sumsOfSquares(world, x);
      if (!y.defined() || y.at({0}) != 30 || y.at({1}) != 174) {
        isRight = false;
      }
    });
  }
  std::printf("%s\n", isRight ? "right" : "wrong");
  return isRight ? 0 : 1;
}
