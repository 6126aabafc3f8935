// Steps on disk: a program is cut as it was when they were stored, and an entry that does not cut it is a miss.
#include "segment/stored_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>

#include "base/disk_cache.h"
#include "base/entry_texts.h"
#include "base/ranges.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "segment/local_context.h"
#include "segment/table.h"
#include "tile/tile.h"

namespace meshfuse {

namespace {

namespace fs = std::filesystem;

// Kernels, library calls, a kernel that sums beside another one, and a view.
std::unique_ptr<Fusion> layers() {
  auto fusion = std::make_unique<Fusion>();
  Fusion& f = *fusion;
  TensorView* x = input(f, {32, 48});
  TensorView* w = input(f, {64, 48});
  for (int64_t layer = 0; layer < 2; layer++) {
    TensorView* wide = tanh_gelu(linear(softmax(x, 1), w));
    f.addOutput(sum(wide, {0}));
    x = add(x, slice(mul(wide, 0.5), {0, 0}, {32, 48}));
  }
  f.addOutput(neg(reshape(x, {8, 4, 48})));
  return fusion;
}

LocalContext context() {
  LocalContext result;
  result.device.library = "a library";
  result.device.refuseContraction = [](const Expr&, const std::map<int64_t, Layout>&) {
    return std::optional<std::string>();
  };
  return result;
}

// A template that refuses each group. It counts the groups that segmentation judges.
int64_t judged = 0;
Verdict countGroup(const Group& /*group*/, const DeviceInfo& /*device*/) {
  judged++;
  return {};
}

struct CutProgram {
  std::unique_ptr<Fusion> fusion;
  std::vector<Segment> segments;
};

CutProgram cutWith(LocalContext context) {
  CutProgram result{layers()};
  runLocalPasses(*result.fusion, context);
  judged = 0;
  result.segments = segment(*result.fusion, context);
  return result;
}

std::string textOf(CutProgram cut) {
  std::string text = entryOf(cut.segments);
  writeSteps(cut.segments);
  for (const Segment& s : cut.segments) {
    text += fmt::format("\nkernel {} {}\n{}", s.kernel, s.plan.kind, tile::toString(s.plan.program));
    EXPECT_EQ(s.plan.text, s.kind == SegmentKind::Kernel ? tile::toString(s.plan.program) : "");
    for (const KernelPlan::Slot& slot : s.plan.slots) {
      text += slot.tensor == nullptr ? "workspace " : slot.tensor->toString() + " ";
    }
    for (const Val* scalar : s.plan.scalars) {
      text += scalar->toString() + " ";
    }
    for (const IntExpr& size : s.plan.sizes) {
      text += size.toString() + " ";
    }
    text += s.call.op != nullptr ? s.call.op->output()->toString() : "";
  }
  return text;
}

class StoredCuts : public ::testing::Test {
 protected:
  StoredCuts() {
    std::string pattern = (fs::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    disk_ = std::make_unique<DiskCache>(root_ + "/cache");
  }
  ~StoredCuts() override { fs::remove_all(root_); }

  // As a process finds it.
  StoredCut stored() { return {disk_.get(), key_, disk_->load(key_)}; }
  CutProgram cut() {
    LocalContext c = context();
    c.stored = stored();
    return cutWith(std::move(c));
  }

  const Hash128 key_ = hashText("key");
  std::string root_;
  std::unique_ptr<DiskCache> disk_;
};

TEST_F(StoredCuts, AreThoseThatWereMade) {
  const std::string made = textOf(cutWith(context()));
  EXPECT_EQ(textOf(cut()), made);
  EXPECT_EQ(disk_->counters().written, 1);
  EXPECT_EQ(textOf(cut()), made);
  EXPECT_EQ(disk_->counters().written, 1);
  EXPECT_EQ(disk_->counters().hits, 1);
}

// Equal layers have equal kernels; those of a softmax and of its layer's sum are in both layers.
TEST_F(StoredCuts, EqualKernelsAreJudgedAndWrittenOnce) {
  std::vector<Template> templates = {{"count", &countGroup}};
  std::ranges::copy(allTemplates(), std::back_inserter(templates));
  LocalContext counting = context();
  counting.templates = templates;
  const std::string made = textOf(cut());
  counting.stored = stored();
  CutProgram loaded = cutWith(counting);
  const int64_t judgedOfLoaded = judged;
  EXPECT_EQ(textOf(cut()), made);
  writeSteps(loaded.segments);
  std::set<int64_t> numbers;
  int64_t kernels = 0;
  int64_t calls = 0;
  for (const Segment& s : loaded.segments) {
    EXPECT_EQ(s.kernel >= 0, s.kind == SegmentKind::Kernel);
    kernels += s.kind == SegmentKind::Kernel ? 1 : 0;
    calls += s.kind == SegmentKind::Library ? 1 : 0;
    if (s.kind == SegmentKind::Kernel) {
      EXPECT_LE(s.kernel, std::ssize(numbers));  // from 0 on
      numbers.insert(s.kernel);
    }
  }
  EXPECT_LT(std::ssize(numbers), kernels);
  EXPECT_LT(judgedOfLoaded, kernels + calls);
}

TEST_F(StoredCuts, AnEntryThatDoesNotCutTheProgramIsAMiss) {
  const CutProgram made = cutWith(context());
  const std::string entry = entryOf(made.segments);
  const auto isAMiss = [&](const std::string& other) {
    return !segmentsOf(other, *made.fusion, context()).has_value();
  };
  EXPECT_FALSE(isAMiss(entry));
  for (size_t n = 0; n < entry.size(); n += 3) {
    EXPECT_TRUE(isAMiss(entry.substr(0, n))) << n;
  }
  EXPECT_TRUE(isAMiss(entry + "x"));
  // steps by kind and ops
  using Steps = std::vector<std::pair<SegmentKind, std::vector<int64_t>>>;
  const Steps steps =
      mapped(made.segments, [](const Segment& s) { return std::pair(s.kind, mapped(s.group.exprs, &Expr::id)); });
  const auto entryFor = [](const Steps& of) {
    EntryWriter writer;
    writer.add(std::to_string(of.size()));
    for (const auto& [kind, ids] : of) {
      writer.add(std::to_string(static_cast<int>(kind)));
      writer.add(joined(ids, " ", [](int64_t id) { return std::to_string(id); }));
      writer.add("");
      writer.add(std::vector<std::string>());
    }
    return writer.bytes();
  };
  const auto changed = [&](const std::function<void(Steps&)>& change) {
    Steps other = steps;
    change(other);
    return entryFor(other);
  };
  EXPECT_FALSE(isAMiss(changed([](Steps&) {})));
  EXPECT_TRUE(isAMiss(changed([](Steps& s) { s.pop_back(); })));
  EXPECT_TRUE(isAMiss(changed([](Steps& s) { s.push_back(s.back()); })));
  EXPECT_TRUE(isAMiss(changed([](Steps& s) { std::ranges::reverse(s); })));
  EXPECT_TRUE(isAMiss(changed([](Steps& s) { s[0].second[0] = 1000; })));
  EXPECT_TRUE(isAMiss(changed([](Steps& s) { s[0].second.clear(); })));
  const auto library = std::ranges::find(steps, SegmentKind::Library, &Steps::value_type::first) - steps.begin();
  ASSERT_LT(library, std::ssize(steps));
  EXPECT_TRUE(isAMiss(changed([&](Steps& s) { s[library].first = SegmentKind::Kernel; })));
  EXPECT_TRUE(isAMiss(changed([&](Steps& s) { s[library].first = SegmentKind::View; })));
  EXPECT_TRUE(isAMiss(changed([](Steps& s) { s[0].first = SegmentKind::Communicate; })));
  EXPECT_TRUE(isAMiss(changed([](Steps& s) { s[0].first = SegmentKind::View; })));
  EXPECT_TRUE(isAMiss(changed([](Steps& s) { s[0].first = static_cast<SegmentKind>(9); })));
}

TEST_F(StoredCuts, AProgramWhoseEntryIsAMissIsCutAndStored) {
  const std::string made = textOf(cutWith(context()));
  disk_->store(key_, "no steps");
  EXPECT_EQ(textOf(cut()), made);
  EXPECT_EQ(disk_->counters().written, 2);
  EXPECT_EQ(stored().entry, entryOf(cutWith(context()).segments));
}

}  // namespace

}  // namespace meshfuse
