// The code of docs/tutorial.md, word for word: each block stands between two markers.
#include "docs/tutorial.h"

// [define]
#include "meshfuse/meshfuse.h"

using namespace meshfuse;

std::unique_ptr<Fusion> sumOfTwo() {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* a = makeContigTensor(2);  // two dims of any size
  TensorView* b = makeContigTensor(2);
  fusion->addInput(a, "a");
  fusion->addInput(b, "b");
  fusion->addOutput(relu(add(a, b)), "y");
  return fusion;
}
// [end]

// [run]
Tensor runSumOfTwo() {
  FusionExecutorCache cache(sumOfTwo());
  const Tensor a = Tensor::of({1, -2, 3, -4}, {2, 2});
  const Tensor b = Tensor::full({2, 2}, DataType::Float, 1.5);
  return cache.run({{"b", b}, {"a", a}})[0];  // [[2.5, 0], [4.5, 0]]
}
// [end]

// [explain]
std::vector<std::string> stepsOf(const FusionExecutorCache& cache) {
  std::vector<std::string> steps;
  for (const ExplainedStep& step : cache.explain().steps) {
    steps.push_back(step.kind + " " + step.name);
  }
  return steps;
}
// [end]

// [shard]
std::unique_ptr<Fusion> mlp(int64_t ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::create({{"tp", ranks}});
  TensorView* x = makeContigTensor(2);   // [batch, features]
  TensorView* w0 = makeContigTensor(2);  // [hidden, features]
  TensorView* w1 = makeContigTensor(2);  // [features, hidden]
  for (const auto& [input, name] : {std::pair{x, "x"}, {w0, "w0"}, {w1, "w1"}}) {
    fusion->addInput(input, name);
    input->setDeviceMesh(mesh);  // whole on every rank, unless a loop is bound
  }
  w0->outer_split(0, ranks)->axis(0)->parallelize(mesh.axis("tp"));
  w1->outer_split(1, ranks)->axis(1)->parallelize(mesh.axis("tp"));
  fusion->addOutput(linear(tanh_gelu(linear(x, w0)), w1), "y");
  return fusion;
}
// [end]

// [ranks]
std::vector<Tensor> runMlp(int64_t ranks, const Tensor& x, const Tensor& w0, const Tensor& w1) {
  std::vector<Tensor> results(ranks);
  runLoopback(ranks, [&](Communicator& world) {
    FusionExecutorCache cache(mlp(ranks), {.communicator = &world});
    auto partOf = [&](const Tensor& whole, int64_t input) {
      return shardTensor(whole, cache.fusion().inputs()[input]->asTensor(), world.rank());
    };
    results[world.rank()] = cache.run({{"x", x}, {"w0", partOf(w0, 1)}, {"w1", partOf(w1, 2)}})[0];
  });
  return results;  // equal: y is whole on every rank
}
// [end]

// [verify]
Tensor verified(Communicator& world, const std::vector<Argument>& inputs) {
  FusionExecutorCache cache(mlp(world.size()), {.communicator = &world, .verify = Verify::First});
  return cache.runFusionWithInputs(inputs)[0];
}
// [end]

// [profile]
std::string profiled(FusionExecutorCache& cache, const std::vector<Argument>& inputs) {
  const Profile profile = cache.profile(inputs, 10);  // each step: the fastest of 10 calls
  return profile.text();                              // or profile.json()
}
// [end]

// [load]
Tensor runMlpOfFile(const std::string& weights, const Tensor& x, Communicator& world) {
  FusionExecutorCache cache(mlp(world.size()), {.communicator = &world});
  NamedArguments inputs = loadSharded(SafetensorsFile(weights), cache.fusion(), world.rank(), {"x"});
  inputs.emplace_back("x", x);
  return cache.run(inputs)[0];
}
// [end]

// [encoder]
#include "../../examples/encoder_model.h"

Tensor embed(const std::string& path, int64_t heads, Communicator& world, const Tensor& tokens) {
  const SafetensorsFile file(path);
  const int64_t dp = world.size() % 2 == 0 ? 2 : 1;
  const DeviceMesh mesh = DeviceMesh::create({{"dp", dp}, {"tp", world.size() / dp}});
  FusionExecutorCache cache(encoder::model(file, heads, mesh), {.communicator = &world});
  NamedArguments inputs = loadSharded(file, cache.fusion(), world.rank(), {"tokens"});
  const TensorView* input = cache.fusion().inputs()[0]->asTensor();
  inputs.emplace_back("tokens", shardTensor(tokens, input, world.rank()));
  return cache.run(inputs)[0];
}
// [end]

// [deploy]
void embedFile(const std::string& weights, int64_t heads, const std::string& tokens, const std::string& embeddings) {
  const std::unique_ptr<Communicator> world = openWorld();
  const Tensor result = embed(weights, heads, *world, readNpy(tokens));
  if (world->rank() == 0) {
    writeNpy(embeddings, result);
  }
}
// [end]
