// The edge relation where sizes of dims and of axes are symbols: the usual ways to place the tensors of a model.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/fusion.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/relation.h"
#include "multidevice/sharding/size_facts.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

using enum EdgeRelation;

// Axes of constant and of symbolic sizes: the same edges are proved.
class SymbolicRelation : public testing::TestWithParam<bool> {
 protected:
  TensorView* input(int dims) {
    TensorView* tv = makeContigTensor(fusion, dims);
    fusion.addInput(tv);
    return tv;
  }
  // Blocks of a dim, and its places dealt out in turn.
  TensorView* block(TensorView* tv, int dim, const std::string& axis = "tp") { return split(tv, dim, axis, false); }
  TensorView* cyclic(TensorView* tv, int dim, const std::string& axis = "tp") { return split(tv, dim, axis, true); }
  TensorView* whole(TensorView* tv, int dim, const std::string& axis = "tp") {
    tv->setDeviceMesh(mesh);
    return tv->parallelize(dim, mesh.axis(axis));
  }
  TensorView* replicated(TensorView* tv) {
    tv->setDeviceMesh(mesh);
    return tv;
  }
  static EdgeRelation edge(const TensorView* result, int operand = 0) {
    return edgeRelation(result->definition(), operand, result).relation;
  }
  static std::string reason(const TensorView* result, int operand = 0) {
    const Edge e = edgeRelation(result->definition(), operand, result);
    return fmt::format("{}, held {}, needed {}", e.reason, e.held.toString(),
                       e.needed ? e.needed->toString() : "nothing known");
  }

  Fusion fusion;
  DeviceMesh mesh = GetParam() ? DeviceMesh::create({{"dp"}, {"tp"}}) : DeviceMesh::create({{"dp", 2}, {"tp", 4}});

 private:
  TensorView* split(TensorView* tv, int dim, const std::string& axis, bool inner) {
    tv->setDeviceMesh(mesh);
    tv->split(dim, mesh.size(axis), inner);
    return tv->parallelize(inner ? dim + 1 : dim, mesh.axis(axis));
  }
};

INSTANTIATE_TEST_SUITE_P(AxisSizes, SymbolicRelation, testing::Bool(),
                         [](const auto& info) { return info.param ? "Symbols" : "Constants"; });

TEST_P(SymbolicRelation, PointwiseOpsOfEqualBlocks) {
  TensorView* a = block(input(2), 0);
  TensorView* b = block(input(2), 0);
  TensorView* c = block(relu(a), 0);
  TensorView* d = block(mul(c, b), 0);
  TensorView* e = block(add(b, d), 0);  // extents of other names
  for (const TensorView* tv : {c, d, e}) {
    for (int k = 0; k < std::ssize(tv->definition()->tensorInputs()); k++) {
      EXPECT_EQ(edge(tv, k), Aligned) << reason(tv, k);
    }
    EXPECT_FALSE(isResharding(tv->definition()));
  }
  EXPECT_FALSE(haveDifferentShardings(a, c));
  EXPECT_FALSE(haveDifferentShardings(b, d));
  fusion.addOutput(e);
  EXPECT_FALSE(haveDifferentShardings(a, e)) << "no expr between them";
  EXPECT_TRUE(getTvsWithDifferentSharding(a, {b, c, d, e}).empty());
  EXPECT_EQ(shardState(a).dimText(0), "S0(tp)");
}

TEST_P(SymbolicRelation, BlocksAndCyclesDiffer) {
  TensorView* a = block(input(1), 0);
  TensorView* b = cyclic(relu(a), 0);
  TensorView* c = cyclic(neg(b), 0);
  TensorView* d = replicated(relu(c));
  TensorView* e = block(relu(d), 0);
  EXPECT_EQ(edge(b), Comm) << "some sizes make them differ";
  EXPECT_EQ(edge(c), Aligned) << reason(c);
  EXPECT_EQ(edge(d), Comm);
  EXPECT_EQ(edge(e), Local);
  EXPECT_TRUE(isResharding(b->definition()));
  EXPECT_TRUE(haveDifferentShardings(c, d));
}

TEST_P(SymbolicRelation, BlocksOfOtherNumbersDiffer) {
  TensorView* a = block(input(1), 0, "tp");
  TensorView* b = block(relu(a), 0, "dp");
  EXPECT_EQ(edge(b), Comm);
  TensorView* c = replicated(input(1));
  c->inner_split(0, 8)->parallelize(0, mesh.axis("tp"));
  TensorView* d = block(relu(c), 0);
  EXPECT_EQ(edge(d), Comm) << "25 elements on 4 ranks: blocks of 8, and of 7";
}

TEST_P(SymbolicRelation, ColumnAndRowParallel) {
  TensorView* x = replicated(input(2));
  TensorView* w0 = block(input(2), 0);
  TensorView* y = block(linear(x, w0), 1);
  EXPECT_EQ(edge(y, 0), Aligned) << reason(y, 0);
  EXPECT_EQ(edge(y, 1), Aligned) << reason(y, 1);
  TensorView* act = block(relu(y), 1);
  EXPECT_EQ(edge(act), Aligned) << reason(act);
  TensorView* w1 = block(input(2), 1);
  TensorView* z = linear(act, w1);
  block(z, 2);  // the reduced dim: each rank adds up what it has
  EXPECT_EQ(edge(z, 0), Aligned) << reason(z, 0);
  EXPECT_EQ(edge(z, 1), Aligned) << reason(z, 1);
  TensorView* whole = replicated(linear(act, w1));
  EXPECT_EQ(edge(whole, 0), Comm);
  EXPECT_EQ(edge(whole, 1), Comm);
}

TEST_P(SymbolicRelation, MatmulOfRowsAndColumns) {
  TensorView* a = block(input(2), 0, "dp");
  TensorView* b = block(input(2), 1, "tp");
  TensorView* c = block(block(matmul(a, b), 1, "tp"), 0, "dp");
  EXPECT_EQ(edge(c, 0), Aligned) << reason(c, 0);
  EXPECT_EQ(edge(c, 1), Aligned) << reason(c, 1);
  TensorView* k = block(matmul(block(input(2), 1), block(input(2), 0)), 2);
  EXPECT_EQ(edge(k, 0), Aligned) << reason(k, 0);
  EXPECT_EQ(edge(k, 1), Aligned) << reason(k, 1);
}

TEST_P(SymbolicRelation, DimsInAnotherOrder) {
  TensorView* a = block(cyclic(input(3), 2, "dp"), 0);
  TensorView* b = permute(a, {2, 0, 1});
  block(cyclic(b, 0, "dp"), 2);
  EXPECT_EQ(edge(b), Aligned) << reason(b);
  TensorView* c = permute(a, {2, 0, 1});
  block(cyclic(c, 0, "dp"), 3);
  EXPECT_EQ(edge(c), Comm);
}

TEST_P(SymbolicRelation, BroadcastsAndReductionsOfOtherDims) {
  TensorView* a = block(input(3), 1);
  TensorView* s = block(sum(a, {0, 2}), 1);
  EXPECT_EQ(edge(s), Aligned) << reason(s);
  TensorView* b = block(broadcast(s, {true, false, true}), 1);
  EXPECT_EQ(edge(b), Aligned) << reason(b);
  TensorView* c = block(mul(a, b), 1);
  EXPECT_EQ(edge(c, 0), Aligned) << reason(c, 0);
  EXPECT_EQ(edge(c, 1), Aligned) << reason(c, 1);
  TensorView* over = block(sum(a, {1}), 0);
  EXPECT_EQ(edge(over), Comm);
  TensorView* stretched = block(mul(input(3), replicated(broadcast(input(2), {true, false, false}))), 0);
  EXPECT_EQ(edge(stretched, 1), Aligned) << "the one element is read by all: " << reason(stretched, 1);
}

TEST_P(SymbolicRelation, HeadsOfAnAttention) {
  const std::vector<IntExpr> hidden = {
      IntExpr::symbol("h", {.lower = 0, .divisor = 12}), IntExpr::symbol("d", {.lower = 0}) * 12,
      fusion.freshSymbol()};  // the last is a multiple of 12 only because the reshape says so
  for (const IntExpr& h : hidden) {
    TensorView* x = fusion.tensor(DataType::Float, {{fusion.freshSymbol()}, {fusion.freshSymbol()}, {h}});
    fusion.addInput(x);
    const std::vector<IntExpr> shape = x->shape();
    TensorView* heads = reshape(x, {shape[0], shape[1], 12, -1});
    block(x, 1, "tp");
    block(heads, 1, "tp");
    EXPECT_EQ(edge(heads), Aligned) << reason(heads);
    TensorView* back = block(reshape(heads, {shape[0], shape[1], h}), 1, "tp");
    EXPECT_EQ(edge(back), Aligned) << reason(back);

    TensorView* z = replicated(set(x));
    z->outer_split(2, 4)->parallelize(2, ParallelType::Serial);
    if (!mesh.isSymbolic()) {
      TensorView* y = block(set(x), 2);
      TensorView* cut = block(reshape(y, {shape[0], shape[1], 12, -1}), 2);
      EXPECT_EQ(edge(cut), Aligned) << reason(cut);
      ShardState propagated = ShardState::replicated(mesh, cut->shape());
      const Prover facts = factsOfSizes(fusion);
      EXPECT_TRUE(propagateForward(cut->definition(), 0, shardState(y, facts), cut, propagated, facts));
      EXPECT_EQ(propagated.dimText(2), "S2(tp)");
      TensorView* five = replicated(set(x));
      five->outer_split(2, 5);
      EXPECT_EQ(edge(block(reshape(cyclic(set(x), 2), {shape[0], shape[1], 12, -1}), 2)), Comm);
    }
  }
}

TEST_P(SymbolicRelation, HeadsAndTheirSizesAsNumbers) {
  TensorView* x = block(input(3), 2);
  const std::vector<IntExpr> shape = x->shape();
  TensorView* heads = reshape(x, {shape[0], shape[1], 12, 64});
  block(heads, 2);
  EXPECT_EQ(edge(heads), mesh.isSymbolic() ? Comm : Aligned) << reason(heads) << ": some counts do not divide 12";
  TensorView* rows = reshape(block(block(input(3), 0, "dp"), 1, "tp"), {-1, 8});
  EXPECT_EQ(edge(replicated(rows)), Comm);
}

TEST_P(SymbolicRelation, MergedDims) {
  TensorView* x = block(input(3), 0);
  TensorView* rows = flatten(x, 0, 1);
  block(rows, 0);
  EXPECT_EQ(edge(rows), Comm) << "blocks of rows cut batches where these do not divide";
  TensorView* x2 = block(input(3), 2);
  TensorView* rows2 = block(flatten(x2, 0, 1), 1);
  EXPECT_EQ(edge(rows2), Aligned) << reason(rows2);
}

TEST_P(SymbolicRelation, DimsBoundWhole) {
  TensorView* a = whole(input(2), 0);
  TensorView* b = whole(relu(a), 0);
  TensorView* c = whole(add(b, whole(input(2), 0)), 0);
  EXPECT_EQ(edge(b), Aligned) << reason(b);
  EXPECT_EQ(edge(c, 0), Aligned) << reason(c, 0);
  EXPECT_EQ(edge(c, 1), Aligned) << reason(c, 1);
  TensorView* blocks = block(relu(c), 0);
  EXPECT_EQ(edge(blocks), Aligned) << "one element a rank, however it is said: " << reason(blocks);
  TensorView* cycles = cyclic(relu(c), 0);
  EXPECT_EQ(edge(cycles), Aligned) << reason(cycles);
  EXPECT_EQ(edge(replicated(relu(c))), Comm);
  TensorView* s = whole(sum(a, {1}), 0);
  EXPECT_EQ(edge(s), Aligned) << reason(s);
  TensorView* made = whole(relu(replicated(input(2))), 0);
  EXPECT_EQ(edge(made), Local) << reason(made);
}

// Splits of splits, where a part is cut that is itself rounded up: no digits, but the same loops on both sides.
TEST_P(SymbolicRelation, TwoAxesOneAfterTheOther) {
  const auto both = [&](TensorView* tv) {
    block(tv, 0, "dp");
    tv->outer_split(1, mesh.size("tp"));
    return tv->parallelize(1, mesh.axis("tp"));
  };
  TensorView* a = both(input(2));
  TensorView* b = both(relu(a));
  TensorView* c = both(add(input(2), b));
  EXPECT_EQ(edge(b), Aligned) << reason(b);
  EXPECT_EQ(edge(c, 1), Aligned) << reason(c, 1);
  TensorView* coarser = block(relu(a), 0, "dp");
  EXPECT_EQ(edge(coarser), Comm);
  TensorView* finer = both(relu(coarser));
  EXPECT_EQ(edge(finer), Local) << reason(finer);
}

// What awaits its size may be one element that stretches to any number.
TEST_P(SymbolicRelation, DimsThatMayStretchAreNeededWhole) {
  TensorView* x = input(1);
  TensorView* y = expand(x, {fusion.freshSymbol()});
  block(x, 0);
  block(y, 0);
  EXPECT_EQ(edge(y), Comm) << "of one element rank 0 has it, and all need it";
  TensorView* whole = replicated(input(1));
  TensorView* z = block(expand(whole, {fusion.freshSymbol()}), 0);
  EXPECT_EQ(edge(z), Local) << reason(z);
}

// The answers for constant sizes of dims and for symbols are the same.
class TwoMeshes : public testing::TestWithParam<bool> {
 protected:
  TensorView* input() {
    TensorView* tv = GetParam() ? makeContigTensor(fusion, 1) : makeContigConcreteTensor(fusion, {16});
    fusion.addInput(tv);
    return tv;
  }
  // Blocks of dim 0 over axes, the outermost first.
  static TensorView* blocks(TensorView* tv, const DeviceMesh& mesh, const std::vector<std::string>& axes = {}) {
    tv->setDeviceMesh(mesh);
    int64_t count = 1;
    for (const std::string& axis : axes) {
      count *= mesh.size(axis).constValue();
    }
    if (!axes.empty()) {
      tv->outer_split(0, count);
    }
    for (int64_t k = 0; k + 1 < std::ssize(axes); k++) {
      tv->outer_split(k, mesh.size(axes[k]));
    }
    for (int64_t k = 0; k < std::ssize(axes); k++) {
      tv->parallelize(k, mesh.axis(axes[k]));
    }
    return tv;
  }
  static EdgeRelation edge(const TensorView* result) { return edgeRelation(result->definition(), 0, result).relation; }

  Fusion fusion;
  const DeviceMesh x = DeviceMesh::create({{"x", 4}});
  const DeviceMesh ab = DeviceMesh::create({{"a", 2}, {"b", 2}});
};

INSTANTIATE_TEST_SUITE_P(DimSizes, TwoMeshes, testing::Bool(),
                         [](const auto& info) { return info.param ? "Symbols" : "Constants"; });

TEST_P(TwoMeshes, TheSamePartsUnderOtherNames) {
  const DeviceMesh y = DeviceMesh::create({{"y", 4}});
  EXPECT_EQ(edge(blocks(relu(blocks(input(), x, {"x"})), y, {"y"})), Aligned);
  EXPECT_EQ(edge(blocks(relu(blocks(input(), x, {"x"})), ab, {"a", "b"})), Aligned);
  EXPECT_EQ(edge(blocks(relu(blocks(input(), ab, {"a", "b"})), x, {"x"})), Aligned);
  const DeviceMesh transposed = DeviceMesh::create({{"b", 2}, {"a", 2}}, {0, 2, 1, 3});
  EXPECT_EQ(edge(blocks(relu(blocks(input(), ab, {"a"})), transposed, {"a"})), Aligned);
  EXPECT_EQ(edge(blocks(relu(blocks(input(), ab, {"a"})), transposed, {"a", "b"})), GetParam() ? Comm : Local)
      << "of 5 elements a half is 3, and two quarters are 4";
}

TEST_P(TwoMeshes, OtherParts) {
  EXPECT_EQ(edge(blocks(relu(blocks(input(), x, {"x"})), ab, {"b", "a"})), Comm);
  EXPECT_EQ(edge(blocks(relu(blocks(input(), x, {"x"})), ab, {"a"})), Comm) << "a half is more than a quarter";
  EXPECT_EQ(edge(blocks(relu(blocks(input(), x, {"x"})), DeviceMesh::create({{"x", 4}}, {3, 2, 1, 0}), {"x"})), Comm);
}

TEST_P(TwoMeshes, RanksThatHoldTheWholeTensorLackNothing) {
  EXPECT_EQ(edge(blocks(relu(blocks(input(), x)), DeviceMesh::create({{"x", 2}}, {0, 1}), {"x"})), Local);
  EXPECT_EQ(edge(blocks(relu(blocks(input(), x)), DeviceMesh::create({{"x", 4}}, {3, 2, 1, 0}), {"x"})), Local);
  EXPECT_EQ(edge(blocks(relu(blocks(input(), x)), DeviceMesh::create({{"x", 2}}, {0, 1}))), Aligned);
  EXPECT_EQ(edge(blocks(relu(blocks(input(), x)), DeviceMesh::create({{"x", 2}}, {3, 4}))), Comm)
      << "rank 4 holds nothing";
  EXPECT_EQ(edge(blocks(relu(blocks(input(), x)), DeviceMesh::create({{"y"}}))), Comm)
      << "more ranks than 4 may be on y";
}

TEST(FactsOfSizes, AreThoseOfProgramsThatRun) {
  Fusion fusion;
  TensorView* a = makeContigTensor(fusion, 2);
  TensorView* b = makeContigTensor(fusion, 2);
  fusion.addInput(a);
  fusion.addInput(b);
  TensorView* c = add(a, b);
  EXPECT_EQ(factsOfSizes(fusion).canonical(b->shape()[0]), b->shape()[0]) << "nothing needs the sum";
  const Prover ofSum = factsOfSizes(*c->definition());
  EXPECT_EQ(ofSum.canonical(b->shape()[0]), ofSum.canonical(a->shape()[0]));
  fusion.addOutput(c);
  const Prover facts = factsOfSizes(fusion);
  EXPECT_EQ(facts.canonical(b->shape()[0]), facts.canonical(a->shape()[0]));
  EXPECT_NE(facts.canonical(a->shape()[1]), facts.canonical(a->shape()[0]));
  a->setDeviceMesh(DeviceMesh::createForNumDevices(3));
  a->parallelize(1, ParallelType::DIDx);
  EXPECT_EQ(factsOfSizes(fusion).canonical(b->shape()[1]), IntExpr(3));
  a->setDeviceMesh(DeviceMesh::createForNumDevices(1));
  EXPECT_FALSE(factsOfSizes(fusion).canonical(b->shape()[1]).isConst()) << "one device owns dims of any size";
}

TEST(FactsOfSizes, ThatNoSizesFitAreRefused) {
  Fusion fusion;
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}});
  TensorView* a = makeContigTensor(fusion, 1);
  TensorView* b = makeContigConcreteTensor(fusion, {6});
  fusion.addInput(a);
  fusion.addInput(b);
  TensorView* c = add(a, b);
  fusion.addOutput(c);
  a->setDeviceMesh(mesh);
  c->setDeviceMesh(mesh);
  EXPECT_EQ(factsOfSizes(fusion).canonical(a->shape()[0]), IntExpr(6));
  a->parallelize(0, ParallelType::DIDx);
  const auto expectRefused = [&](const auto& ask) {
    try {
      ask();
      ADD_FAILURE() << fusion.toString();
    } catch (const UserError& e) {
      for (const std::string_view phrase : {"[sizes]", "add", "T0[", "T2[", "2 and 6", "expected equal sizes"}) {
        EXPECT_NE(std::string_view(e.what()).find(phrase), std::string_view::npos) << phrase << " in " << e.what();
      }
    }
  };
  expectRefused([&] { return factsOfSizes(fusion); });
  expectRefused([&] { return factsOfSizes(*c->definition()); });
  expectRefused([&] { return casesOfSizes(*c->definition()); });
  expectRefused([&] { return edgeRelation(c->definition(), 0, c); });
}

// Sizes that only the numbers of elements of reshapes contradict.
TEST(FactsOfSizes, ThatReshapesContradictAreRefused) {
  const auto expectRefused = [](const std::vector<std::vector<int64_t>>& shapes,
                                const std::vector<const char*>& phrases) {
    Fusion fusion;
    TensorView* a = makeContigTensor(fusion, 2);
    TensorView* b = makeContigConcreteTensor(fusion, {3, 4});
    fusion.addInput(a);
    fusion.addInput(b);
    fusion.addOutput(add(a, b));
    for (const std::vector<int64_t>& shape : shapes) {
      fusion.addOutput(reshape(a, shape));
    }
    try {
      (void)factsOfSizes(fusion);
      EXPECT_TRUE(phrases.empty()) << fusion.toString();
    } catch (const UserError& e) {
      EXPECT_FALSE(phrases.empty()) << e.what();
      for (const std::string_view phrase : phrases) {
        EXPECT_NE(std::string_view(e.what()).find(phrase), std::string_view::npos) << phrase << " in " << e.what();
      }
    }
  };
  expectRefused({{12}, {2, 6}}, {});
  expectRefused({{2, 6}, {4, 5}},
                {"[sizes] reshape", "T0[", "12 elements", "T4[", "20 elements", "expected equal numbers"});
}

TEST(FactsOfSizes, ThatTwoReshapesContradictAreRefused) {
  Fusion fusion;
  TensorView* a = makeContigTensor(fusion, 1);
  fusion.addInput(a);
  fusion.addOutput(reshape(a, {12}));
  EXPECT_FALSE(factsOfSizes(fusion).canonical(a->shape()[0]).isConst()) << "checked, not assumed";
  fusion.addOutput(reshape(a, {4, 5}));
  EXPECT_THROW((void)factsOfSizes(fusion), UserError);
}

TEST(FactsOfSizes, ThatDoNotDivideAReshapeAreRefused) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* a = makeContigConcreteTensor({-1, 4});
  fusion.addInput(a);
  fusion.addOutput(reshape(a, {5, 2}));
  EXPECT_THROW((void)factsOfSizes(fusion), UserError);
}

}  // namespace
}  // namespace meshfuse
