// propagateShardings for given tensors and axes, and single passes by name: what a user calls between annotations.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "ir/text.h"
#include "multidevice/sharding/shard_state.h"
#include "ops/pointwise.h"
#include "ops/tensors.h"
#include "preseg_passes/propagate_shardings.h"
#include "preseg_passes/table.h"

namespace meshfuse {
namespace {

// T1 = x + y, T2 = exp(T1), T3 = T2 * x; x is S0(y) S1(x) on {y: 2, x: 2}, y is a free input.
class SelectivePropagation : public testing::Test {
 protected:
  SelectivePropagation() : guard_(&fusion_) {
    x_ = makeContigConcreteTensor({8, 6});
    y_ = makeContigConcreteTensor({8, 6});
    fusion_.addInput(x_);
    fusion_.addInput(y_);
    x_->setDeviceMesh(DeviceMesh({0, 1, 2, 3}, {2, 2}));
    x_->outer_split(1, 2)->axis(1)->parallelize(ParallelType::DIDx);
    x_->outer_split(0, 2)->axis(0)->parallelize(ParallelType::DIDy);
    sum_ = add(x_, y_);
    power_ = exp(sum_);
    out_ = mul(power_, x_);
    fusion_.addOutput(out_);
  }

  static std::string stateOf(const TensorView* tv) {
    const std::string state = tv->hasDeviceMesh() ? shardState(tv).toString() : "no mesh";
    return state.substr(0, state.find(" on "));
  }
  static void expectUserError(const std::function<void()>& call, const std::string& part) {
    try {
      call();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  }

  Fusion fusion_;
  FusionGuard guard_;
  TensorView *x_, *y_, *sum_, *power_, *out_;
};

TEST_F(SelectivePropagation, OnlyGivenTensorsTakeAxes) {
  EXPECT_TRUE(propagateShardings(fusion_, {.tensors = {sum_, y_}}));
  EXPECT_EQ(stateOf(sum_), "S0(y) S1(x)");
  EXPECT_EQ(stateOf(y_), "S0(y) S1(x)") << "an input that is listed takes axes too";
  EXPECT_EQ(stateOf(power_), "no mesh");
  EXPECT_EQ(stateOf(out_), "no mesh");
  EXPECT_FALSE(propagateShardings(fusion_, {.tensors = {sum_, y_}}));
}

TEST_F(SelectivePropagation, OnlyGivenAxesPropagate) {
  EXPECT_TRUE(propagateShardings(fusion_, {.axes = {ParallelType::DIDx}}));
  for (const TensorView* tv : {sum_, power_, out_}) {
    EXPECT_EQ(stateOf(tv), "R S1(x)");
  }
  EXPECT_EQ(stateOf(y_), "no mesh") << "an input that is not listed stays as it is";
  // a listed tensor keeps its axes and takes further ones
  EXPECT_TRUE(propagateShardings(fusion_, {.tensors = {sum_}, .axes = {ParallelType::DIDy}}));
  EXPECT_EQ(stateOf(sum_), "S0(y) S1(x)");
  EXPECT_EQ(stateOf(power_), "R S1(x)");
}

TEST_F(SelectivePropagation, CountsAsWrittenByTheUser) {
  propagateShardings(fusion_, {.tensors = {power_, out_}, .axes = {ParallelType::DIDx}});
  EXPECT_EQ(stateOf(power_), "R S1(x)") << "backward, from the result";
  EXPECT_TRUE(runPass(fusion_, "propagate-shardings"));
  EXPECT_TRUE(power_->isUserSharded());
  EXPECT_EQ(stateOf(power_), "R S1(x)");
  EXPECT_EQ(stateOf(sum_), "S0(y) S1(x)");
  EXPECT_FALSE(runPass(fusion_, "propagate-shardings"));
}

TEST_F(SelectivePropagation, RefusesTensorsAxesAndPassesThatAreNotThere) {
  TensorView* unused = neg(sum_);
  expectUserError([&] { propagateShardings(fusion_, {.tensors = {unused}}); }, "reaches no output");
  expectUserError([&] { propagateShardings(fusion_, {.axes = {ParallelType::Stream}}); }, "got Stream");
  expectUserError([&] { runPass(fusion_, "propagate"); },
                  "there is no pass \"propagate\"; there are: check-annotations");
}

TEST_F(SelectivePropagation, RefusesAPassThatNeedsEarlierOnes) {
  const std::unique_ptr<Fusion> fusion = parseFusion(R"(fusion {
  mesh M0 {x: 2} [0, 1]
  T0 = input() : Float[8, 16] contiguity[t, t] mesh M0
  T1 = reduce(T0, op=sum) : Float[p{2}, r{4}, 16] root[r{8}, 16; outer_split(0, 2)] mesh M0 parallelize(0, DIDx)
  T2 = reduce(T1, op=sum) : Float[r{2}, 16] mesh M0
  output T2
})");
  const std::string before = fusion->toString();
  expectUserError(
      [&] { runPass(*fusion, "decompose-reshardings"); },
      "decompose-reshardings failed on a program to which not all earlier passes were applied; apply first, in "
      "this order: check-annotations, fold-windows, ");
  EXPECT_EQ(fusion->toString(), before);
}

}  // namespace
}  // namespace meshfuse
