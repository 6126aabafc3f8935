// Programs of very many kernels that could stand beside each other: few pairs are judged in detail.
#include <gtest/gtest.h>

#include <atomic>

#include "meshfuse/meshfuse.h"
#include "schedule/registry.h"
#include "segment/local_context.h"
#include "segment/segment.h"

namespace meshfuse {
namespace {

std::atomic<int> judgedGroups;

// The schedulers of kernels, the first of which counts the groups it is asked about.
std::vector<Scheduler> countingSchedulers() {
  std::span<const Scheduler> rows = kernelSchedulers();
  std::vector<Scheduler> all(rows.begin(), rows.end());
  all.push_back({"counting", -1,
                 [](const Eligibility&, const DeviceInfo&) {
                   judgedGroups++;
                   return std::optional<std::string>("it only counts");
                 },
                 rows[0].schedule});
  std::swap(all.front(), all.back());  // the last one's reason is reported
  return all;
}

struct Cut {
  size_t kernels = 0;
  int judged = 0;
};

Cut cut(const std::function<void(Fusion&)>& build) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  build(fusion);
  LocalContext context;
  context.refuseLibraryCall = [](const Expr&, const std::map<int, Layout>&) { return std::nullopt; };
  judgedGroups = 0;
  const std::vector<Scheduler> schedulers = countingSchedulers();
  const std::vector<Segment> segments = segment(fusion, context, DeviceInfo{}, schedulers);
  return {segments.size(), judgedGroups};
}

constexpr int kMany = 300;
constexpr int kLookedAt = 5;  // groups judged a kernel

TEST(ManySiblings, OfOneShape) {
  const Cut c = cut([](Fusion& f) {
    for (int i = 0; i < kMany; i++) {
      TensorView* x = makeContigConcreteTensor({16, 32});
      f.addInput(x);
      f.addOutput(exp(x));
    }
  });
  EXPECT_LE(c.kernels, 10u);
  EXPECT_LE(c.judged, kLookedAt * kMany);
}

TEST(ManySiblings, OfOneInput) {
  const Cut c = cut([](Fusion& f) {
    TensorView* x = makeContigConcreteTensor({16, 32});
    f.addInput(x);
    for (int i = 0; i < kMany; i++) {
      f.addOutput(add(x, static_cast<double>(i)));
    }
  });
  EXPECT_LE(c.kernels, 5u);
  EXPECT_LE(c.judged, kLookedAt * kMany);
}

TEST(ManySiblings, OfManyShapes) {
  const Cut c = cut([](Fusion& f) {
    for (int i = 0; i < kMany; i++) {
      TensorView* x = makeContigConcreteTensor({16, 32 + i});
      f.addInput(x);
      f.addOutput(exp(x));
    }
  });
  EXPECT_EQ(c.kernels, static_cast<size_t>(kMany));
  EXPECT_LE(c.judged, kMany);
}

TEST(ManySiblings, OfOneInputThatLoopDifferently) {
  const Cut c = cut([](Fusion& f) {
    TensorView* x = makeContigConcreteTensor({16, 24, 32});
    f.addInput(x);
    for (int i = 0; i < kMany; i++) {
      f.addOutput(sum(add(x, static_cast<double>(i)), {i % 3}));
    }
  });
  EXPECT_LE(c.kernels, 15u);
  EXPECT_LE(c.judged, kLookedAt * kMany);
}

TEST(ManySiblings, BehindEachOther) {
  const Cut c = cut([](Fusion& f) {
    TensorView* x = makeContigConcreteTensor({16, 16});
    f.addInput(x);
    for (int i = 0; i < kMany; i++) {
      x = exp(matmul(x, x));
    }
    f.addOutput(x);
  });
  EXPECT_EQ(c.kernels, static_cast<size_t>(2 * kMany));
  EXPECT_LE(c.judged, kMany);
}

}  // namespace
}  // namespace meshfuse
