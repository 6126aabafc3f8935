#include "ops/tensors.h"

#include "ops/built.h"

namespace meshfuse {
namespace {

TEST(Tensors, SymbolicAndConcrete) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* a = makeSymbolicTensor(2, DataType::Half);
  EXPECT_EQ(a->shape().size(), 2);
  EXPECT_TRUE(a->shape()[0].isSymbol());
  EXPECT_FALSE(a->shape()[0] == a->shape()[1]);
  EXPECT_EQ(a->contiguity(), (std::vector<bool>{false, false}));
  EXPECT_EQ(makeContigTensor(2)->contiguity(), (std::vector<bool>{true, true}));
  TensorView* c = makeContigConcreteTensor({4, 1, -1}, DataType::Int);
  EXPECT_EQ(c->dtype(), DataType::Int);
  EXPECT_TRUE(c->getLogicalDomain()[1]->isBroadcast());
  EXPECT_TRUE(c->shape()[0].isConst(4));
  EXPECT_TRUE(c->shape()[2].isSymbol());
  EXPECT_EQ(makeSymbolicTensor(0)->shape().size(), 0);
}

TEST(Tensors, FactoriesTakeAFusion) {
  Fusion fusion;
  EXPECT_EQ(&makeSymbolicTensor(fusion, 1)->fusion(), &fusion);
  EXPECT_EQ(&makeContigConcreteTensor(fusion, {2})->fusion(), &fusion);
  EXPECT_EQ(&full(fusion, {2}, 1.0, DataType::Float)->fusion(), &fusion);
  EXPECT_EQ(&IrBuilder::create<Val>(fusion, 2.0)->fusion(), &fusion);
}

TEST(Tensors, Builder) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* a =
      TensorViewBuilder().shape(std::vector<int64_t>{2, 3, -1}).dtype(DataType::Double).strideOrder({0, 2, 1}).build();
  std::vector<IterDomain*> logical = a->getLogicalDomain();
  EXPECT_EQ(a->getAllocationDomain(), (std::vector<IterDomain*>{logical[1], logical[2], logical[0]}));
  TensorView* b = TensorViewBuilder().ndims(2).contiguity(true).expanded({true, false}).build();
  EXPECT_EQ(b->contiguity(), (std::vector<bool>{false, true}));
}

TEST(Tensors, Scalars) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  EXPECT_EQ(IrBuilder::create<Val>(3)->intExpr().constValue(), 3);
  EXPECT_EQ(std::get<double>(IrBuilder::create<Val>(0.5)->constant()), 0.5);
  EXPECT_EQ(IrBuilder::create<Val>(true)->dtype(), DataType::Bool);
  EXPECT_FALSE(IrBuilder::create<Val>(DataType::Float)->isConst());
}

}  // namespace
}  // namespace meshfuse
