#include "analysis/id_graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "analysis/transform_replay.h"
#include "base/error.h"
#include "ir/fusion.h"
#include "ir/text.h"

namespace meshfuse {
namespace {

constexpr int64_t kA = 12;
constexpr int64_t kB = 8;
constexpr int64_t kC = 5;

// What a dim counts, as its value at each element of [kA, kB, kC].
std::vector<int64_t> valuesOf(const IterDomain* id, const std::vector<IterDomain*>& logical) {
  std::function<int64_t(const IterDomain*, const std::array<int64_t, 3>&)> value =
      [&](const IterDomain* d, const std::array<int64_t, 3>& at) {
        for (size_t k = 0; k < 3; k++) {
          if (d == logical[k]) {
            return at[k];
          }
        }
        const IdExpr* e = d->definition();
        int64_t in = value(e->in[0], at);
        if (e->kind == IdExprKind::Split) {
          int64_t inner = e->out[1]->extent().constValue();
          return d == e->out[0] ? in / inner : in % inner;
        }
        return in * e->in[1]->extent().constValue() + value(e->in[1], at);
      };
  std::vector<int64_t> values;
  for (int64_t a = 0; a < kA; a++) {
    for (int64_t b = 0; b < kB; b++) {
      for (int64_t c = 0; c < kC; c++) {
        values.push_back(value(id, {a, b, c}));
      }
    }
  }
  return values;
}

class Pair {
 public:
  Pair() {
    x = f.tensor(DataType::Float, {{kA}, {kB}, {kC}});
    f.addInput(x);
    y = f.tensor(DataType::Float, {{kA}, {kB}, {kC}});
    f.addExpr(ExprKind::Set, {x}, {y});
    f.addOutput(y);
  }
  Fusion f;
  TensorView* x;
  TensorView* y;
};

void transformAtRandom(TensorView* t, std::mt19937_64& random, int count) {
  for (int k = 0; k < count; k++) {
    int n = t->nDims();
    int i = static_cast<int>(random() % static_cast<uint64_t>(n));
    if (random() % 3 != 0) {
      t->split(i, std::array<int64_t, 4>{2, 3, 4, 5}[random() % 4], random() % 2 == 0);
    } else if (n > 1) {
      t->merge(std::min(i, n - 2));
    }
  }
}

TEST(IdGraph, GroupsAreSoundAndMostlyComplete) {
  std::mt19937_64 random(5);
  int equal = 0;
  int found = 0;
  for (int round = 0; round < 300; round++) {
    Pair p;
    transformAtRandom(p.x, random, 3);
    transformAtRandom(p.y, random, 3);
    ExactIds ids(p.f);
    std::map<const IterDomain*, std::vector<int64_t>> ofY;
    for (const IterDomain* b : allIds(*p.y)) {
      ofY[b] = valuesOf(b, p.y->getLogicalDomain());
    }
    for (const IterDomain* a : allIds(*p.x)) {
      std::vector<int64_t> values = valuesOf(a, p.x->getLogicalDomain());
      for (const auto& [b, other] : ofY) {
        bool same = ids.same(a, b);
        ASSERT_TRUE(!same || values == other) << p.f.toString();
        if (values == other && a->extent() == b->extent() && !a->extent().isConst(1)) {
          equal++;
          found += same ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(found, equal * 3 / 4) << found << " of "
                                  << equal;  // what splits and merges that cut differently share is the digits' matter
}

TEST(IdGraph, ModesDifferInBroadcasts) {
  std::unique_ptr<Fusion> f = parseFusion(R"(fusion {
    T0 = input() : Float[b{1}, 8]
    T1 = input() : Float[4, 8]
    T2 = add(T0, T1) : Float[4, 8] inner_split(1, 2)
    T3 = reduce(T2, op=sum) : Float[4, r{8}] inner_split(1, 2)
    T4 = reshape(T1) : Float[32] outer_split(0, 4)
    output T3
    output T4
  })");
  auto dim = [&](int t, int k) { return f->val(t)->asTensor()->getLogicalDomain()[static_cast<size_t>(k)]; };
  ExactIds exact(*f);
  BroadcastIds broadcast(*f);
  EXPECT_FALSE(exact.same(dim(0, 0), dim(1, 0)));
  EXPECT_TRUE(broadcast.same(dim(0, 0), dim(1, 0)));
  EXPECT_TRUE(exact.same(dim(0, 1), dim(3, 1)));
  EXPECT_TRUE(exact.same(f->val(2)->asTensor()->axis(2), f->val(3)->asTensor()->axis(2)));
  EXPECT_EQ(exact.members(exact.group(dim(1, 0))).front(), dim(1, 0));
  IterDomain* later = f->idNew(8, IterType::Iteration);
  EXPECT_TRUE(exact.same(later, later));
  EXPECT_FALSE(exact.same(later, dim(1, 1)));
}

TEST(Replay, GivesTheSameLoops) {
  std::mt19937_64 random(8);
  for (int round = 0; round < 200; round++) {
    Pair p;
    transformAtRandom(p.x, random, 4);
    p.x->axis(0)->parallelize(ParallelType::DIDx);
    bool up = round % 2 == 0;
    TensorView* from = p.x;
    TensorView* to = p.y;
    if (up) {
      p.y->applyLoopTransforms(p.x->loopTransforms());
      p.x->resetLoop();
      std::swap(from, to);
    }
    ReplayResult r = replayLoop(*from, *to);
    ASSERT_TRUE(r.complete);
    ASSERT_EQ(r.loop.size(), from->getLoopDomain().size());
    for (int k = 0; k < from->nDims(); k++) {
      ASSERT_EQ(valuesOf(from->axis(k), from->getLogicalDomain()), valuesOf(to->axis(k), to->getLogicalDomain()));
      ASSERT_EQ(from->axis(k)->parallelType(), to->axis(k)->parallelType());
    }
  }
}

TensorView* tensorOf(Fusion& f, int id) { return f.val(id)->asTensor(); }

TEST(Replay, ThroughReductionsReshapesAndBroadcasts) {
  std::unique_ptr<Fusion> f = parseFusion(R"(fusion {
    mesh M0 {x: 2} [0, 1]
    T0 = input() : Float[4, 6] mesh M0 outer_split(1, 2) parallelize(1, DIDx)
    T1 = reduce(T0, op=sum) : Float[4, r{6}]
    T2 = reshape(T0) : Float[4, 2, 3]
    T3 = reshape(T0) : Float[24]
    T4 = slice(T0, starts=[0, 0], stops=[4, 5], steps=[1, 1]) : Float[4, 5]
    T5 = input() : Float[b{1}, 6]
    T6 = add(T0, T5) : Float[4, 6] mesh M0 outer_split(0, 2) parallelize(0, DIDx)
    T7 = neg(T0) : Float[4, 6] outer_split(1, 2)
    output T1
    output T2
    output T3
    output T4
    output T6
    output T7
  })");
  TensorView* x = tensorOf(*f, 0);
  EXPECT_TRUE(replayLoop(*x, *tensorOf(*f, 1)).complete);
  EXPECT_EQ(tensorOf(*f, 1)->toString(), "T1[4, rDIDx{2}, r{3}]");
  // the reshape's own split is the one asked for
  EXPECT_TRUE(replayLoop(*x, *tensorOf(*f, 2)).complete);
  EXPECT_EQ(tensorOf(*f, 2)->toString(), "T2[4, DIDx{2}, 3]");
  EXPECT_FALSE(replayLoop(*x, *tensorOf(*f, 3)).complete);
  EXPECT_EQ(tensorOf(*f, 3)->toString(), "T3[24]");
  EXPECT_FALSE(replayLoop(*x, *tensorOf(*f, 4)).complete);
  // nothing is bound on a broadcast dim
  EXPECT_FALSE(replayLoop(*tensorOf(*f, 6), *tensorOf(*f, 5)).complete);
  EXPECT_EQ(tensorOf(*f, 5)->toString(), "T5[b{1}, 6]");
  // transforms that are there count
  EXPECT_TRUE(replayLoop(*x, *tensorOf(*f, 7)).complete);
  EXPECT_EQ(tensorOf(*f, 7)->toString(), "T7[4, DIDx{2}, 3]");
  EXPECT_THROW((void)replayLoop(*tensorOf(*f, 1), *tensorOf(*f, 2)), UserError);
  // backwards through a reshape: its merge and the split come along
  TensorView* flat = tensorOf(*f, 3);
  flat->outer_split(0, 2)->parallelize(0, ParallelType::DIDx);
  x->resetLoop();
  EXPECT_TRUE(replayLoop(*flat, *x).complete);
  EXPECT_EQ(x->toString(), "T0[DIDx{2}, 12]");
  // an axis is bound once
  EXPECT_FALSE(replayLoop(*x, *tensorOf(*f, 7)).complete);
}

TEST(Replay, BetweenAnyTwoThroughTheGraph) {
  std::unique_ptr<Fusion> f = parseFusion(R"(fusion {
    T0 = input() : Float[4, 6]
    T1 = exp(T0) : Float[4, 6]
    T2 = reduce(T1, op=sum) : Float[r{4}, 6]
    T3 = neg(T2) : Float[6] inner_split(0, 3) parallelize(0, Stream)
    output T3
  })");
  TensorView* from = tensorOf(*f, 3);
  TensorView* to = tensorOf(*f, 0);
  ExactIds ids(*f);
  EXPECT_TRUE(replayLoop(*from, *to, ids).complete);
  EXPECT_EQ(to->toString(), "T0[4, Stream{2}, 3]");
  EXPECT_TRUE(verify(*f).empty());
}

}  // namespace
}  // namespace meshfuse
