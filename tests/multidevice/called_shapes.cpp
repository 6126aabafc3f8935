#include "multidevice/called_shapes.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/ranges.h"
#include "exec/explain.h"
#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/scenario.h"

namespace meshfuse {

TensorView* inputOfAnySize(Fusion& f, int64_t dims, const DeviceMesh& mesh) {
  TensorView* tv = makeContigTensor(dims);
  f.addInput(tv);
  tv->setDeviceMesh(mesh);
  return tv;
}

void columnSums(Fusion& f, int64_t n) {
  const DeviceMesh mesh = DeviceMesh::create({{"dp", n}});
  TensorView* x = inputOfAnySize(f, 2, mesh);
  shardBlock(x, 0, mesh, "dp");
  f.addOutput(sum(tanh(x), {0}));
}

void productOfParts(Fusion& f, int64_t n) {
  const DeviceMesh mesh = DeviceMesh::create({{"tp", n}});
  TensorView* x = inputOfAnySize(f, 2, mesh);
  TensorView* w = input(f, {48, 16}, mesh);
  shardBlock(w, 0, mesh, "tp");
  TensorView* v = input(f, {8, 48}, mesh);
  shardBlock(v, 1, mesh, "tp");
  f.addOutput(linear(relu(linear(x, w)), v));
}

std::vector<Argument> rowInputs(int64_t rows) { return {randomTensor({rows, 16}, DataType::Float, 1, -1, 1)}; }

std::vector<Argument> productInputs(int64_t rows) {
  return {randomTensor({rows, 16}, DataType::Float, 1, -1, 1), randomTensor({48, 16}, DataType::Float, 2, -1, 1),
          randomTensor({8, 48}, DataType::Float, 3, -1, 1)};
}

std::unique_ptr<Fusion> fusionOf(const BuildOnRanks& build, int64_t ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  build(*fusion, ranks);
  return fusion;
}

void rowsAlone(Fusion& f, int64_t n) {
  const DeviceMesh mesh = DeviceMesh::create({{"dp", n}});
  TensorView* x = inputOfAnySize(f, 2, mesh);
  shardBlock(x, 0, mesh, "dp");
  f.addOutput(softmax(x, 1));
}

CalledShapes::CalledShapes(const BuildOnRanks& build, std::vector<Argument> (*whole)(int64_t rows), Communicator& comm,
                           size_t maxPlans)
    : comm_(comm),
      whole_(whole),
      fusion_(fusionOf(build, comm.size())),
      cache_(fusionOf(build, comm.size()), {.communicator = &comm, .maxPlans = maxPlans}) {}

std::vector<Argument> CalledShapes::shards(int64_t rows) const { return shardsOfRank(*fusion_, whole_(rows), comm_); }

void CalledShapes::expectRight(int64_t rows, const std::vector<Argument>& local) {
  const std::vector<BoundedTensor> whole = interpretWithBounds(*fusion_, whole_(rows), {.partials = comm_.size()});
  const std::vector<Tensor> got = cache_.runFusionWithInputs(local);
  const std::shared_ptr<const Fusion> planned = cache_.planned();
  for (const int64_t i : indices(got)) {
    const BoundedTensor part = shardOf(whole[i], planned->outputs()[i]->asTensor(), comm_.rank());
    EXPECT_EQ(compare(got[i], part).value_or(""), "") << "output " << i << " of " << rows << " rows";
  }
}

void CalledShapes::expectOfClass() const {
  const std::string sizes = joined(cache_.explain().sizes, ", ");
  EXPECT_NE(sizes.find(" from "), std::string::npos) << sizes;
}

}  // namespace meshfuse
