#include "ir/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "base/error.h"
#include "ir/fusion_cloner.h"
#include "ir/text.h"
#include "ops/shape_ops.h"
#include "programs/random_fusion.h"

namespace meshfuse {
namespace {

TensorView* input(Fusion& f, const std::vector<Dim>& dims) {
  TensorView* t = f.tensor(DataType::Float, dims);
  f.addInput(t);
  return t;
}

TensorView* unary(Fusion& f, PointOp op, TensorView* x) {
  std::vector<Dim> dims;
  for (IterDomain* id : x->noReductions()) {
    dims.push_back({id->extent(), id->iterType()});
  }
  return f.addOp(ExprKind::Point, {x}, x->dtype(), dims, {.point = op});
}

TEST(Fusion, AddOpMakesAnExprAndItsResult) {
  Fusion f;
  TensorView* x = input(f, {{4}, {2}});
  TensorView* sum =
      f.addOp(ExprKind::Reduce, {x}, DataType::Double, {{4, IterType::Reduction}, {2}}, {.reduce = ReduceOp::Max});
  ASSERT_NE(sum->definition(), nullptr);
  EXPECT_EQ(sum->definition()->kind(), ExprKind::Reduce);
  EXPECT_EQ(sum->definition()->input(0), x);
  EXPECT_EQ(sum->definition()->attributes().reduce, ReduceOp::Max);
  EXPECT_EQ(sum->dtype(), DataType::Double);
  EXPECT_EQ(sum->constantShape(), (std::vector<int64_t>{2}));
  EXPECT_TRUE(sum->hasReduction());
}

TEST(Fusion, OrderIsTopologicalWithTiesById) {
  for (uint64_t seed = 0; seed < 50; seed++) {
    std::unique_ptr<Fusion> f = randomFusion(seed, {.numExprs = 40});
    // In half of the programs, ops read results of an op with a larger id.
    if (seed % 2 == 1) {
      for (Expr* e : f->exprs()) {
        if (e->output()->isTensor() && !f->uses(e->output()).empty()) {
          FusionGuard guard(f.get());
          f->replaceUses(e->output(), set(e->output()->asTensor()));
        }
      }
    }
    std::set<const Val*> done;
    std::vector<Expr*> order = f->exprs();
    const bool readsEarlier = std::ranges::all_of(order, [](const Expr* e) {
      return std::ranges::all_of(
          e->inputs(), [&](const Val* in) { return in->definition() == nullptr || in->definition()->id() < e->id(); });
    });
    ASSERT_EQ(readsEarlier, seed % 2 == 0);
    std::set<int> open;
    for (const Expr* e : order) {
      open.insert(e->id());
    }
    for (const Expr* e : order) {
      for (const Val* in : e->inputs()) {
        ASSERT_TRUE(in->definition() == nullptr || done.count(in) == 1);
      }
      // no expr of a smaller id was ready
      for (int id : open) {
        if (id >= e->id()) {
          break;
        }
        const Expr* other = f->expr(id);
        bool ready = std::all_of(other->inputs().begin(), other->inputs().end(),
                                 [&](const Val* v) { return v->definition() == nullptr || done.count(v) == 1; });
        ASSERT_FALSE(ready);
      }
      open.erase(e->id());
      done.insert(e->outputs().begin(), e->outputs().end());
    }
  }
}

TEST(Fusion, LongProgramsAreCheap) {
  Fusion f;
  constexpr int kOps = 100000;
  TensorView* x = input(f, {{8}});
  TensorView* t = x;
  for (int k = 0; k < kOps; k++) {
    t = unary(f, PointOp::Neg, t);
  }
  f.addOutput(t);
  const std::clock_t start = std::clock();  // time of this process: others may keep the machine busy
  EXPECT_EQ(f.exprs().size(), kOps);
  std::string text = f.toString();
  std::unique_ptr<Fusion> parsed = parseFusion(text);
  EXPECT_EQ(parsed->exprs().size(), kOps);
  EXPECT_TRUE(verify(f).empty());
  EXPECT_EQ(f.clone()->hash(), f.hash());
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 20);  // a quadratic step takes minutes
}

TEST(Fusion, RewritingKeepsUses) {
  Fusion f;
  TensorView* x = input(f, {{4}});
  TensorView* a = unary(f, PointOp::Neg, x);
  TensorView* b = unary(f, PointOp::Exp, a);
  TensorView* c = unary(f, PointOp::Sin, a);
  f.addOutput(b);
  f.addOutput(c);
  f.addOutput(a);
  // insert between a and all that reads it
  TensorView* copy = unary(f, PointOp::Abs, a);
  f.replaceUses(a, copy);
  EXPECT_EQ(f.uses(a), std::vector<Expr*>{copy->definition()});
  EXPECT_EQ(f.uses(copy), (std::vector<Expr*>{b->definition(), c->definition()}));
  EXPECT_EQ(f.outputs()[2], copy);
  EXPECT_FALSE(a->isFusionOutput());
  EXPECT_TRUE(copy->isFusionOutput());
  EXPECT_TRUE(verify(f).empty());
  f.replaceInput(c->definition(), 0, x);
  EXPECT_EQ(f.uses(x), (std::vector<Expr*>{a->definition(), c->definition()}));
  EXPECT_EQ(f.uses(copy), std::vector<Expr*>{b->definition()});
  Expr* gone = c->definition();
  int id = gone->id();
  f.removeOutput(c);
  f.removeExpr(gone);
  EXPECT_EQ(f.expr(id), nullptr);
  EXPECT_EQ(c->definition(), nullptr);
  EXPECT_EQ(f.uses(x), std::vector<Expr*>{a->definition()});
  EXPECT_EQ(f.exprs(ExprSet::All).size(), 3u);
  EXPECT_EQ(f.clone()->toString(), f.toString());
  // x + x is one use
  TensorView* sum = f.tensor(DataType::Float, {{4}});
  f.addExpr(ExprKind::Point, {x, x}, {sum}, {.point = PointOp::Add});
  EXPECT_EQ(f.uses(x).size(), 2u);
  f.replaceInput(sum->definition(), 0, a);
  EXPECT_EQ(f.uses(x).size(), 2u);
  f.replaceInput(sum->definition(), 1, a);
  EXPECT_EQ(f.uses(x).size(), 1u);
}

TEST(Fusion, ScalarsAreInterned) {
  Fusion f;
  EXPECT_EQ(f.scalar(1.0), f.scalar(1.0));
  EXPECT_NE(f.scalar(0.0), f.scalar(-0.0));
  EXPECT_NE(f.scalar(1.0), f.scalar(int64_t{1}));
  EXPECT_EQ(f.scalar(int64_t{3}), f.intScalar(3));
  Val* n = f.inputScalar(DataType::Int);
  EXPECT_EQ(f.intScalar(n->intExpr()), n);
  EXPECT_NE(f.intScalar(n->intExpr() + 1), n);
  EXPECT_EQ(f.scalar(true)->toString(), "true");
  EXPECT_EQ(f.scalar(1.0)->toString(), "1.0");
}

TEST(Fusion, HashIsOfTheProgramNotOfItsIds) {
  auto build = [](int unused) {
    auto f = std::make_unique<Fusion>();
    for (int k = 0; k < unused; k++) {
      (void)f->tensor(DataType::Float, {{3}});
    }
    TensorView* x = input(*f, {{4}});
    f->addOutput(unary(*f, PointOp::Exp, x));
    return f;
  };
  EXPECT_EQ(build(0)->hash(), build(5)->hash());
  EXPECT_TRUE(build(0)->sameDefinition(*build(5)));
  auto other = build(0);
  other->outputs()[0]->asTensor()->inner_split(0, 2);
  EXPECT_NE(other->hash(), build(0)->hash());
  EXPECT_FALSE(other->sameDefinition(*build(0)));
}

TEST(Fusion, PartsAreCloned) {
  std::unique_ptr<Fusion> from = parseFusion(R"(fusion {
    mesh M0 {x: 2} [0, 1]
    T0 = input() : Float[i0, 8] contiguity[t, t]
    T1 = exp(T0) : Float[i0, 8] mesh M0 outer_split(1, 2) parallelize(1, DIDx) loop[i0, DIDx{2}, 4]
    T2 = reshape(T1) : Float[i0*8]
    T3 = add(T2, 2.5) : Float[i0*8]
    output T3
  })");
  Fusion to;
  FusionCloner cloner(*from, to, [](const IntExpr& e) {
    return e.substitute([](std::string_view s) { return s == "i0" ? std::optional<IntExpr>(3) : std::nullopt; });
  });
  std::vector<Expr*> exprs = from->exprs();
  to.addInput(cloner.clone(exprs[1]->input(0)));
  cloner.clone(exprs[1]);
  cloner.clone(exprs[2]);
  to.addOutput(cloner.find(exprs[2]->output()));
  EXPECT_EQ(to.toString(), R"(fusion {
  mesh M0 {x: 2} [0, 1]
  T0 = input() : Float[3, 8] contiguity[t, t] mesh M0 outer_split(1, 2) parallelize(1, DIDx) loop[3, DIDx{2}, 4]
  T1 = reshape(T0) : Float[24]
  T3 = add(T1, 2.5) : Float[24]
  output T3
}
)");
  EXPECT_TRUE(verify(to).empty());
  EXPECT_EQ(to.freshSymbol().toString(), "i1");
}

TEST(Fusion, Mistakes) {
  Fusion f;
  Fusion g;
  TensorView* x = input(f, {{4}});
  TensorView* y = unary(f, PointOp::Exp, x);
  EXPECT_THROW(f.addInput(x), UserError);
  EXPECT_THROW(f.addInput(y), UserError);
  EXPECT_THROW(g.addInput(x), UserError);
  EXPECT_THROW(g.addOutput(x), UserError);
  EXPECT_THROW(f.addInput(nullptr), UserError);
  EXPECT_THROW(f.addInput(f.scalar(1.0)), UserError);
  EXPECT_THROW(f.addOutput(f.scalar(1.0)), UserError);
  EXPECT_THROW(f.removeOutput(y), UserError);
  EXPECT_THROW(f.aliasOutputToInput(y, y), UserError);
  TensorView* wide = input(f, {{5}});
  EXPECT_THROW(f.aliasOutputToInput(y, wide), UserError);
  f.aliasOutputToInput(y, x);
  EXPECT_THROW(f.aliasOutputToInput(y, x), UserError);
  EXPECT_EQ(f.outputs().size(), 1u);
  EXPECT_EQ(f.aliasOf(0), 0);
  EXPECT_THROW((void)g.addExpr(ExprKind::Set, {x}, {g.tensor(DataType::Float, {{4}})}), UserError);
  EXPECT_THROW((void)FusionGuard::current(), UserError);
  FusionGuard guard(&f);
  EXPECT_EQ(FusionGuard::current(), &f);
  {
    FusionGuard inner(&g);
    EXPECT_EQ(FusionGuard::current(), &g);
  }
  EXPECT_EQ(FusionGuard::current(), &f);
}

}  // namespace
}  // namespace meshfuse
