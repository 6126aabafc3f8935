#include "multidevice/sharding/load_sharded.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_tensor.h"
#include "ops/tensors.h"
#include "tensor/safetensors.h"

namespace meshfuse {
namespace {

class LoadShardedTest : public ::testing::Test {
 protected:
  LoadShardedTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    path_ = root_ + "/w.safetensors";
  }
  ~LoadShardedTest() override { std::filesystem::remove_all(root_); }

  static TensorView* input(Fusion& fusion, const std::vector<int64_t>& sizes, int cutDim, int ranks,
                           DataType type = DataType::Float) {
    FusionGuard guard(&fusion);
    TensorView* tv = makeContigConcreteTensor(sizes, type);
    tv->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
    if (cutDim >= 0) {
      tv->outer_split(cutDim, ranks)->axis(cutDim)->parallelize(ParallelType::DIDx);
    }
    return tv;
  }
  std::string refusal(const std::string& name, const TensorView* tv) const {
    try {
      (void)loadSharded(SafetensorsFile(path_), name, tv, 0);
    } catch (const UserError& e) {
      return e.what();
    }
    return "none";
  }

  std::string root_;
  std::string path_;
};

TEST_F(LoadShardedTest, GivesWhatShardTensorGives) {
  const Tensor w = randomTensor({8, 6}, DataType::Float, 1);
  writeSafetensors(path_, {{"w", w}, {"n", Tensor::of({1}, {1}, DataType::Char)}});
  const SafetensorsFile file(path_);
  for (const int cut : {-1, 0, 1}) {
    for (const int ranks : {1, 2, 3}) {
      Fusion fusion;
      const TensorView* tv = input(fusion, {8, 6}, cut, ranks);
      for (int64_t rank = 0; rank < ranks; rank++) {
        const Tensor part = loadSharded(file, "w", tv, rank);
        const Tensor expected = shardTensor(w, tv, rank);
        EXPECT_EQ(part.toVector(), expected.toVector()) << cut << " of " << ranks;
        EXPECT_TRUE(std::ranges::equal(part.globalShape(), expected.globalShape())) << cut << " of " << ranks;
        EXPECT_TRUE(part.isContiguous());
        EXPECT_NE(part.storage(), file.get("w").storage()) << "memory of the file, which may be cut short";
      }
    }
  }
}

TEST_F(LoadShardedTest, LoadsAllNamedInputsOfAFusion) {
  const Tensor w = randomTensor({8, 6}, DataType::Float, 1);
  const Tensor b = randomTensor({6}, DataType::Float, 2);
  writeSafetensors(path_, {{"layer.b", b}, {"layer.w", w}, {"unused", b}});
  const SafetensorsFile file(path_);
  Fusion fusion;
  fusion.addInput(input(fusion, {2, 8}, -1, 2), "x");
  fusion.addInput(input(fusion, {8, 6}, 0, 2), "layer.w");
  fusion.addInput(input(fusion, {6}, -1, 2), "layer.b");
  fusion.addInput(input(fusion, {3}, -1, 2));  // without a name
  const NamedArguments parts = loadSharded(file, fusion, 1, {"x"});
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].first, "layer.w");
  EXPECT_EQ(std::get<Tensor>(parts[0].second).toVector(), w.slice(0, 4, 8).toVector());
  EXPECT_EQ(parts[1].first, "layer.b");
  EXPECT_EQ(std::get<Tensor>(parts[1].second).toVector(), b.toVector());
  auto refusalOf = [&](const std::vector<std::string>& others) -> std::string {
    try {
      (void)loadSharded(file, fusion, 1, others);
    } catch (const UserError& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_NE(refusalOf({}).find(path_ + " has no tensor named x"), std::string::npos) << refusalOf({});
  EXPECT_NE(refusalOf({"x", "layer.v"}).find("no input named layer.v; did you mean layer.w?"), std::string::npos)
      << refusalOf({"x", "layer.v"});
}

TEST_F(LoadShardedTest, AnotherShapeOrTypeIsRefused) {
  writeSafetensors(path_, {{"w", randomTensor({8, 6}, DataType::Half, 1)}});
  Fusion fusion;
  EXPECT_EQ(refusal("w", input(fusion, {8, 6}, 0, 2, DataType::Half)), "none");
  const std::string shape = refusal("w", input(fusion, {8, 5}, 0, 2, DataType::Half));
  EXPECT_NE(shape.find("w has the shape [8, 6], T1"), std::string::npos) << shape;
  EXPECT_NE(shape.find("has [8, 5]"), std::string::npos) << shape;
  EXPECT_NE(shape.find(path_), std::string::npos) << shape;
  EXPECT_NE(refusal("w", input(fusion, {8}, 0, 2, DataType::Half)).find("has [8]"), std::string::npos);
  const std::string type = refusal("w", input(fusion, {8, 6}, 0, 2));
  EXPECT_NE(type.find("w is of Half"), std::string::npos) << type;
  EXPECT_NE(refusal("W", input(fusion, {8, 6}, 0, 2)).find("did you mean w?"), std::string::npos);
  FusionGuard guard(&fusion);
  EXPECT_EQ(refusal("w", makeContigTensor(2, DataType::Half)), "none");
}

// Bytes of the file that are in the memory of this process.
int64_t residentBytes(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  int64_t bytes = -1;
  bool isOurs = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') != std::string::npos && line.find(':') > line.find('-')) {
      isOurs = line.ends_with(path);
    } else if (isOurs && line.starts_with("Rss:")) {
      bytes = std::max<int64_t>(bytes, 0) + 1024 * std::stoll(line.substr(4));
    }
  }
  return bytes;
}

// A vocabulary of 22,000 words and 1,024 features, and a small tensor: 90 MB
TEST_F(LoadShardedTest, ReadsOnlyThePartOfTheRank) {
  writeSafetensors(path_, {{"wte", Tensor::full({22000, 1024}, DataType::Float, 0.5)},
                           {"b", Tensor::zeros({1024}, DataType::Float)}});
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path_));
  for (int64_t rank = 0; rank < 4; rank++) {
    Fusion fusion;
    const TensorView* tv = input(fusion, {22000, 1024}, 0, 4);
    const auto begin = std::chrono::steady_clock::now();
    const SafetensorsFile file(path_);
    const Tensor part = loadSharded(file, "wte", tv, rank);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    const int64_t resident = residentBytes(path_);
    RecordProperty("milliseconds_of_rank_" + std::to_string(rank), std::to_string(took.count()));
    EXPECT_EQ(part.nbytes(), 22000 / 4 * 1024 * 4);
    EXPECT_GE(resident, bytes / 4 - 100000) << "the pages are counted wrong";
    EXPECT_LE(resident, bytes * 3 / 10);
  }
}

}  // namespace
}  // namespace meshfuse
