// Programs with one sharded edge or a few, and exactly the communication each must take.
#include "meshfuse/meshfuse.h"
#include "multidevice/scenario.h"

namespace meshfuse {

namespace {

Tensor random(std::vector<int64_t> sizes, uint64_t seed, DataType type = DataType::Float) {
  return randomTensor(std::move(sizes), type, seed, -2, 2);
}

DeviceMesh axisX(int64_t n) { return DeviceMesh::create({{"x", n}}); }

class OneEdge : public ScenarioTest {};

TEST_F(OneEdge, PointwiseOnShardsIsOneKernel) {
  runScenario(4,
              [](Fusion& f) {
                DeviceMesh mesh = axisX(4);
                TensorView* x = input(f, {8, 3}, mesh);
                shardBlock(x, 0, mesh, "x");
                TensorView* y = add(x, 1.0);
                f.addOutput(y);
                y->setDeviceMesh(mesh);
                shardBlock(y, 0, mesh, "x");
              },
              {random({8, 3}, 1)}, {{}, 1, 0});
}

TEST_F(OneEdge, ReplicatedToShardedIsLocal) {
  runScenario(4,
              [](Fusion& f) {
                DeviceMesh mesh = axisX(4);
                TensorView* x = input(f, {6, 8}, mesh);
                TensorView* y = set(x);
                f.addOutput(y);
                y->setDeviceMesh(mesh);
                shardBlock(y, 1, mesh, "x");
              },
              {random({6, 8}, 1)}, {{}, 1, 0});
}

TEST_F(OneEdge, GatherOfTheOutermostDimNeedsNoKernel) {
  runScenario(4,
              [](Fusion& f) {
                DeviceMesh mesh = axisX(4);
                TensorView* x = input(f, {8, 6}, mesh);
                shardBlock(x, 0, mesh, "x");
                TensorView* y = set(x);
                f.addOutput(y);
                y->setDeviceMesh(mesh);
              },
              {random({8, 6}, 1)}, {{"all-gather/4"}, 0, 3 * 12 * 4});
}

TEST_F(OneEdge, GatherOfAnInnerDimIsOneKernel) {
  runScenario(4,
              [](Fusion& f) {
                DeviceMesh mesh = axisX(4);
                TensorView* x = input(f, {6, 8}, mesh);
                shardBlock(x, 1, mesh, "x");
                TensorView* y = set(x);
                f.addOutput(y);
                y->setDeviceMesh(mesh);
              },
              {random({6, 8}, 1)}, {{"all-gather/4"}, 1, 3 * 12 * 4});
}

TEST_F(OneEdge, MovingAShardToAnotherDimIsAnAllToAll) {
  runScenario(4,
              [](Fusion& f) {
                DeviceMesh mesh = axisX(4);
                TensorView* x = input(f, {8, 12}, mesh);
                shardBlock(x, 0, mesh, "x");
                TensorView* y = set(x);
                f.addOutput(y);
                y->setDeviceMesh(mesh);
                shardBlock(y, 1, mesh, "x");
              },
              {random({8, 12}, 1)}, {{"all-to-all/4"}, -1, 8 * 12 / 4 * 3 / 4 * 4});
}

class Reductions : public ScenarioTest {
 protected:
  using Reduce = std::function<TensorView*(TensorView*)>;
  void toReplicated(const Reduce& reduce, DataType type, const Tensor& x) {
    runScenario(4,
                [&](Fusion& f) {
                  DeviceMesh mesh = axisX(4);
                  TensorView* in = input(f, {8, 6}, mesh, type);
                  shardBlock(in, 0, mesh, "x");
                  TensorView* y = reduce(in);
                  f.addOutput(y);
                  y->setDeviceMesh(mesh);
                },
                {x}, {{"all-reduce/4"}, 1, -1});
  }
};

TEST_F(Reductions, OverAShardedDimEndInAnAllReduce) {
  Tensor negative = randomTensor({8, 6}, DataType::Float, 1, -3, -1);
  toReplicated([](TensorView* x) { return sum(x, {0}); }, DataType::Float, negative);
  toReplicated([](TensorView* x) { return prod(x, {0}); }, DataType::Float, negative);
  toReplicated([](TensorView* x) { return min(x, {0}); }, DataType::Float, negative);
  toReplicated([](TensorView* x) { return max(x, {0}); }, DataType::Float, negative);
}

TEST_F(Reductions, OfBitsAndTruthToo) {
  Tensor bits = randomTensor({8, 6}, DataType::Int, 2, 0, 1 << 20);
  toReplicated([](TensorView* x) { return bitwise_or(x, {0}); }, DataType::Int, bits);
  toReplicated([](TensorView* x) { return bitwise_xor(x, {0}); }, DataType::Int, bits);
  Tensor truth = randomTensor({8, 6}, DataType::Bool, 3, 0, 2);
  toReplicated([](TensorView* x) { return any(x, {0}); }, DataType::Bool, truth);
  toReplicated([](TensorView* x) { return all(x, {0}); }, DataType::Bool, truth);
}

TEST_F(Reductions, ToAShardAreAReduceScatter) {
  for (bool maximum : {false, true}) {
    for (DataType type : {DataType::Float, DataType::BFloat16}) {
      runScenario(4,
                  [&](Fusion& f) {
                    DeviceMesh mesh = axisX(4);
                    TensorView* x = input(f, {8, 16}, mesh, type);
                    shardBlock(x, 0, mesh, "x");
                    TensorView* y = maximum ? max(x, {0}) : sum(x, {0});
                    f.addOutput(y);
                    y->setDeviceMesh(mesh);
                    shardBlock(y, 1, mesh, "x");
                  },
                  {random({8, 16}, 1, type)}, {{"reduce-scatter/4"}, 1, -1});
    }
  }
}

class Layouts : public ScenarioTest {};

TEST_F(Layouts, BlockToCyclicIsAnAllToAll) {
  runScenario(4,
              [](Fusion& f) {
                DeviceMesh mesh = axisX(4);
                TensorView* x = input(f, {16}, mesh);
                shardBlock(x, 0, mesh, "x");
                TensorView* y = set(x);
                f.addOutput(y);
                y->setDeviceMesh(mesh);
                y->inner_split(0, 4);
                y->axis(1)->parallelize(mesh.axis("x"));
              },
              {random({16}, 1)}, {{"all-to-all/4"}, -1, 3 * 4});
}

TEST_F(Layouts, OuterProductsNeedNothing) {
  runScenario(4,
              [](Fusion& f) {
                DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 2}});
                TensorView* a = input(f, {4, 1}, mesh);
                shardBlock(a, 0, mesh, "x");
                TensorView* b = input(f, {1, 6}, mesh);
                shardBlock(b, 1, mesh, "y");
                TensorView* z = mul(a, b);
                f.addOutput(z);
                z->setDeviceMesh(mesh);
                shardBlock(z, 1, mesh, "y");
                shardBlock(z, 0, mesh, "x");
              },
              {random({4, 1}, 1), random({1, 6}, 2)}, {{}, 1, 0});
}

TEST_F(Layouts, GatherOverOneAxisOfAGrid) {
  for (bool overY : {true, false}) {
    runScenario(4,
                [&](Fusion& f) {
                  DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 2}});
                  TensorView* x = input(f, {4, 6}, mesh);
                  shardBlock(x, 1, mesh, "y");
                  shardBlock(x, 0, mesh, "x");
                  TensorView* y = set(x);
                  f.addOutput(y);
                  y->setDeviceMesh(mesh);
                  overY ? shardBlock(y, 0, mesh, "x") : shardBlock(y, 1, mesh, "y");
                },
                {random({4, 6}, 1)}, {{"all-gather/2"}, -1, 6 * 4});
  }
}

TEST_F(Layouts, ReshapesOnlyRegroupDigits) {
  runScenario(2,
              [](Fusion& f) {
                DeviceMesh mesh = axisX(2);
                TensorView* x = input(f, {3, 24}, mesh);
                shardBlock(x, 1, mesh, "x");
                TensorView* heads = reshape(x, {3, 4, 6});
                TensorView* back = reshape(neg(heads), {3, 24});
                f.addOutput(heads);
                f.addOutput(back);
              },
              {random({3, 24}, 1)}, {{}, -1, 0});
}

class Models : public ScenarioTest {};

TEST_F(Models, ResidualMlpTakesItsShardingFromTheWeights) {
  runScenario(4,
              [](Fusion& f) {
                DeviceMesh mesh = axisX(4);
                TensorView* x = makeContigConcreteTensor({6, 8});
                f.addInput(x);
                TensorView* w0 = input(f, {16, 8}, mesh);
                TensorView* w1 = input(f, {8, 16}, mesh);
                shardBlock(w0, 0, mesh, "x");
                shardBlock(w1, 1, mesh, "x");
                f.addOutput(add(x, linear(tanh_gelu(linear(x, w0)), w1)));
              },
              {random({6, 8}, 1), random({16, 8}, 2), random({8, 16}, 3)}, {{"all-reduce/4"}, -1, -1});
}

TEST_F(Models, LoopSplitMlpInEveryTypeTakesOneAllReduce) {
  for (DataType type : {DataType::Float, DataType::Half, DataType::BFloat16}) {
    runScenario(4,
                [&](Fusion& f) {
                  DeviceMesh mesh = axisX(4);
                  TensorView* x = input(f, {6, 8}, mesh, type);
                  TensorView* w0 = input(f, {16, 8}, mesh, type);
                  TensorView* b0 = input(f, {16}, mesh, type);
                  TensorView* w1 = input(f, {8, 16}, mesh, type);
                  TensorView* b1 = input(f, {8}, mesh, type);
                  shardBlock(w0, 0, mesh, "x");
                  shardBlock(b0, 0, mesh, "x");
                  shardBlock(w1, 1, mesh, "x");
                  f.addOutput(linear(castOp(type, tanh_gelu(linear(x, w0, b0))), w1, b1));
                },
                {random({6, 8}, 1, type), random({16, 8}, 2, type), random({16}, 3, type), random({8, 16}, 4, type),
                 random({8}, 5, type)},
                {{"all-reduce/4"}, -1, 6 * 8 * dataTypeSize(type) * 2 * 3 / 4});
  }
}

TEST_F(Models, EmbeddingOfAShardedVocabularyIsMasked) {
  for (bool scattered : {false, true}) {
    runScenario(4,
                [&](Fusion& f) {
                  DeviceMesh mesh = axisX(4);
                  TensorView* index = input(f, {8}, mesh, DataType::Int);
                  TensorView* table = input(f, {12, 6}, mesh);
                  shardBlock(table, 0, mesh, "x");
                  TensorView* y = embedding_fwd(index, table);
                  f.addOutput(y);
                  y->setDeviceMesh(mesh);
                  if (scattered) {
                    shardBlock(y, 0, mesh, "x");
                  }
                },
                {randomTensor({8}, DataType::Int, 1, 0, 12), random({12, 6}, 2)},
                {{scattered ? "reduce-scatter/4" : "all-reduce/4"}, 1, -1});
  }
}

TEST_F(Models, DropoutDrawsTheSameNumbersOnEveryMesh) {
  runScenario(4,
              [](Fusion& f) {
                DeviceMesh mesh = axisX(4);
                TensorView* x = input(f, {8, 16}, mesh);
                shardBlock(x, 1, mesh, "x");
                TensorView* mask = lt(rand_like(x), 0.5);
                f.addOutput(where(mask, x, 0.0));
              },
              {random({8, 16}, 1)}, {{}, 1, 0});
}

}  // namespace

}  // namespace meshfuse
