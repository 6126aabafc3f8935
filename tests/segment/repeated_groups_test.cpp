// Equal groups are judged once, and have the steps that each would have if it were judged alone.
#include "segment/repeated_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/ranges.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "schedule/rows.h"
#include "schedule/transpose.h"
#include "segment/local_context.h"
#include "segment/segment.h"
#include "segment/table.h"
#include "tile/tile.h"

namespace meshfuse {

namespace {

// A norm, products, a softmax with a scaled result, a permute, and sums of rows and of columns that are outputs.
TensorView* layer(Fusion& f, TensorView* x, double scale, bool hasOutputs) {
  TensorView* w = input(f, {48, 48});
  TensorView* n = layerNormOver(x, 1, input(f, {48}), input(f, {48}), 1e-5).output;
  TensorView* scores = mul(softmax(linear(n, w), -1), scale);
  TensorView* turned = permute(reshape(scores, {8, 4, 48}), {1, 0, 2});
  TensorView* back = reshape(permute(tanh_gelu(turned), {1, 0, 2}), {32, 48});
  if (hasOutputs) {
    f.addOutput(sum(back, {0}));
    f.addOutput(sum(back, {1}));
  }
  return add(x, matmul(back, w));
}

// `every`: so many layers have outputs once; 0: none.
std::unique_ptr<Fusion> layers(int64_t count, int64_t every, const std::function<double(int64_t layer)>& scale) {
  auto fusion = std::make_unique<Fusion>();
  TensorView* x = input(*fusion, {32, 48});
  for (int64_t k = 0; k < count; k++) {
    x = layer(*fusion, x, scale(k), every > 0 && k % every == every - 1);
  }
  fusion->addOutput(x);
  return fusion;
}

LocalContext context(bool hasLibrary) {
  LocalContext result;
  if (hasLibrary) {
    result.device.library = "a library";
    result.device.refuseContraction = [](const Expr&, const std::map<int64_t, Layout>&) {
      return std::optional<std::string>();
    };
  }
  return result;
}

std::vector<Segment> cut(Fusion& fusion, LocalContext& of) {
  runLocalPasses(fusion, of);
  return segment(fusion, of);
}

void expectEqualSteps(const Segment& s, const std::variant<KernelPlan, LibraryCall>& alone) {
  if (const auto* call = std::get_if<LibraryCall>(&alone)) {
    EXPECT_EQ(s.call.op, call->op);
    EXPECT_TRUE(std::ranges::equal(s.call.layouts, call->layouts, {}, &std::pair<const int64_t, Layout>::first,
                                   &std::pair<const int64_t, Layout>::first));
    return;
  }
  const KernelPlan& plan = std::get<KernelPlan>(alone);
  EXPECT_EQ(tile::toString(s.plan.program), tile::toString(plan.program));
  EXPECT_EQ(mapped(s.plan.slots, &KernelPlan::Slot::tensor), mapped(plan.slots, &KernelPlan::Slot::tensor));
  EXPECT_EQ(mapped(s.plan.slots, &KernelPlan::Slot::workspace), mapped(plan.slots, &KernelPlan::Slot::workspace));
  EXPECT_EQ(mapped(s.plan.workspaces, &KernelPlan::Workspace::elements),
            mapped(plan.workspaces, &KernelPlan::Workspace::elements));
  EXPECT_EQ(s.plan.sizes, plan.sizes);
  EXPECT_EQ(s.plan.scalars, plan.scalars);
  EXPECT_EQ(s.plan.kind, plan.kind);
}

void expectStepsAsAlone(Fusion& fusion, bool hasLibrary) {
  LocalContext of = context(hasLibrary);
  std::vector<Segment> segments = cut(fusion, of);
  for (const Segment& s : segments) {
    if (s.judgement != nullptr) {
      const std::unique_ptr<const Judgement> alone = of.judgementOf(s.group);
      EXPECT_EQ(s.judgement->cost.total(), alone->cost.total());
      EXPECT_EQ(s.judgement->loops, alone->loops);
      EXPECT_EQ(s.judgement->positions, alone->positions);
      EXPECT_EQ(s.judgement->callsLibrary, alone->callsLibrary);
      EXPECT_EQ(s.judgement->writesAnyLayout, alone->writesAnyLayout);
    }
  }
  std::vector<std::variant<KernelPlan, LibraryCall>> alone;
  for (const Segment& s : segments) {
    if (s.judgement != nullptr) {
      alone.push_back(of.judgementOf(s.group)->write());
    }
  }
  const auto judged = mapped(segments, [](const Segment& s) { return s.judgement != nullptr; });
  writeSteps(segments);
  for (int64_t k = 0, next = 0; k < std::ssize(segments); k++) {
    if (judged[k]) {
      SCOPED_TRACE(segments[k].group.outputs[0]->toString());
      expectEqualSteps(segments[k], alone.at(next++));
    }
  }
}

int64_t judgements = 0;

template <Verdict (*of)(const Group&, const DeviceInfo&)>
Verdict counted(const Group& group, const DeviceInfo& device) {
  judgements++;
  return of(group, device);
}

constexpr std::array kCounted = {Template{"transpose", counted<judgeTranspose>}, Template{"rows", counted<judgeRows>}};

int64_t judgementsOf(int64_t count) {
  const std::unique_ptr<Fusion> fusion = layers(count, 0, [](int64_t) { return 0.5; });
  LocalContext of = context(false);
  runLocalPasses(*fusion, of);
  of.templates = kCounted;
  judgements = 0;
  (void)segment(*fusion, of);
  return judgements;
}

// The numbers of tensors in a text, each moved by `by`.
std::string moved(const std::string& text, int64_t by) {
  std::string result;
  for (size_t at = 0; at < text.size(); at++) {
    result += text[at];
    const bool names = text[at] == 'T' && at + 1 < text.size() && text[at + 1] >= '0' && text[at + 1] <= '9';
    if (names) {
      size_t length = 0;
      result += std::to_string(std::stoll(text.substr(at + 1), &length) + by);
      at += length;
    }
  }
  return result;
}

}  // namespace

TEST(RepeatedGroups, StepsAreThoseOfEachGroupAlone) {
  for (const bool hasLibrary : {false, true}) {
    expectStepsAsAlone(*layers(6, 3, [](int64_t) { return 0.5; }), hasLibrary);
    expectStepsAsAlone(*layers(6, 3, [](int64_t k) { return k == 4 ? 0.25 : 0.5; }), hasLibrary);
  }
}

// Tensors whose numbers have another order, in two layers of equal ops.
TEST(RepeatedGroups, StepsOfTensorsInAnotherOrder) {
  Fusion f;
  TensorView* a = input(f, {64, 40});
  TensorView* b = input(f, {64, 1});
  f.addOutput(mul(add(a, b), add(b, a)));
  TensorView* c = input(f, {64, 1});
  TensorView* d = input(f, {64, 40});
  f.addOutput(mul(add(d, c), add(c, d)));
  expectStepsAsAlone(f, false);
}

TEST(RepeatedGroups, LaterLayersAreNotJudged) {
  const int64_t three = judgementsOf(3);
  EXPECT_GT(three, 20);
  EXPECT_EQ(judgementsOf(12), three);
}

// Reasons name the tensors of their own layer.
TEST(RepeatedGroups, ReasonsNameTheirOwnTensors) {
  Fusion fusion;
  std::vector<TensorView*> results{input(fusion, {32, 48})};
  for (int64_t k = 0; k < 6; k++) {
    TensorView* rows = softmax(results.back(), 1);
    results.push_back(add(rows, broadcast(sum(rows, {0}), {true, false})));
  }
  fusion.addOutput(results.back());
  LocalContext of = context(false);
  const std::vector<Segment> segments = cut(fusion, of);
  const auto segmentOf = [&](int64_t id) {
    const auto at = std::ranges::find_if(segments, [&](const Segment& s) { return s.group.outputs[0]->id() == id; });
    return at == segments.end() ? nullptr : &*at;
  };
  const int64_t stride = results[3]->id() - results[2]->id();
  int64_t reasons = 0;
  for (int64_t id = results[1]->id() + 1; id <= results[2]->id(); id++) {
    const Segment* first = segmentOf(id);
    for (int64_t later = 1; first != nullptr && later < 4; later++) {
      const Segment* other = segmentOf(id + later * stride);
      ASSERT_NE(other, nullptr);
      EXPECT_EQ(other->boundary, moved(first->boundary, later * stride));
      reasons += other->boundary.find("reduces other dims") != std::string::npos ? 1 : 0;
    }
  }
  EXPECT_GE(reasons, 3);
}

// A judgement that stands for equal groups is not compared with another one: siblings are judged anew.
TEST(RepeatedGroups, StandForEqualGroups) {
  const std::unique_ptr<Fusion> fusion = layers(2, 0, [](int64_t) { return 0.5; });
  LocalContext of = context(true);
  runLocalPasses(*fusion, of);
  RepeatedGroups groups(of);
  const auto group = [&](const Expr* e) { return of.groupOf(*fusion, {const_cast<Expr*>(e)}); };
  for (const Expr* e : fusion->exprs()) {
    if (e->kind() == ExprKind::Point && e->output()->isTensor()) {
      EXPECT_TRUE(standsForEqualGroups(*groups.judgementOf(group(e))));
      EXPECT_FALSE(standsForEqualGroups(*of.judgementOf(group(e))));
    }
  }
}

}  // namespace meshfuse
