#include "errors/misuse.h"

namespace meshfuse {
namespace {

using Pointwise = Misuse;

TEST_F(Pointwise, ExtentsDiffer) {
  expectUserError([&] { add(x, y); }, {"[add]", "dim 0", "has 2", "has 4", "expected equal extents"});
  expectUserError([&] { where(gt(x, 0), x, makeConcreteTensor({5})); }, {"[where]", "dim 1", "has 3", "has 5"});
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
