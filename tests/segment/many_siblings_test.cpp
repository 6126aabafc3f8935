// Programs of very many kernels that could stand beside each other: few pairs are judged in detail.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>

#include "meshfuse/meshfuse.h"
#include "segment/local_context.h"
#include "segment/segment.h"

namespace meshfuse {
namespace {

std::atomic<int64_t> judgedGroups;

// Counts the groups it is asked about.
Verdict count(const Group&, const DeviceInfo&) {
  judgedGroups++;
  return {nullptr, "it only counts"};
}

std::vector<Template> countingTemplates() {
  std::vector<Template> all = {{"counting", count}};
  all.insert(all.end(), allTemplates().begin(), allTemplates().end());
  return all;
}

struct Cut {
  size_t steps = 0;
  int64_t judged = 0;
};

Cut cut(const std::function<void(Fusion&)>& build) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  build(fusion);
  const std::vector<Template> templates = countingTemplates();
  LocalContext context{.templates = templates};
  context.device.refuseContraction = [](const Expr&, const std::map<int64_t, Layout>&) {
    return std::optional<std::string>();
  };
  judgedGroups = 0;
  const std::vector<Segment> segments = segment(fusion, context);
  return {segments.size(), judgedGroups};
}

constexpr int64_t kMany = 300;
constexpr int64_t kLookedAt = 5;  // groups judged a kernel

TEST(ManySiblings, OfOneShape) {
  const Cut c = cut([](Fusion& f) {
    for (int64_t i = 0; i < kMany; i++) {
      TensorView* x = makeContigConcreteTensor({16, 32});
      f.addInput(x);
      f.addOutput(exp(x));
    }
  });
  EXPECT_LE(c.steps, 10u);
  EXPECT_LE(c.judged, kLookedAt * kMany);
}

TEST(ManySiblings, OfOneInput) {
  const Cut c = cut([](Fusion& f) {
    TensorView* x = makeContigConcreteTensor({16, 32});
    f.addInput(x);
    for (int64_t i = 0; i < kMany; i++) {
      f.addOutput(add(x, static_cast<double>(i)));
    }
  });
  EXPECT_LE(c.steps, 5u);
  EXPECT_LE(c.judged, kLookedAt * kMany);
}

TEST(ManySiblings, OfManyShapes) {
  const Cut c = cut([](Fusion& f) {
    for (int64_t i = 0; i < kMany; i++) {
      TensorView* x = makeContigConcreteTensor({16, 32 + i});
      f.addInput(x);
      f.addOutput(exp(x));
    }
  });
  EXPECT_EQ(c.steps, kMany);
  EXPECT_LE(c.judged, kMany);
}

TEST(ManySiblings, OfOneInputThatLoopDifferently) {
  const Cut c = cut([](Fusion& f) {
    TensorView* x = makeContigConcreteTensor({16, 24, 32});
    f.addInput(x);
    for (int64_t i = 0; i < kMany; i++) {
      f.addOutput(sum(add(x, static_cast<double>(i)), {i % 3}));
    }
  });
  EXPECT_LE(c.steps, 15u);
  EXPECT_LE(c.judged, kLookedAt * kMany);
}

TEST(ManySiblings, OneAfterTheOther) {
  const Cut c = cut([](Fusion& f) {
    TensorView* x = makeContigConcreteTensor({16, 16});
    f.addInput(x);
    for (int64_t i = 0; i < kMany; i++) {
      x = exp(matmul(x, x));
    }
    f.addOutput(x);
  });
  EXPECT_EQ(c.steps, 2 * kMany);
  EXPECT_LE(c.judged, 2 * kMany) << "kernels and library calls once each";
}

}  // namespace
}  // namespace meshfuse
