#include "errors/misuse.h"

namespace meshfuse {
namespace {

using Pointwise = Misuse;

TEST_F(Pointwise, ExtentsDiffer) {
  expectUserError([&] { add(x, y); }, {"[add]", "dim 0", "has 2", "has 4", "expected equal extents"});
  expectUserError([&] { where(gt(x, 0), x, makeConcreteTensor({5})); }, {"[where]", "dim 1", "has 3", "has 5"});
}

TEST_F(Pointwise, ComposedOpsNameThemselvesAndTheArgument) {
  TensorView* other = makeConcreteTensor({2, 5});  // x is [2, 3]
  expectUserError([&] { add_alpha(x, other, 2.0); }, {"[add_alpha] b is", "[2, 5], a is", "[2, 3]"});
  expectUserError([&] { sub_alpha(x, x, other); }, {"[sub_alpha] s is", "[2, 5], a is", "[2, 3]"});
  expectUserError([&] { addcmul(x, other, x, 1.0); }, {"[addcmul] b is", "[2, 5], a is"});
  expectUserError([&] { addcmul(1.0, x, other, 1.0); }, {"[addcmul] c is", "[2, 5], b is", "[2, 3]"});
  expectUserError([&] { lerp(x, other, 0.5); }, {"[lerp] end is", "[2, 5], start is", "expected equal extents"});
  expectUserError([&] { lerp(x, x, other); }, {"[lerp] weight is", "[2, 5], start is"});
  expectUserError([&] { lerp(x, none, 0.5); }, {"[lerp] end is null"});
  EXPECT_EQ(addcmul(x, makeConcreteTensor({2, 1}), makeConcreteTensor({3}), 1.0)->shape().size(), 2u);
}

TEST_F(Pointwise, TypesWithoutMeaning) {
  expectUserError([&] { bitwise_and(x, x); }, {"[bitwise_and]", "Float", "expected integers or Bool", "castOp"});
  expectUserError([&] { mod(x, 2); }, {"[mod]", "Float", "expected integers", "fmod"});
  expectUserError([&] { gcd(n, 1.5); }, {"[gcd]", "Float", "expected integers"});
  expectUserError([&] { where(x, x, x); }, {"[where]", "condition is Float", "expected Bool"});
}

TEST_F(Pointwise, NullAndForeignOperands) {
  expectUserError([&] { add(x, none); }, {"[add]", "null", "expected a tensor or a scalar"});
  expectUserError([&] { exp(none); }, {"[exp]", "null"});
  Fusion other;
  TensorView* foreign = makeConcreteTensor(other, {2, 3});
  expectUserError([&] { add(x, foreign); }, {"[add]", "another fusion"});
}

TEST_F(Pointwise, Activations) {
  expectUserError([&] { gelu(none); }, {"[gelu]", "null", "expected a tensor"});
  Val* open = nullptr;
  expectUserError([&] { clamp(x, open, open); }, {"[clamp]", "neither", "give one"});
  expectUserError([&] { tanh_backward(x, y); }, {"[tanh_backward]", "dy is", "expected [4, 3]"});
}

TEST(Guard, FactoriesNeedAFusion) {
  expectUserError([] { makeSymbolicTensor(1); }, {"FusionGuard"});
  expectUserError([] { zeros({2}, DataType::Float); }, {"FusionGuard"});
}

}  // namespace
}  // namespace meshfuse
