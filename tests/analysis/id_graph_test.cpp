#include "analysis/id_graph.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

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
  auto dim = [&](int t, int k) { return f->val(t)->asTensor()->getLogicalDomain()[k]; };
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

}  // namespace
}  // namespace meshfuse
