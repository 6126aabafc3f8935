// The example of README.md, word for word: what stands between the two markers.
#include "docs/readme_example.h"

// [example]
#include "meshfuse/meshfuse.h"

using namespace meshfuse;

// gelu(x w0^T) w1^T, the weights cut over all ranks of `world`
Tensor mlp(Communicator& world, const Tensor& x, const Tensor& w0, const Tensor& w1) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  auto mesh = DeviceMesh::createForNumDevices(world.size());
  TensorView* tx = makeContigTensor(2);  // [batch, features]
  TensorView* t0 = makeContigTensor(2);  // [hidden, features]
  TensorView* t1 = makeContigTensor(2);  // [features, hidden]
  for (TensorView* in : {tx, t0, t1}) {
    fusion->addInput(in);
    in->setDeviceMesh(mesh);
  }
  t0->outer_split(0, world.size())->axis(0)->parallelize(ParallelType::DIDx);  // column parallel
  t1->outer_split(1, world.size())->axis(1)->parallelize(ParallelType::DIDx);  // row parallel
  fusion->addOutput(linear(tanh_gelu(linear(tx, t0)), t1));

  FusionExecutorCache cache(std::move(fusion), {.communicator = &world});
  return cache.runFusionWithInputs(
      {x, shardTensor(w0, 0, mesh, world.rank()), shardTensor(w1, 1, mesh, world.rank())})[0];
}
// [end]
