// The sentence encoder of examples/encoder.cpp on random weights in the layout of BertModel, against the reference and against loops.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "../../examples/encoder_batches.h"
#include "../../examples/encoder_model.h"
#include "../../examples/planned.h"
#include "device/open.h"
#include "examples/bert_weights.h"
#include "interpret/interpret.h"

namespace encoder {
namespace {

constexpr double kBound = 5e-7;  // of an element of a vector of length 1

// The embedding of one sentence, by loops in double.
class Loops {
 public:
  Loops(const std::vector<std::pair<std::string, Tensor>>& weights, const BertSizes& s)
      : weights_(weights.begin(), weights.end()), s_(s) {}

  std::vector<double> embed(const Sentence& tokens) const {
    Rows x;
    for (size_t p = 0; p < tokens.size(); p++) {
      Row& row = x.emplace_back(s_.features);
      for (int64_t f = 0; f < s_.features; f++) {
        row[f] = at("embeddings.word_embeddings.weight", tokens[p], f) +
                 at("embeddings.position_embeddings.weight", static_cast<int64_t>(p), f) +
                 at("embeddings.token_type_embeddings.weight", 0, f);
      }
    }
    x = norm(x, "embeddings.LayerNorm");
    for (int64_t k = 0; k < s_.layers; k++) {
      const std::string layer = fmt::format("encoder.layer.{}.", k);
      x = norm(sum(x, dense(attention(x, layer), layer + "attention.output.dense")),
               layer + "attention.output.LayerNorm");
      Rows inner = dense(x, layer + "intermediate.dense");
      for (Row& row : inner) {
        for (double& v : row) {
          v *= (1 + std::erf(v / std::sqrt(2.0))) / 2;
        }
      }
      x = norm(sum(x, dense(inner, layer + "output.dense")), layer + "output.LayerNorm");
    }
    Row total(s_.features);
    double square = 0;
    for (int64_t f = 0; f < s_.features; f++) {
      for (const Row& row : x) {
        total[f] += row[f];
      }
      square += total[f] * total[f];
    }
    for (double& v : total) {
      v /= std::sqrt(square);
    }
    return total;
  }

 private:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  double at(const std::string& name, int64_t i, int64_t j) const { return weights_.at(name).at({i, j}); }
  Rows dense(const Rows& x, const std::string& name) const {
    const Tensor& bias = weights_.at(name + ".bias");
    Rows y(x.size(), Row(bias.size(0)));
    for (size_t p = 0; p < x.size(); p++) {
      for (int64_t o = 0; o < bias.size(0); o++) {
        y[p][o] = bias.at({o});
        for (size_t i = 0; i < x[p].size(); i++) {
          y[p][o] += at(name + ".weight", o, static_cast<int64_t>(i)) * x[p][i];
        }
      }
    }
    return y;
  }
  Rows norm(Rows x, const std::string& name) const {
    const auto n = static_cast<double>(s_.features);
    for (Row& row : x) {
      double mean = 0, variance = 0;
      for (const double v : row) {
        mean += v / n;
      }
      for (const double v : row) {
        variance += (v - mean) * (v - mean) / n;
      }
      for (int64_t f = 0; f < s_.features; f++) {
        row[f] = (row[f] - mean) / std::sqrt(variance + 1e-12) * weights_.at(name + ".weight").at({f}) +
                 weights_.at(name + ".bias").at({f});
      }
    }
    return x;
  }
  static Rows sum(Rows a, const Rows& b) {
    for (size_t p = 0; p < a.size(); p++) {
      for (size_t f = 0; f < a[p].size(); f++) {
        a[p][f] += b[p][f];
      }
    }
    return a;
  }
  Rows attention(const Rows& x, const std::string& layer) const {
    const Rows q = dense(x, layer + "attention.self.query"), k = dense(x, layer + "attention.self.key"),
               v = dense(x, layer + "attention.self.value");
    const int64_t each = s_.features / s_.heads;
    Rows y(x.size(), Row(s_.features));
    for (int64_t head = 0; head < s_.heads; head++) {
      for (size_t p = 0; p < x.size(); p++) {
        Row scores(x.size());
        double total = 0;
        for (size_t other = 0; other < x.size(); other++) {
          for (int64_t f = head * each; f < (head + 1) * each; f++) {
            scores[other] += q[p][f] * k[other][f];
          }
          total += scores[other] = std::exp(scores[other] / std::sqrt(static_cast<double>(each)));
        }
        for (size_t other = 0; other < x.size(); other++) {
          for (int64_t f = head * each; f < (head + 1) * each; f++) {
            y[p][f] += scores[other] / total * v[other][f];
          }
        }
      }
    }
    return y;
  }

  std::map<std::string, Tensor> weights_;
  BertSizes s_;
};

class EncoderTest : public ::testing::Test {
 protected:
  EncoderTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    path_ = root_ + "/model.safetensors";
    writeSafetensors(path_, weights_);
  }
  ~EncoderTest() override { std::filesystem::remove_all(root_); }

  static DeviceMesh grid(int64_t dp, int64_t tp) { return DeviceMesh::create({{"dp", dp}, {"tp", tp}}); }

  // Gets the embeddings of each batch, and the batch as the ranks pad it together.
  using Look = std::function<void(size_t batch, const Tensor& padded, const Tensor& embeddings)>;

  void embed(const std::vector<std::vector<Sentence>>& batches, int64_t dp, int64_t tp, const Look& look,
             const std::string& device = "cpu") const {
    const auto build = [&](const SafetensorsFile& file, Communicator&) {
      return model(file, sizes_.heads, grid(dp, tp));
    };
    embedWith(batches, dp * tp, {.sentences = dp}, build, look, device);
  }
  // Calls `look` on every rank.
  void embedWith(const std::vector<std::vector<Sentence>>& batches, int64_t ranks, const Padding& padding,
                 const std::function<std::unique_ptr<Fusion>(const SafetensorsFile&, Communicator&)>& build,
                 const Look& look, const std::string& device = "cpu") const {
    runLoopback(ranks, [&](Communicator& world) {
      const SafetensorsFile file(path_);
      FusionExecutorCache cache(build(file, world), {.communicator = &world});
      const DeviceId id = localDevice(device, world);
      NamedArguments arguments = loadSharded(file, cache.fusion(), world.rank(), {"tokens"});
      for (auto& [name, part] : arguments) {
        part = std::get<Tensor>(part).to(id);
      }
      arguments.emplace_back("tokens", Tensor());
      const TensorView* tokens = cache.fusion().inputs()[0]->asTensor();
      for (size_t b = 0; b < batches.size(); b++) {
        const Tensor padded = paddedBatch(batches[b], padding, sizesOf(file).positions);
        arguments.back().second = shardTensor(padded, tokens, world.rank()).to(id);
        look(b, padded, cache.run(arguments)[0].to(DeviceId::cpu()));
      }
    });
  }

  // Compares with the interpreter on whole tensors.
  Look isThatOfTheReference(const std::string& where) const {
    return [this, where](size_t b, const Tensor& padded, const Tensor& embeddings) {
      const SafetensorsFile file(path_);
      const std::unique_ptr<Fusion> fusion = model(file, sizes_.heads);
      std::vector<Argument> inputs = {padded};
      for (const auto& [name, weight] : loadSharded(file, *fusion, 0, {"tokens"})) {
        inputs.emplace_back(weight);
      }
      const std::vector<double> expected = interpret(*fusion, inputs)[0].toVector();
      const std::vector<double> got = embeddings.toVector();
      ASSERT_EQ(got.size(), expected.size()) << where;
      for (size_t i = 0; i < got.size(); i++) {
        ASSERT_NEAR(got[i], expected[i], kBound) << "batch " << b << ", element " << i << ", " << where;
      }
    };
  }

  const BertSizes sizes_;
  const std::vector<std::pair<std::string, Tensor>> weights_ = randomWeights(sizes_);
  // Sentences of any length, and numbers of sentences that the ranks of dp do not divide
  const std::vector<std::vector<Sentence>> batches_ = {
      {{5, 7, 1}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6, 7}, {12}}, {{3, 3, 3, 1}}, {{9}, {8, 7}}};
  std::string root_;
  std::string path_;
};

TEST_F(EncoderTest, AgreesWithTheReferenceOnAnyMesh) {
  for (const auto& [dp, tp] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}}) {
    embed(batches_, dp, tp, isThatOfTheReference(fmt::format("dp {}, tp {}", dp, tp)));
  }
}

// Devices so slow that all ops are cut, on one axis and on two; at last as the planner likes with the speeds of the program.
TEST_F(EncoderTest, AgreesWithTheReferenceByAPlan) {
  struct Case {
    int64_t ranks;
    std::vector<DeviceMesh::Axis> mesh;
  };
  const Case cases[] = {{2, {{"x", 2}}}, {4, {{"x", 4}}}, {4, {{"x", 2}, {"y", 2}}}, {2, {}}, {4, {}}};
  for (const Case& c : cases) {
    const Padding padding = paddingFor(c.ranks);
    const auto build = [&](const SafetensorsFile& file, Communicator& world) {
      return planned::byRankZero(world, [&] {
        std::unique_ptr<Fusion> fusion = model(file, sizes_.heads);
        DistributedConfig machines = planned::machinesOf(world, DeviceId::cpu());
        if (!c.mesh.empty()) {
          machines.within = {.bandwidth = 1e12, .latency = 0};
          machines.device = {.flops = 1e6, .flops16 = 1e6, .bandwidth = 1e6, .launch = 0};
        }
        const AutoPlan plan = shardByPlan(*fusion, paddedShape(3, 19, padding, sizes_.positions), machines,
                                          {.mesh = c.mesh, .alternatives = false});
        EXPECT_EQ(plan.mesh.size(), c.ranks);
        const bool cuts = std::ranges::any_of(
            plan.pins, [](const PlannedTensor& t) { return t.sharding.find('S') != std::string::npos; });
        EXPECT_TRUE(cuts || c.mesh.empty()) << plan.text();
        return fusion;
      });
    };
    embedWith(batches_, c.ranks, padding, build,
              isThatOfTheReference(fmt::format("{} ranks, {} axes", c.ranks, c.mesh.size())));
  }
}

TEST_F(EncoderTest, IsBertWithTheMeanOfTheTokens) {
  const Loops loops(weights_, sizes_);
  embed(batches_, 1, 1, [&](size_t b, const Tensor&, const Tensor& embeddings) {
    for (size_t i = 0; i < batches_[b].size(); i++) {
      const std::vector<double> expected = loops.embed(batches_[b][i]);
      for (int64_t f = 0; f < sizes_.features; f++) {
        ASSERT_NEAR(embeddings.at({static_cast<int64_t>(i), f}), expected[f], kBound) << "batch " << b << ": " << i;
      }
    }
  });
}

TEST_F(EncoderTest, OnGpusIsThatOnCpus) {
  if (const Gpus gpus = gpusOfThisMachine(); gpus.count == 0) {
    GTEST_SKIP() << "no GPU: " << gpus.missing;
  }
  const Loops loops(weights_, sizes_);
  embed(
      {batches_[2]}, 1, 2,
      [&](size_t, const Tensor&, const Tensor& embeddings) {
        const std::vector<double> expected = loops.embed(batches_[2][1]);
        for (int64_t f = 0; f < sizes_.features; f++) {
          ASSERT_NEAR(embeddings.at({1, f}), expected[f], kBound);
        }
      },
      "cuda");
}

// Of the bytes that tp cuts, each of 4 ranks holds a quarter, to a row of the vocabulary.
TEST_F(EncoderTest, EachRankHoldsItsPartOfTheWeights) {
  const SafetensorsFile file(path_);
  auto bytesOf = [&](int64_t tp, int64_t rank, bool cut) {
    const std::unique_ptr<Fusion> fusion = model(file, sizes_.heads, grid(1, tp));
    int64_t bytes = 0;
    for (const auto& [name, argument] : loadSharded(file, *fusion, rank, {"tokens"})) {
      const auto& part = std::get<Tensor>(argument);
      const bool isWhole = part.numel() == file.get(name).numel();
      bytes += isWhole != cut ? part.nbytes() : 0;
    }
    return bytes;
  };
  const int64_t whole = bytesOf(1, 0, false);
  int64_t cutOfAll = 0;
  for (int64_t rank = 0; rank < 4; rank++) {
    cutOfAll += bytesOf(4, rank, true);
    EXPECT_LE(bytesOf(4, rank, true), (whole - bytesOf(4, rank, false)) / 4 + sizes_.features * 4) << rank;
  }
  EXPECT_EQ(cutOfAll, whole - bytesOf(4, 0, false));
  EXPECT_GT(cutOfAll, whole / 2);
}

}  // namespace
}  // namespace encoder
