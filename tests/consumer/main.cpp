// Builds a fusion with an installed meshfuse, runs it, and checks the numbers.
#include <cstdio>
#include <memory>

#include "meshfuse/meshfuse.h"

int main() {
  using namespace meshfuse;
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigTensor(2);
    fusion->addInput(x);
    fusion->addOutput(sum(mul(x, x), {1}));
  }
  FusionExecutorCache cache(std::move(fusion));
  const Tensor y = cache.runFusionWithInputs({Tensor::of({1, 2, 3, 4, 5, 6}, {2, 3})})[0];
  std::printf("%g %g\n", y.at({0}), y.at({1}));
  return y.at({0}) == 14 && y.at({1}) == 77 ? 0 : 1;
}
