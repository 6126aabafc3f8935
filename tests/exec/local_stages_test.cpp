// What a rank stores of its stages: it is loaded as it was made, for one program and rank, and an entry that holds something else is a miss.
#include "exec/local_stages.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/disk_cache.h"
#include "base/error.h"
#include "exec/compile.h"
#include "ir/text.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"

namespace meshfuse {

namespace {

namespace fs = std::filesystem;

// A table lookup, and a product whose weight is cut over two ranks. The second result has uneven parts.
std::unique_ptr<Fusion> lookups() {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}});
  TensorView* tokens = makeContigTensor(1, DataType::Int);
  TensorView* table = makeContigConcreteTensor({32, 16});
  TensorView* w = makeContigConcreteTensor({8, 16});
  TensorView* uneven = makeContigConcreteTensor({5, 4});
  for (TensorView* in : {tokens, table, w, uneven}) {
    fusion->addInput(in);
    in->setDeviceMesh(mesh);
  }
  w->outer_split(1, 2);
  w->axis(1)->parallelize(ParallelType::DIDx);
  uneven->outer_split(0, 2);
  uneven->axis(0)->parallelize(ParallelType::DIDx);
  fusion->addOutput(relu(linear(embedding_fwd(tokens, table), w)), "y");
  fusion->addOutput(neg(uneven));
  return fusion;
}

// Each half of the results is on one of two ranks, in another order of ranks for the second one.
std::unique_ptr<Fusion> onTwoMeshes() {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  for (const std::vector<int64_t>& ranks : {std::vector<int64_t>{0, 1}, std::vector<int64_t>{1, 0}}) {
    const DeviceMesh mesh = DeviceMesh::create({{"x", 2}}, ranks);
    TensorView* in = makeContigConcreteTensor({8});
    fusion->addInput(in);
    in->setDeviceMesh(mesh);
    TensorView* out = neg(in);
    out->setDeviceMesh(mesh);
    out->outer_split(0, 2);
    out->axis(0)->parallelize(ParallelType::DIDx);
    fusion->addOutput(out);
  }
  return fusion;
}

// Planning adds tensors that are not on rank 0.
std::unique_ptr<Fusion> besideRankZero() {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  TensorView* tv = makeContigConcreteTensor({8});
  fusion->addInput(tv);
  for (int64_t k = 0; k < 5; k++) {
    tv->setDeviceMesh(DeviceMesh::create({{"x", 2}}, {1, 2}));
    if (k % 2 == 0) {
      tv->outer_split(0, 2);
      tv->axis(0)->parallelize(ParallelType::DIDx);
    }
    tv = k < 4 ? neg(tv) : tv;
  }
  fusion->addOutput(tv);
  return fusion;
}

SegmentedProgram programOf(const Fusion& fusion, int64_t tokens, const ShapeClass& sizes = {},
                           const PassSettings& passes = {}) {
  std::vector<std::vector<int64_t>> global = {{tokens}};
  for (size_t i = 1; i < fusion.inputs().size(); i++) {
    global.push_back(fusion.inputs()[i]->asTensor()->constantShape());
  }
  SegmentedProgram result;
  const std::string assumed;
  const auto planned = planProgram({fusion, global, assumed}, sizes, passes, nullptr);
  static_cast<PlannedProgram&>(result) = *planned;
  result.agreedOn = planned;
  return result;
}

std::string textOf(const RankFacts& facts) {
  std::string text = fmt::format("allowed {} ends together {} memory {}\n", facts.overlap.allowed,
                                 facts.overlap.endsTogether, facts.overlap.memory.value_or(-1));
  for (const auto& [symbol, value] : facts.coordinates) {
    text += fmt::format("{} is {}\n", symbol, value);
  }
  for (const std::vector<int64_t>& shape : facts.unevenGlobalShapes) {
    text += fmt::format("[{}]\n", fmt::join(shape, ", "));
  }
  return text;
}

std::string textOf(const Fusion& local) {
  std::string text = local.toString();
  for (const Expr* e : local.exprs()) {
    text += fmt::format("{} {}\n", e->output()->id(), e->calledName());
  }
  return text;
}

class LocalStages : public ::testing::Test {
 protected:
  LocalStages() {
    std::string pattern = (fs::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    disk_ = std::make_unique<DiskCache>(root_ + "/cache");
    if (!keyOfPart(programOf(*fusion_, 6), *fusion_, 0, info_, {})) {
      reason_ = "the build has no identifier";
    }
  }
  ~LocalStages() override { fs::remove_all(root_); }
  void SetUp() override {
    if (!reason_.empty()) {
      GTEST_SKIP() << reason_;
    }
  }

  // The local program of a rank and its facts.
  std::string partOf(SegmentedProgram& program, int64_t rank, DiskCache* disk) {
    const std::shared_ptr<Fusion> local = localProgram(program, *fusion_, rank, info_, {}, disk);
    return textOf(*local) + textOf(program.ofRank);
  }

  const std::unique_ptr<Fusion> fusion_ = lookups();
  DeviceInfo info_;
  std::string root_;
  std::unique_ptr<DiskCache> disk_;
  std::string reason_;
};

TEST_F(LocalStages, ALoadedPartIsTheOneThatWasMade) {
  for (int64_t rank = 0; rank < 2; rank++) {
    SegmentedProgram program = programOf(*fusion_, 6);
    const std::string made = partOf(program, rank, nullptr);
    EXPECT_NE(made.find("embedding_fwd"), std::string::npos);
    EXPECT_NE(made.find("communicate"), std::string::npos) << made;
    EXPECT_NE(made.find("[5, 4]"), std::string::npos) << made;  // the global shape of uneven parts
    EXPECT_EQ(partOf(program, rank, disk_.get()), made);
    EXPECT_EQ(disk_->counters().written, rank + 1);
    // nothing reads the planned program
    program.planned = ParsedFusion(std::make_shared<const std::string>("no fusion"), {});
    EXPECT_EQ(partOf(program, rank, disk_.get()), made);
    EXPECT_EQ(disk_->counters().hits, rank + 1);
  }
}

TEST_F(LocalStages, BytesThatAreNoPartAreAMiss) {
  SegmentedProgram program = programOf(*fusion_, 6);
  const std::string made = partOf(program, 1, disk_.get());
  const Hash128 key = *keyOfPart(program, *fusion_, 1, info_, {});
  const std::string bytes = *disk_->load(key);
  std::vector<std::string> others = {"", "x", "-1\nx", bytes + "x", "99999999999999999999\nx"};
  for (size_t n = 0; n < bytes.size(); n += 37) {
    others.push_back(bytes.substr(0, n));
  }
  const std::string text = localProgram(program, *fusion_, 1, info_, {}, disk_.get())->toString();
  ASSERT_TRUE(bytes.ends_with(fmt::format("{}\n{}", text.size(), text)));
  others.push_back(bytes.substr(0, bytes.size() - fmt::format("{}\n{}", text.size(), text).size()) + "9\nno fusion");
  for (const std::string& other : others) {
    disk_->store(key, other);
    const int64_t bad = disk_->counters().bad;
    EXPECT_EQ(partOf(program, 1, disk_.get()), made);
    EXPECT_EQ(disk_->counters().bad, bad + 1);
    EXPECT_EQ(disk_->load(key), bytes);  // stored again
  }
}

TEST_F(LocalStages, APartWithSeveralCoordinatesOfAnAxisIsStored) {
  const std::unique_ptr<Fusion> fusion = onTwoMeshes();
  for (int64_t rank = 0; rank < 2; rank++) {
    SegmentedProgram program = programOf(*fusion, 8);
    const std::string made = textOf(*localProgram(program, *fusion, rank, info_, {}, nullptr));
    EXPECT_NE(made.find("symbol coord.x.1 {"), std::string::npos) << made;
    EXPECT_EQ(textOf(*localProgram(program, *fusion, rank, info_, {}, disk_.get())), made);
    EXPECT_EQ(disk_->counters().written, rank + 1);
    EXPECT_EQ(textOf(*localProgram(program, *fusion, rank, info_, {}, disk_.get())), made);
    EXPECT_EQ(disk_->counters().hits, rank + 1);
  }
}

TEST_F(LocalStages, NewValuesGetNumbersOfNoPlannedTensor) {
  const std::unique_ptr<Fusion> fusion = besideRankZero();
  SegmentedProgram program = programOf(*fusion, 8);
  const std::shared_ptr<Fusion> made = localProgram(program, *fusion, 0, info_, {}, nullptr);
  const int64_t planned = program.planned->numVals();
  ASSERT_LT(parseFusion(made->toString())->numVals(), planned) << made->toString() << program.planned->toString();
  for (int64_t hits = 0; hits < 2; hits++) {
    const std::shared_ptr<Fusion> local = localProgram(program, *fusion, 0, info_, {}, disk_.get());
    EXPECT_EQ(disk_->counters().hits, hits);
    EXPECT_EQ(textOf(*local), textOf(*made));
    EXPECT_GE(local->numVals(), planned);
    EXPECT_EQ(local->numVals(), made->numVals());
  }
}

TEST_F(LocalStages, APartIsOfOneProgramRankAndTarget) {
  const SegmentedProgram program = programOf(*fusion_, 6);
  std::set<std::string> keys;
  const auto add = [&](const SegmentedProgram& of, int64_t rank, const DeviceInfo& device, const PassSettings& passes) {
    keys.insert(keyOfPart(of, *fusion_, rank, device, passes)->hex());
    return std::ssize(keys);
  };
  EXPECT_EQ(add(program, 0, info_, {}), 1);
  EXPECT_EQ(add(programOf(*lookups(), 6), 0, info_, {}), 1);
  EXPECT_EQ(add(program, 1, info_, {}), 2);
  EXPECT_EQ(add(programOf(*fusion_, 7), 0, info_, {}), 3);
  EXPECT_EQ(add(program, 0, info_, {.overlapCommunication = false}), 4);
  DeviceInfo gpu = info_;
  gpu.target = tile::Target::Gpu;
  EXPECT_EQ(add(program, 0, gpu, {}), 5);
  const std::unique_ptr<Fusion> otherBuilder = lookups();
  otherBuilder->setCalledAs(otherBuilder->exprs().front(), "another");  // errors name it
  EXPECT_NE(keyOfPart(program, *otherBuilder, 0, info_, {}), keyOfPart(program, *fusion_, 0, info_, {}));
  EXPECT_FALSE(keyOfPart(program, *fusion_, 0, info_, {.verify = false}));
  SegmentedProgram ofClass = programOf(*fusion_, 6);  // for constant sizes, made from that of a class
  auto agreedOn = std::make_shared<PlannedProgram>(*program.agreedOn);
  agreedOn->sizes.values["i0"] = 6;
  ofClass.agreedOn = agreedOn;
  EXPECT_FALSE(keyOfPart(ofClass, *fusion_, 0, info_, {}));
}

TEST_F(LocalStages, ACutIsOfOneProgramRankDeviceAndLayout) {
  const SegmentedProgram program = programOf(*fusion_, 6);
  std::set<std::string> keys;
  const auto add = [&](const SegmentedProgram& of, int64_t rank, const LocalContext& context) {
    keys.insert(keyOfCut(of, context, rank)->hex());
    return std::ssize(keys);
  };
  LocalContext context{.layouts = {{1, {{16, 1}, 64}}}, .device = info_};
  EXPECT_EQ(add(program, 0, context), 1);
  EXPECT_EQ(add(programOf(*lookups(), 6), 0, context), 1);
  EXPECT_EQ(add(program, 1, context), 2);
  EXPECT_EQ(add(programOf(*fusion_, 7), 0, context), 3);
  SegmentedProgram other = programOf(*fusion_, 6);
  other.agreed.identity = 1;
  EXPECT_EQ(add(other, 0, context), 4);
  const auto changed = [&](const std::function<void(LocalContext&)>& change) {
    LocalContext result = context;
    change(result);
    return result;
  };
  EXPECT_EQ(add(program, 0, changed([](LocalContext& c) { c.layouts[1].alignment = 4; })), 5);
  EXPECT_EQ(add(program, 0, changed([](LocalContext& c) { c.layouts[1].strides[0] = 17; })), 6);
  EXPECT_EQ(add(program, 0, changed([](LocalContext& c) { c.layouts.clear(); })), 7);
  EXPECT_EQ(add(program, 0, changed([](LocalContext& c) { c.device.l2Bytes++; })), 8);
  EXPECT_EQ(add(program, 0, changed([](LocalContext& c) { c.device.library = "another"; })), 9);
  EXPECT_EQ(add(program, 0, changed([](LocalContext& c) { c.device.gpu.registers++; })), 10);
  EXPECT_FALSE(keyOfCut(program, changed([](LocalContext& c) { c.verify = false; }), 0));
}

// Passes are verified unless the steps are on disk: they were when these were stored.
TEST_F(LocalStages, PassesOfAStoredCutAreNotVerifiedAgain) {
  SegmentedProgram program = programOf(*fusion_, 6);
  const std::shared_ptr<Fusion> local = localProgram(program, *fusion_, 0, info_, {}, nullptr);
  const std::vector<Argument> inputs = {Tensor::zeros({6}, DataType::Int), Tensor::zeros({32, 16}, DataType::Float),
                                        Tensor::zeros({8, 8}, DataType::Float), Tensor::zeros({3, 4}, DataType::Float)};
  const auto contextWith = [&](const PassSettings& passes, DiskCache* disk) {
    return localContext(program, *local, inputs, 0, info_, passes, disk);
  };
  EXPECT_TRUE(contextWith({}, nullptr).verify);
  EXPECT_FALSE(contextWith({}, nullptr).stored);
  EXPECT_FALSE(contextWith({.verify = false}, disk_.get()).verify);
  EXPECT_FALSE(contextWith({.verify = false}, disk_.get()).stored);
  const LocalContext first = contextWith({}, disk_.get());
  ASSERT_TRUE(first.stored);
  EXPECT_TRUE(first.verify);
  EXPECT_FALSE(first.stored->entry);
  EXPECT_EQ(first.stored->key, *keyOfCut(program, first, 0));
  EXPECT_FALSE(first.layouts.empty());
  disk_->store(first.stored->key, "steps");
  const LocalContext second = contextWith({}, disk_.get());
  EXPECT_FALSE(second.verify);
  EXPECT_EQ(second.stored->entry, "steps");
  std::vector<Argument> strided = inputs;  // has steps of its own
  strided[3] = Tensor::zeros({4, 3}, DataType::Float).transpose(0, 1);
  EXPECT_FALSE(localContext(program, *local, strided, 0, info_, {}, disk_.get()).stored->entry);
}

TEST(ParsedFusions, AreReadOnce) {
  const std::unique_ptr<Fusion> fusion = lookups();
  const Builders builders = buildersOf(*fusion);
  EXPECT_FALSE(builders.empty());
  const ParsedFusion parsed(std::make_shared<const std::string>(fusion->toString()), builders);
  const ParsedFusion copy = parsed;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(textOf(*parsed), textOf(*fusion));
  EXPECT_EQ(&*copy, &*parsed);
  EXPECT_EQ(buildersFrom(linesOf(builders), *fusion), builders);
  EXPECT_THROW((void)buildersFrom({"x embedding_fwd"}, *fusion), UserError);
  EXPECT_THROW((void)parseWith({{0, "neg"}}, fusion->toString()), UserError);  // an input
  EXPECT_THROW((void)ParsedFusion(std::make_shared<const std::string>("no fusion"), {}).fusion(), InternalError);
  int64_t calls = 0;
  const ParsedFusion bad(std::make_shared<const std::string>("no fusion"), {}, [&calls] { calls++; });
  EXPECT_EQ(calls, 0);
  EXPECT_THROW((void)bad.fusion(), InternalError);
  EXPECT_EQ(calls, 1);
  EXPECT_THROW((void)ParsedFusion().fusion(), InternalError);
}

}  // namespace

}  // namespace meshfuse
