// Wrong arguments to a run: found before anything is computed.
#include "errors/misuse.h"
#include "interpret/interpret.h"

namespace meshfuse {
namespace {

class Arguments : public testing::Test {
 protected:
  void SetUp() override {
    TensorView* x = makeConcreteTensor({2, -1});
    Val* s = IrBuilder::create<Val>(DataType::Double);
    fusion.addInput(x);
    fusion.addInput(s);
    fusion.addOutput(add(x, s));
  }
  Fusion fusion;
  FusionGuard guard{&fusion};
};

TEST_F(Arguments, NumberAndKind) {
  expectUserError([&] { (void)interpret(fusion, {1.0}); }, {"got 1 arguments", "2 inputs"});
  expectUserError(
      [&] {
        (void)interpret(fusion, {1.0, 1.0});
      },
      {"input 0 (T", "got a floating number", "expected a tensor"});
  expectUserError(
      [&] {
        (void)interpret(fusion, {Tensor::zeros({2, 3}, DataType::Float), Tensor::scalar(1)});
      },
      {"input 1 (S", "got a tensor", "Double scalar"});
  expectUserError(
      [&] {
        (void)interpret(fusion, {Tensor::zeros({2, 3}, DataType::Float), true});
      },
      {"input 1", "got a bool"});
  expectUserError([&] { (void)interpret(fusion, {Tensor(), 1.0}); }, {"input 0", "undefined"});
}

TEST_F(Arguments, TypesAndSizes) {
  expectUserError(
      [&] {
        (void)interpret(fusion, {Tensor::zeros({2, 3}, DataType::Double), 1.0});
      },
      {"input 0", "got Double", "expected Float"});
  expectUserError(
      [&] {
        (void)interpret(fusion, {Tensor::zeros({2}, DataType::Float), 1.0});
      },
      {"input 0", "got 1 dims [2]", "expected 2"});
  expectUserError(
      [&] {
        (void)interpret(fusion, {Tensor::zeros({3, 3}, DataType::Float), 1.0});
      },
      {"input 0", "dim 0 has size 3", "expected 2"});
}

TEST(ArgumentSizes, OperandsThatDisagreeOnceSizesAreKnown) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* a = makeSymbolicTensor(1);
  TensorView* b = makeSymbolicTensor(1);
  fusion.addInput(a);
  fusion.addInput(b);
  fusion.addOutput(add(a, b));
  expectUserError(
      [&] {
        (void)interpret(fusion, {Tensor::zeros({3}, DataType::Float), Tensor::zeros({4}, DataType::Float)});
      },
      {"[add]", "dim 0", "has 4"});
  // a dim that happens to be 1 does not stretch
  expectUserError(
      [&] {
        (void)interpret(fusion, {Tensor::zeros({3}, DataType::Float), Tensor::zeros({1}, DataType::Float)});
      },
      {"[add]", "dim 0", "has 1"});
}

TEST(ArgumentSizes, ReshapeAndIndices) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* a = makeSymbolicTensor(1);
  TensorView* i = makeSymbolicTensor(1, DataType::Int);
  fusion.addInput(a);
  fusion.addInput(i);
  fusion.addOutput(reshape(a, {2, -1}));
  fusion.addOutput(index_select(a, 0, i));
  Tensor odd = Tensor::zeros({5}, DataType::Float);
  Tensor even = Tensor::zeros({4}, DataType::Float);
  expectUserError(
      [&] {
        (void)interpret(fusion, {odd, Tensor::zeros({1}, DataType::Int)});
      },
      {"[reshape]", "5 elements", "4"});
  expectUserError(
      [&] {
        (void)interpret(fusion, {even, Tensor::of({4}, {1}, DataType::Int)});
      },
      {"[index_select]", "is 4", "expected 0 to 3"});
  expectUserError(
      [&] {
        (void)interpret(fusion, {even, Tensor::of({-1}, {1}, DataType::Int)});
      },
      {"[index_select]", "is -1"});
}

TEST(ArgumentSizes, ValuesNobodyGives) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  fusion.addOutput(neg(makeConcreteTensor({2})));
  expectUserError([&] { (void)interpret(fusion, {}); }, {"neither computed nor an input", "addInput"});
  fusion.addOutput(full({IrBuilder::create<Val>(DataType::Int)}, 0, DataType::Float));
  fusion.removeOutput(fusion.outputs()[0]);
  expectUserError([&] { (void)interpret(fusion, {}); }, {"depends on", "which occurs in no input"});
}

}  // namespace
}  // namespace meshfuse
