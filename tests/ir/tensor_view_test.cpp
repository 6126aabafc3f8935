#include "ir/tensor_view.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "ir/fusion.h"

namespace meshfuse {
namespace {

class Loops : public testing::Test {
 protected:
  TensorView* make(const std::vector<Dim>& dims) { return fusion_.tensor(DataType::Float, dims); }
  std::string loop(TensorView* t) {
    std::string text = t->toString();
    return text.substr(text.find('['));
  }
  Fusion fusion_;
};

TEST_F(Loops, SplitRoundsUp) {
  EXPECT_EQ(loop(make({{10}})->inner_split(0, 4)), "[3, 4]");
  EXPECT_EQ(loop(make({{10}})->outer_split(0, 4)), "[4, 3]");
  EXPECT_EQ(loop(make({{0}})->outer_split(0, 2)), "[2, 0]");
  IntExpr n = fusion_.freshSymbol();
  EXPECT_EQ(loop(make({{n}})->outer_split(0, 4)), "[4, ceilDiv(i0, 4)]");
  EXPECT_EQ(loop(make({{n * 8}})->split(-1, 4)), "[i0*2, 4]");
  EXPECT_EQ(loop(make({{n * 8}})->outer_split(0, n)), "[i0, 8]");
}

TEST_F(Loops, PartialDimIsFoundAndItsPartsAreOrdinary) {
  TensorView* t = make({{4, IterType::Reduction}, {3}, {6, IterType::Partial, ReduceOp::Max}});
  EXPECT_EQ(loop(t), "[r{4}, 3, p{6, max}]");
  EXPECT_EQ(t->partialDomain(), t->getLogicalDomain()[2]);
  EXPECT_EQ(t->partialDim(), 1);
  EXPECT_EQ(make({{4, IterType::Reduction}, {3}})->partialDomain(), nullptr);
  EXPECT_EQ(make({{3}})->partialDim(), -1);
  EXPECT_EQ(dimsOf(t)[1].combine, ReduceOp::Max);
  EXPECT_EQ(loop(t->outer_split(2, 2)), "[r{4}, 3, 2, 3]");
  t->resetLoop();
  t->axis(2)->parallelize(ParallelType::DIDx);
  EXPECT_EQ(loop(t), "[r{4}, 3, pDIDx{6, max}]");
  EXPECT_EQ(loop(fusion_.clone()->val(t->id())->asTensor()), "[r{4}, 3, pDIDx{6, max}]");
  t->resetLoop();
  EXPECT_EQ(loop(t->merge(1)), "[r{4}, 18]");
}

TEST_F(Loops, MergeStandsWhereTheOuterStood) {
  EXPECT_EQ(loop(make({{2}, {3}, {5}})->merge(0)), "[6, 5]");
  EXPECT_EQ(loop(make({{2}, {3}, {5}})->merge(0, 2)), "[10, 3]");
  EXPECT_EQ(loop(make({{2}, {3}, {5}})->merge(2, 0)), "[3, 10]");
  EXPECT_EQ(loop(make({{2}, {3}, {5}, {7}})->merge(1, 3)), "[2, 21, 5]");
  EXPECT_EQ(loop(make({{2}, {3}, {5}})->flatten()), "[30]");
  EXPECT_EQ(loop(make({{2}, {3}, {5}})->flatten(1)), "[2, 15]");
  EXPECT_EQ(loop(make({})->flatten()), "[]");
  EXPECT_EQ(loop(make({{2}, {3}, {5}})->reorder({{0, -1}})), "[3, 5, 2]");
  EXPECT_EQ(loop(make({{2}, {3}, {5}})->reorder({{2, 0}, {0, 1}})), "[5, 2, 3]");
  EXPECT_EQ(loop(make({{2, IterType::Reduction}, {3}})->split(0, 2)), "[r{1}, r{2}, 3]");
}

TEST_F(Loops, TransformsReplayToTheSameLoops) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; round++) {
    std::vector<Dim> dims = {{12}, {5}, {8}, {7}};
    TensorView* a = make(dims);
    for (int k = 0; k < 6; k++) {
      int n = a->nDims();
      int i = static_cast<int>(random() % static_cast<uint64_t>(n));
      int j = static_cast<int>(random() % static_cast<uint64_t>(n));
      switch (random() % 3) {
        case 0:
          a->split(i, static_cast<int64_t>(random() % 4 + 1), random() % 2 == 0);
          break;
        case 1:
          i != j ? a->merge(i, j) : a;
          break;
        default:
          a->reorder({{i, j}});
      }
    }
    a->axis(0)->parallelize(ParallelType::DIDy);
    TensorView* b = make(dims);
    b->applyLoopTransforms(a->loopTransforms());
    ASSERT_EQ(loop(a), loop(b));
    a->resetLoop();
    ASSERT_EQ(loop(a), "[12, 5, 8, 7]");
    a->applyLoopTransforms(b->loopTransforms());
    ASSERT_EQ(loop(a), loop(b));
  }
}

TEST_F(Loops, Mistakes) {
  TensorView* t = make({{4}, {6, IterType::Reduction}});
  EXPECT_THROW(t->split(2, 2), UserError);
  EXPECT_THROW(t->split(-3, 2), UserError);
  EXPECT_THROW(t->split(0, 0), UserError);
  EXPECT_THROW(t->split(0, -2), UserError);
  EXPECT_THROW(t->merge(0, 0), UserError);
  EXPECT_THROW(t->merge(0), UserError);  // a reduction and an iteration dim
  EXPECT_THROW(t->reorder({{0, 1}, {0, 0}}), UserError);
  EXPECT_THROW(t->axis(5), UserError);
  IterDomain* whole = t->axis(0);
  t->outer_split(0, 2)->axis(0)->parallelize(ParallelType::DIDx);
  EXPECT_THROW(whole->parallelize(ParallelType::DIDx), UserError);
  EXPECT_THROW(t->split(0, 2), UserError);
  EXPECT_THROW(t->merge(0, 1), UserError);
  EXPECT_THROW(t->setContiguity({true, true}), UserError);  // one stored dim
  EXPECT_THROW(t->setAllocationDomain({t->axis(0)}, true), UserError);
}

TEST_F(Loops, Allocation) {
  TensorView* t = make({{4}, {6, IterType::Reduction}, {5}});
  std::vector<IterDomain*> stored = t->noReductions();
  EXPECT_EQ(t->getAllocationDomain(), stored);
  EXPECT_FALSE(t->hasAllocation());
  t->setAllocationDomain({stored[1], stored[0]}, {true, false});
  EXPECT_TRUE(t->hasAllocation());
  EXPECT_EQ(t->getAllocationDomain()[0], stored[1]);
  EXPECT_EQ(t->contiguity(), (std::vector<bool>{true, false}));
  EXPECT_EQ(t->shape(), (std::vector<IntExpr>{4, 5}));
}

// A dim that is bound whole to a mesh axis keeps its place among the loops.
TEST(TensorViewTest, ALoopOfAnAxisIsAnAllocation) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* t = makeContigConcreteTensor({5, 2});
  t->setDeviceMesh({0, 1});
  t->axis(1)->parallelize(ParallelType::DIDx);
  t->setAllocationDomain(t->getLoopDomain(), true);
  EXPECT_EQ(t->memoryOrder(), (std::vector<int64_t>{0, 1}));
  t->setAllocationDomain({t->axis(1), t->axis(0)}, {true, true});
  EXPECT_EQ(t->memoryOrder(), (std::vector<int64_t>{1, 0}));
}

// nvFuser's idiom: the loops of a cut tensor are its allocation.
TEST(TensorViewTest, LoopsAreAnAllocation) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* t = makeContigConcreteTensor({2, 12, 5});
  t->setDeviceMesh({0, 1, 2});
  t->outer_split(1, 3)->axis(1)->parallelize(ParallelType::DIDx);
  t->setAllocationDomain(t->getLoopDomain(), true);
  EXPECT_EQ(t->memoryOrder(), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_FALSE(t->hasAllocation());
  t->inner_split(2, 2);  // 2, x{3}, 2, 2, 5
  t->setAllocationDomain({t->axis(1), t->axis(4), t->axis(2), t->axis(3), t->axis(0)}, {true, false, true, true, true});
  EXPECT_EQ(t->memoryOrder(), (std::vector<int64_t>{2, 1, 0}));
  EXPECT_EQ(t->contiguity(), (std::vector<bool>{false, true, true}));
  const auto refused = [&](std::vector<IterDomain*> ids, const std::vector<bool>& flags) {
    EXPECT_THROW(t->setAllocationDomain(std::move(ids), flags), UserError);
  };
  const std::vector<bool> all(5, true);
  refused({t->axis(0), t->axis(1), t->axis(3), t->axis(2), t->axis(4)}, all);  // the inner loop first
  refused({t->axis(2), t->axis(1), t->axis(0), t->axis(3), t->axis(4)}, all);  // apart
  refused({t->axis(0), t->axis(1), t->axis(2), t->axis(3), t->axis(4)}, {true, true, false, true, true});
  refused({t->axis(0), t->axis(1), t->axis(2), t->axis(3)}, {true, true, true, true});
  t->merge(3, 4);
  refused({t->axis(0), t->axis(1), t->axis(2), t->axis(3)}, {true, true, true, true});
}

TEST(Idioms, ScalarsAndTensorsOfTheFusion) {
  Fusion fusion;
  EXPECT_EQ(fusion.zeroVal()->toString(), "0");
  EXPECT_EQ(fusion.oneVal(DataType::Char)->intExpr(), IntExpr(1));
  EXPECT_EQ(std::get<double>(fusion.zeroVal(DataType::Half)->constant()), 0.0);
  EXPECT_EQ(std::get<bool>(fusion.oneVal(DataType::Bool)->constant()), true);
  TensorView* t = makeContigConcreteTensor(fusion, {2});
  fusion.addInput(t);
  EXPECT_EQ(fusion.allTvs(), (std::vector<TensorView*>{t}));
}

}  // namespace
}  // namespace meshfuse
