// The templates of library calls: what they accept, what they say of the rest, and the cost.
#include "schedule/library_call.h"

#include <gtest/gtest.h>

#include "ops/contraction.h"
#include "ops/pointwise.h"
#include "ops/scan_sort.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "schedule/kernel_check.h"

namespace meshfuse {
namespace {

DeviceInfo withLibrary() {
  DeviceInfo device;
  device.refuseContraction = [](const Expr& op, const std::map<int64_t, Layout>& layouts) {
    return layouts.contains(op.input(0)->id()) ? std::optional<std::string>("its first operand has a layout")
                                               : std::nullopt;
  };
  return device;
}

struct LibraryCalls : ::testing::Test {
  LibraryCalls() : guard(&fusion) {
    a = makeContigConcreteTensor({6, 20});
    b = makeContigConcreteTensor({20, 8});
    fusion.addInput(a);
    fusion.addInput(b);
    c = matmul(a, b);
  }
  Verdict judged(TensorView* output, const DeviceInfo& device, std::map<int64_t, Layout> layouts = {}) {
    fusion.addOutput(output);
    Group group = wholeGroup(fusion);
    group.layouts = std::move(layouts);
    return judge(group, device, allTemplates());
  }

  Fusion fusion;
  FusionGuard guard;
  TensorView* a;
  TensorView* b;
  TensorView* c;
};

TEST_F(LibraryCalls, OfAProductThatTheLibraryAccepts) {
  const Verdict verdict = judged(c, withLibrary(), {{b->id(), {{1, 20}, 16}}});
  ASSERT_NE(verdict.judgement, nullptr) << verdict.refusal;
  const Judgement& judgement = *verdict.judgement;
  EXPECT_TRUE(judgement.callsLibrary);
  EXPECT_FALSE(judgement.writesAnyLayout);
  EXPECT_FALSE(judgement.readsWhereItWrites(c, a));
  const auto call = std::get<LibraryCall>(judgement.write());
  EXPECT_EQ(call.op, c->definition());
  EXPECT_EQ(call.layouts.at(b->id()).strides, (std::vector<IntExpr>{1, 20}));
}

TEST_F(LibraryCalls, CostTheirBytesALaunchAndArithmetic) {
  const Cost cost = judged(c, withLibrary()).judgement->cost;
  EXPECT_EQ(cost.bytes, 4 * (6 * 20 + 20 * 8 + 6 * 8));
  EXPECT_EQ(cost.flops, 2 * 6 * 20 * 8);
  EXPECT_EQ(cost.total(), cost.bytes + cost.launch) << "few operations for each byte cost nothing";
  Cost large = cost;
  large.flops = 2 * Cost::kFlopsPerByte * cost.bytes;
  EXPECT_EQ(large.total(), 2 * cost.bytes + cost.launch);
}

TEST_F(LibraryCalls, AreRefusedForTheReasonOfTheLibrary) {
  const Verdict verdict = judged(c, withLibrary(), {{a->id(), {{1, 6}, 16}}});
  EXPECT_EQ(verdict.judgement, nullptr);
  EXPECT_EQ(verdict.refusal, "its first operand has a layout");
}

TEST_F(LibraryCalls, AreRefusedWithoutALibrary) {
  const Verdict verdict = judged(c, DeviceInfo::hopper());
  EXPECT_EQ(verdict.judgement, nullptr);
  EXPECT_EQ(verdict.refusal, "there is no library for this device");
}

TEST_F(LibraryCalls, ComputeOneOp) {
  const Verdict verdict = judged(neg(c), withLibrary());
  EXPECT_EQ(verdict.judgement, nullptr);
  EXPECT_EQ(verdict.refusal, "matmul is a library call");
}

TEST(Routines, NeedNoLibrary) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor({6, 20});
  fusion.addInput(x);
  fusion.addOutput(cumsum(x, 1));
  const Verdict verdict = judge(wholeGroup(fusion), {}, allTemplates());
  ASSERT_NE(verdict.judgement, nullptr) << verdict.refusal;
  EXPECT_TRUE(verdict.judgement->callsLibrary);
  EXPECT_EQ(verdict.judgement->cost.flops, 0);
  EXPECT_EQ(std::get<LibraryCall>(verdict.judgement->write()).op, fusion.outputs()[0]->definition());
}

}  // namespace
}  // namespace meshfuse
