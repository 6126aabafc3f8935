// Segmentation asks templates: the cheapest kernel is taken, and its template decides how it is written.
#include "schedule/template.h"

#include <gtest/gtest.h>

#include "meshfuse/meshfuse.h"
#include "segment/local_context.h"
#include "segment/segment.h"

namespace meshfuse {
namespace {

// A kernel of rows under another name and cost.
class PlainJudgement final : public Judgement {
 public:
  PlainJudgement(std::unique_ptr<const Judgement> rows, int64_t bytes)
      : Judgement(rows->group), rows_(std::move(rows)) {
    kind = "plain";
    cost.bytes = bytes;
    loops = rows_->loops;
    positions = rows_->positions;
  }
  std::variant<KernelPlan, LibraryCall> write() const override {
    KernelPlan plan = std::get<KernelPlan>(rows_->write());
    plan.kind = kind;
    return plan;
  }
  bool readsWhereItWrites(const TensorView*, const TensorView*) const override { return false; }
  std::optional<std::string> refuseParts(const Judgement&, const Judgement&) const override { return std::nullopt; }

 private:
  std::unique_ptr<const Judgement> rows_;
};

template <int64_t kBytes>
Verdict judgePlain(const Group& group, const DeviceInfo& device) {
  Verdict rows = judge(group, device, allTemplates());
  if (rows.judgement == nullptr || rows.judgement->kind != "pointwise") {
    return {nullptr, "it is not plain"};
  }
  return {std::make_unique<const PlainJudgement>(std::move(rows.judgement), kBytes), {}};
}

std::vector<Template> withPlain(Verdict (*judgeIt)(const Group&, const DeviceInfo&)) {
  std::vector<Template> all(allTemplates().begin(), allTemplates().end());
  all.push_back({"plain", judgeIt});
  return all;
}

// exp(x) and the sums of its rows, kernels by the name of their kind.
std::vector<std::string> kindsOf(const std::vector<Template>& templates) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor({24, 80});
  fusion.addInput(x);
  fusion.addOutput(exp(x));
  fusion.addOutput(sum(x, {1}));
  std::vector<Segment> segments = segment(fusion, {.templates = templates});
  writeSteps(segments);
  std::vector<std::string> kinds;
  for (const Segment& s : segments) {
    EXPECT_EQ(tile::verify(s.plan.program), std::vector<std::string>{});
    kinds.emplace_back(s.plan.kind);
  }
  return kinds;
}

TEST(Templates, TheCheaperOneWritesTheKernel) {
  EXPECT_EQ(kindsOf(withPlain(judgePlain<0>)), (std::vector<std::string>{"plain", "reduction"}))
      << "a kernel of rows holds no part that another template writes";
}

TEST(Templates, TheCostlierOneDoesNot) {
  EXPECT_EQ(kindsOf(withPlain(judgePlain<1 << 30>)), (std::vector<std::string>{"normalization"}));
}

TEST(Templates, AllSayWhyTheyRefuse) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor({8, 8});
  fusion.addInput(x);
  TensorView* y = matmul(x, x);
  Group group;
  group.fusion = &fusion;
  group.exprs = {y->definition()};
  group.inputs = {x};
  group.outputs = {y};
  const Verdict verdict = judge(group, {}, withPlain(judgePlain<0>));
  EXPECT_EQ(verdict.judgement, nullptr);
  EXPECT_EQ(verdict.refusal, "there is no library for this device; it is not plain");
}

TEST(Templates, TakeElementwiseOpsOfOneShapeUnjudged) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor({8, 8});
  fusion.addInput(x);
  TensorView* y = exp(x);
  TensorView* z = sum(y, {1});
  std::vector<Expr*> kernel = {y->definition()};
  EXPECT_TRUE(takesUnjudged(kernel, *add(y, x)->definition()));
  EXPECT_FALSE(takesUnjudged(kernel, *z->definition())) << "it is not elementwise";
  EXPECT_FALSE(takesUnjudged(kernel, *add(y, makeContigConcreteTensor({8}))->definition())) << "it broadcasts";
  EXPECT_FALSE(takesUnjudged(kernel, *add(y, neg(x))->definition())) << "it reads an op outside of the kernel";
  kernel.push_back(z->definition());
  kernel.push_back(neg(z)->definition());
  EXPECT_FALSE(takesUnjudged(kernel, *exp(kernel.back()->tensorOutput())->definition())) << "the kernel reduces";
}

TEST(Templates, ACostIsTheBytesOfTensorsAndALaunch) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor({24, 80}, DataType::BFloat16);
  fusion.addInput(x);
  TensorView* y = castOp(DataType::Float, x);
  fusion.addOutput(y);
  Group group;
  group.fusion = &fusion;
  group.exprs = {y->definition()};
  group.inputs = {x};
  group.outputs = {y};
  const Cost cost = judge(group, {}, allTemplates()).judgement->cost;
  EXPECT_EQ(cost.bytes, 24 * 80 * (2 + 4));
  EXPECT_EQ(cost.total(), cost.bytes + cost.launch);
  EXPECT_GT(judge(group, DeviceInfo::hopper(), allTemplates()).judgement->cost.launch, cost.launch)
      << "a GPU moves more in the time of a launch";
}

}  // namespace
}  // namespace meshfuse
