// Plans on disk: a loaded plan is the one that was made; an entry that holds no plan of the call is a miss.
#include "exec/stored_plan.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/build_id.h"
#include "base/disk_cache.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

namespace fs = std::filesystem;

// A table lookup, and a product whose weight is cut over the ranks: a plan with communication, and an op that errors name by its builder.
std::unique_ptr<Fusion> layer(int64_t features = 16) {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}});
  TensorView* tokens = makeContigTensor(1, DataType::Int);
  TensorView* table = makeContigConcreteTensor({32, features});
  TensorView* w = makeContigConcreteTensor({8, features});
  for (TensorView* in : {tokens, table, w}) {
    fusion->addInput(in);
    in->setDeviceMesh(mesh);
  }
  w->outer_split(1, 2);
  w->axis(1)->parallelize(ParallelType::DIDx);
  fusion->addOutput(relu(linear(embedding_fwd(tokens, table), w)), "y");
  return fusion;
}

std::vector<std::vector<int64_t>> sizesOf(const Fusion& fusion, int64_t tokens) {
  return {{tokens}, fusion.inputs()[1]->asTensor()->constantShape(), fusion.inputs()[2]->asTensor()->constantShape()};
}

ShapeClass classOf(int64_t tokens) {
  ShapeClass result{.sizes = {{"i0", IntExpr::symbol("i0", {.lower = 32, .divisor = 32})}}};
  result.values = result.valuesFor({{"i0", tokens}});
  return result;
}

std::string textOf(const PlannedProgram& program) {
  EXPECT_EQ(program.planned->toString(), *program.text);
  std::string text = program.planned->toString() + joined(program.sizes.toLines(), "\n") + program.sizes.whyConstant +
                     (program.acceptsBetween ? "\naccepts between\n" : "\n") + joined(program.remarks, "\n");
  for (const auto& [id, reason] : program.reasons) {
    text += fmt::format("\nT{}: {}", id, reason);
  }
  for (const Expr* e : program.planned->exprs()) {
    text += fmt::format("\n{} {} {}", e->id(), e->output()->id(), e->calledName());
  }
  return text;
}

class StoredPlans : public ::testing::Test {
 protected:
  StoredPlans() {
    std::string pattern = (fs::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    disk_ = std::make_unique<DiskCache>(root_ + "/cache");
  }
  ~StoredPlans() override { fs::remove_all(root_); }

  static std::shared_ptr<PlannedProgram> plan(const Fusion& fusion, int64_t tokens, const ShapeClass& sizes,
                                              DiskCache* disk) {
    const std::vector<std::vector<int64_t>> global = sizesOf(fusion, tokens);
    return planProgram({fusion, global, ""}, sizes, {}, disk);
  }
  std::shared_ptr<PlannedProgram> stored(const Fusion& fusion, int64_t tokens, const ShapeClass& sizes) {
    return plan(fusion, tokens, sizes, disk_.get());
  }
  static Hash128 keyOf(const Fusion& fusion, int64_t tokens, const ShapeClass& sizes = {},
                       const PassSettings& passes = {}) {
    return *keyOfPlan(fusion, sizesOf(fusion, tokens), sizes, passes);
  }
  // Of the only entry.
  fs::path file() const { return fs::directory_iterator(root_ + "/cache")->path(); }

  std::string root_;
  std::unique_ptr<DiskCache> disk_;
};

TEST_F(StoredPlans, AreThoseThatWereMade) {
  for (const ShapeClass& sizes : {ShapeClass{}, classOf(64)}) {
    const std::string made = textOf(*plan(*layer(), 64, sizes, nullptr));
    const DiskCacheCounters before = disk_->counters();
    EXPECT_EQ(textOf(*stored(*layer(), 64, sizes)), made);
    EXPECT_EQ(disk_->counters().written, before.written + 1);
    EXPECT_EQ(disk_->counters().hits, before.hits);
    EXPECT_EQ(textOf(*stored(*layer(), 64, sizes)), made);
    EXPECT_EQ(disk_->counters().hits, before.hits + 1);
    EXPECT_NE(made.find("embedding_fwd"), std::string::npos);
    EXPECT_NE(made.find("plan=["), std::string::npos);
    EXPECT_EQ(made.find("i0") == std::string::npos, sizes.isConstant());
  }
}

TEST_F(StoredPlans, AreForOneFusionItsSizesAndSettings) {
  const std::unique_ptr<Fusion> fusion = layer();
  const Hash128 key = keyOf(*fusion, 64);
  EXPECT_EQ(keyOf(*layer(), 64), key);
  EXPECT_NE(keyOf(*layer(18), 64), key);
  EXPECT_NE(keyOf(*fusion, 96), key);
  EXPECT_NE(keyOf(*fusion, 64, classOf(64)), key);
  EXPECT_NE(keyOf(*fusion, 64, {}, {.planner = PlannerSettings{.bound = 100}}), key);
  EXPECT_NE(keyOf(*fusion, 64, {}, {.reduceInFloat = true}), key);
  EXPECT_NE(keyOf(*fusion, 64, {}, {.optimizeReshards = false}), key);
  EXPECT_NE(keyOf(*fusion, 64, {}, {.callBytes = 1}), key);
  EXPECT_NE(keyOf(*fusion, 64, {}, {.bucketBytes = 1}), key);
  EXPECT_NE(keyOf(*fusion, 64, {}, {.overlapCommunication = false}), key);
  EXPECT_EQ(keyOfPlan(*fusion, sizesOf(*fusion, 64), {}, {.verify = false}), std::nullopt);
  const std::unique_ptr<Fusion> otherBuilder = layer();
  otherBuilder->setCalledAs(otherBuilder->exprs().front(), "another");  // errors name it
  EXPECT_NE(keyOf(*otherBuilder, 64), key);
  (void)fusion->inputScalar(DataType::Double);  // new values get other numbers
  EXPECT_NE(keyOf(*fusion, 64), key);
}

TEST_F(StoredPlans, AChangedByteIsAMiss) {
  const std::unique_ptr<Fusion> fusion = layer();
  const std::string made = textOf(*stored(*fusion, 64, {}));
  const auto size = static_cast<std::streamoff>(fs::file_size(file()));
  for (const std::streamoff at : {std::streamoff{0}, std::streamoff{25}, size / 3, size / 2, size - 1}) {
    {
      std::fstream bytes(file(), std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(at);
      const int byte = bytes.get();
      bytes.seekp(at);
      bytes.put(static_cast<char>(byte ^ 0x10));
    }
    const int64_t bad = disk_->counters().bad;
    EXPECT_EQ(textOf(*stored(*fusion, 64, {})), made) << at;
    EXPECT_EQ(disk_->counters().bad, bad + 1) << at;
  }
  EXPECT_EQ(disk_->counters().hits, 0);
}

// Whole entries with other bytes.
TEST_F(StoredPlans, BytesThatAreNoPlanAreAMiss) {
  const std::unique_ptr<Fusion> fusion = layer();
  const Hash128 key = keyOf(*fusion, 64);
  const std::string made = textOf(*stored(*fusion, 64, {}));
  const std::string bytes = *disk_->load(key);
  const auto missesWith = [&](const std::string& other) {
    disk_->store(key, other);
    return loadPlan(*disk_, key, *fusion, {}) == nullptr;
  };
  EXPECT_FALSE(missesWith(bytes));
  EXPECT_TRUE(missesWith("x"));
  EXPECT_TRUE(missesWith("99999999999999999999\nx"));
  EXPECT_TRUE(missesWith("-1\nx"));
  EXPECT_TRUE(missesWith(bytes + "x"));
  EXPECT_TRUE(missesWith("2\nno" + bytes.substr(bytes.find('\n') + 1)));
  for (size_t n = 0; n < bytes.size(); n += 7) {
    EXPECT_TRUE(missesWith(bytes.substr(0, n))) << n;
  }
  EXPECT_EQ(textOf(*stored(*fusion, 64, {})), made);
}

// The text of a program is read late. An entry without one is deleted then, so the next call plans anew.
TEST_F(StoredPlans, AnEntryWhoseProgramIsNoneIsDeletedWhenItIsRead) {
  const std::unique_ptr<Fusion> fusion = layer();
  const Hash128 key = keyOf(*fusion, 64);
  const std::shared_ptr<PlannedProgram> program = stored(*fusion, 64, {});
  const std::string made = textOf(*program);
  const std::string bytes = *disk_->load(key);
  const std::string last = fmt::format("{}\n{}", program->text->size(), *program->text);
  ASSERT_TRUE(bytes.ends_with(last));
  disk_->store(key, bytes.substr(0, bytes.size() - last.size()) + "9\nno fusion");
  const std::shared_ptr<PlannedProgram> loaded = stored(*fusion, 64, {});
  EXPECT_EQ(*loaded->text, "no fusion");
  EXPECT_EQ(disk_->counters().bad, 0);
  EXPECT_THROW((void)loaded->planned.fusion(), InternalError);
  EXPECT_EQ(disk_->counters().bad, 1);
  EXPECT_EQ(textOf(*stored(*fusion, 64, {})), made);
  EXPECT_EQ(disk_->load(key), bytes);
}

// An entry of another build is never read only if each build has its own identifier, which the linker makes from what it links.
TEST_F(StoredPlans, ABuildHasTheIdentifierOfItsLinker) {
  Dl_info library;
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&buildId), &library), 0);
  const std::string command = fmt::format("readelf -n '{}' 2>/dev/null", library.dli_fname);
  FILE* const notes = popen(command.c_str(), "r");
  ASSERT_NE(notes, nullptr);
  std::string text;
  for (int c = 0; (c = fgetc(notes)) != EOF;) {
    text += static_cast<char>(c);
  }
  if (pclose(notes) != 0) {
    GTEST_SKIP() << "no readelf";
  }
  EXPECT_GE(buildId().size(), 16u);
  EXPECT_NE(text.find("Build ID: " + buildId() + "\n"), std::string::npos) << buildId() << "\n" << text;
}

}  // namespace

}  // namespace meshfuse
