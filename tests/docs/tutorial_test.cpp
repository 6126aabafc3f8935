// The steps of docs/tutorial.md do what it says.
#include <unistd.h>

#include <filesystem>
#include <regex>

#include "../../examples/encoder_model.h"
#include "docs/document.h"
#include "docs/tutorial.h"

namespace meshfuse {
namespace {

constexpr int64_t kHeads = 4;  // of the encoder

class Tutorial : public ::testing::Test {
 protected:
  Tutorial() {
    std::string pattern = (std::filesystem::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~Tutorial() override { std::filesystem::remove_all(root_); }

  void expectNear(const Tensor& got, const Tensor& expected, double bound) const {
    ASSERT_TRUE(std::ranges::equal(got.sizes(), expected.sizes()));
    const std::vector<double> values = expected.toVector();
    for (int64_t i = 0; i < std::ssize(values); i++) {
      EXPECT_NEAR(got.toVector()[i], values[i], bound);
    }
  }

  // An encoder of one layer, 8 features and kHeads heads, with 6 words and 16 positions.
  std::string writeEncoder() const {
    std::vector<std::pair<std::string, Tensor>> weights;
    auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
      weights.emplace_back(name, randomTensor(shape, DataType::Float, weights.size() + 1));
    };
    const std::string layer = "encoder.layer.0.";
    add("embeddings.word_embeddings.weight", {6, 8});
    add("embeddings.position_embeddings.weight", {16, 8});
    add("embeddings.token_type_embeddings.weight", {2, 8});
    for (const std::string name : {"attention.self.query", "attention.self.key", "attention.self.value",
                                   "attention.output.dense", "intermediate.dense", "output.dense"}) {
      add(layer + name + ".weight", {8, 8});
      add(layer + name + ".bias", {8});
    }
    for (const std::string& name : {std::string("embeddings"), layer + "attention.output", layer + "output"}) {
      add(name + ".LayerNorm.weight", {8});
      add(name + ".LayerNorm.bias", {8});
    }
    writeSafetensors(root_ + "/encoder.safetensors", weights);
    return root_ + "/encoder.safetensors";
  }

  const Tensor x_ = randomTensor({3, 8}, DataType::Float, 1);
  const Tensor w0_ = randomTensor({16, 8}, DataType::Float, 2);
  const Tensor w1_ = randomTensor({8, 16}, DataType::Float, 3);
  std::string root_;
};

TEST_F(Tutorial, EveryBlockOfCodeIsTheOneThatIsCompiled) {
  const std::string page = fileText(kRoot + "docs/tutorial.md");
  const std::string compiled = fileText(kRoot + "tests/docs/tutorial.cpp");
  const std::regex marked("// \\[(\\w+)\\]\n([^]*?)// \\[end\\]");
  size_t from = 0;
  for (std::sregex_iterator it(compiled.begin(), compiled.end(), marked), end; it != end; ++it) {
    const std::string block = "```cpp\n" + (*it)[2].str() + "```\n";
    if ((*it)[1] == "end") {
      continue;
    }
    const size_t at = page.find(block, from);
    EXPECT_NE(at, std::string::npos) << "docs/tutorial.md lacks, or has in another order: " << (*it)[1];
    EXPECT_EQ(page.find("```cpp\n", from), at) << "a block before " << (*it)[1] << " is not compiled";
    from = at + block.size();
  }
  EXPECT_GT(from, 0u);
  EXPECT_EQ(page.find("```cpp\n", from), std::string::npos) << "the last block is not compiled";
}

TEST_F(Tutorial, DefineRunExplain) {
  EXPECT_EQ(runSumOfTwo().toVector(), (std::vector<double>{2.5, 0, 4.5, 0}));
  FusionExecutorCache cache(sumOfTwo());
  const Tensor a = Tensor::zeros({2, 2}, DataType::Float);
  (void)cache.runFusionWithInputs({a, a});
  EXPECT_EQ(stepsOf(cache), std::vector<std::string>{"kernel pointwise T5[2, 2]"});
}

TEST_F(Tutorial, ShardVerifyProfile) {
  const Tensor expected = runMlp(1, x_, w0_, w1_)[0];
  for (const Tensor& result : runMlp(4, x_, w0_, w1_)) {
    expectNear(result, expected, 1e-5);
  }
  writeSafetensors(root_ + "/w.safetensors", {{"w0", w0_}, {"w1", w1_}});
  runLoopback(2, [&](Communicator& world) {
    FusionExecutorCache cache(mlp(2), {.communicator = &world});
    expectNear(runMlpOfFile(root_ + "/w.safetensors", x_, world), expected, 1e-5);
    auto partOf = [&](const Tensor& whole, int64_t input) {
      return shardTensor(whole, cache.fusion().inputs()[input]->asTensor(), world.rank());
    };
    const std::vector<Argument> inputs = {x_, partOf(w0_, 1), partOf(w1_, 2)};
    expectNear(cache.runFusionWithInputs(inputs)[0], expected, 1e-5);
    ASSERT_EQ(cache.commSteps().size(), 1u);
    EXPECT_EQ(cache.commSteps()[0].kind, "all-reduce");
    expectNear(verified(world, inputs), expected, 1e-5);
    const std::string profile = profiled(cache, inputs);
    EXPECT_NE(profile.find("all-reduce"), std::string::npos) << profile;
    EXPECT_TRUE(profile.starts_with(fmt::format("rank {}: ", world.rank()))) << profile;
  });
}

TEST_F(Tutorial, EncoderAndDeploy) {
  const std::string weights = writeEncoder();
  const Tensor tokens = Tensor::zeros({2, 4}, DataType::Int);
  std::ranges::copy(std::vector<int64_t>{5, 1, 2, 0, 3, 4, 0, 0}, tokens.data_as<int64_t>());
  writeNpy(root_ + "/tokens.npy", tokens);
  embedFile(weights, kHeads, root_ + "/tokens.npy", root_ + "/embeddings.npy");
  const Tensor embeddings = readNpy(root_ + "/embeddings.npy");
  double square = 0;
  for (int64_t f = 0; f < 8; f++) {
    square += embeddings.at({1, f}) * embeddings.at({1, f});
  }
  EXPECT_NEAR(square, 1, 1e-6);
  runLoopback(4, [&](Communicator& world) { expectNear(embed(weights, kHeads, world, tokens), embeddings, 5e-7); });
}

}  // namespace
}  // namespace meshfuse
