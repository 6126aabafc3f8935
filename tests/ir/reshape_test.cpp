#include "ir/reshape.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "ir/window.h"

namespace meshfuse {
namespace {

using Values = std::map<const IterDomain*, int64_t>;

// The value of each dim, from the values of the root dims, by the definition of the transforms.
int64_t valueOf(const IterDomain* id, const Values& root) {
  if (auto it = root.find(id); it != root.end()) {
    return it->second;
  }
  const IdExpr* e = id->definition();
  if (e == nullptr) {
    return 0;  // a new dim of extent 1
  }
  int64_t in = valueOf(e->in[0], root);
  switch (e->kind) {
    case IdExprKind::Split: {
      int64_t inner = e->out[1]->extent().constValue();
      return id == e->out[0] ? in / inner : in % inner;
    }
    case IdExprKind::Merge:
      return in * e->in[1]->extent().constValue() + valueOf(e->in[1], root);
    case IdExprKind::Resize:
      return in + e->left.constValue();
    case IdExprKind::Partition:
      break;
  }
  return -1;
}

std::vector<int64_t> unravel(int64_t index, const std::vector<int64_t>& shape) {
  std::vector<int64_t> position(shape.size());
  for (size_t k = shape.size(); k-- > 0;) {
    position[k] = index % shape[k];
    index /= shape[k];
  }
  return position;
}

// Root and logical positions of one element have the same row-major index.
void expectRowMajor(const std::vector<int64_t>& from, const std::vector<int64_t>& to) {
  Fusion f;
  std::vector<IterDomain*> root;
  int64_t n = 1;
  for (int64_t e : from) {
    root.push_back(f.idNew(e, e == 1 ? IterType::Broadcast : IterType::Iteration));
    n *= e;
  }
  std::vector<IntExpr> extents(to.begin(), to.end());
  std::vector<IntExpr> before(from.begin(), from.end());
  ASSERT_TRUE(canConnectReshape(before, extents));
  std::vector<IterDomain*> logical = connectReshape(f, root, extents);
  ASSERT_EQ(logical.size(), to.size());
  for (int64_t index = 0; index < n; index++) {
    Values values;
    std::vector<int64_t> position = unravel(index, from);
    for (size_t k = 0; k < root.size(); k++) {
      values[root[k]] = position[k];
    }
    int64_t linear = 0;
    for (size_t k = 0; k < to.size(); k++) {
      ASSERT_TRUE(logical[k]->extent().isConst(to[k]));
      linear = linear * to[k] + valueOf(logical[k], values);
    }
    ASSERT_EQ(linear, index);
  }
}

TEST(Reshape, KeepsTheRowMajorOrder) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 500; round++) {
    std::vector<int64_t> factors;
    for (uint64_t k = random() % 5; k > 0; k--) {
      factors.push_back(std::vector<int64_t>{2, 2, 3, 5}[random() % 4]);
    }
    auto grouped = [&] {
      std::vector<int64_t> shape;
      for (size_t k = 0; k < factors.size(); k++) {
        if (!shape.empty() && random() % 2 == 0) {
          shape.back() *= factors[k];
        } else {
          shape.push_back(factors[k]);
        }
        if (random() % 4 == 0) {
          shape.insert(shape.begin() + (random() % (shape.size() + 1)), 1);
        }
      }
      return shape;
    };
    std::vector<int64_t> from = grouped();
    std::shuffle(factors.begin(), factors.end(), random);
    expectRowMajor(from, grouped());
  }
  expectRowMajor({}, {1, 1});
  expectRowMajor({1, 1}, {});
}

std::string shape(const std::vector<IterDomain*>& ids) {
  std::string text;
  for (const IterDomain* id : ids) {
    text += id->toString() + " ";
  }
  return text;
}

TEST(Reshape, GroupsAreMinimal) {
  Fusion f;
  std::vector<IterDomain*> root = {f.idNew(2, IterType::Iteration), f.idNew(3, IterType::Iteration),
                                   f.idNew(4, IterType::Iteration)};
  std::vector<IterDomain*> logical = connectReshape(f, root, std::vector<IntExpr>{6, 4});
  EXPECT_EQ(logical[1], root[2]);
  EXPECT_EQ(logical[0]->definition()->kind, IdExprKind::Merge);
  logical = connectReshape(f, root, std::vector<IntExpr>{2, 1, 3, 2, 2});
  EXPECT_EQ(logical[0], root[0]);
  EXPECT_EQ(shape(logical), "2 b{1} 3 2 2 ");
  EXPECT_EQ(connectReshape(f, root, std::vector<IntExpr>{2, 3, 4}), root);
}

TEST(Reshape, SymbolicExtents) {
  Fusion f;
  IntExpr n = f.freshSymbol();
  IntExpr m = f.freshSymbol();
  auto can = [](std::vector<IntExpr> a, std::vector<IntExpr> b) { return canConnectReshape(a, b); };
  EXPECT_TRUE(can({n, 4}, {n * 4}));
  EXPECT_TRUE(can({n * 4}, {4, n}));
  EXPECT_TRUE(can({4, n}, {n, 4}));
  EXPECT_TRUE(can({n, m, 6}, {n * m * 2, 3}));
  EXPECT_TRUE(can({n * m}, {m, n}));
  EXPECT_FALSE(can({n}, {m}));
  EXPECT_FALSE(can({n, 4}, {n * 2}));
  EXPECT_FALSE(can({n}, {2, ceilDiv(n, 2)}));
  EXPECT_FALSE(can({6}, {4}));
  EXPECT_FALSE(can({}, {2}));
  EXPECT_TRUE(can({0, 4}, {2, 0}));
  std::vector<IterDomain*> root = {f.idNew(n, IterType::Iteration)};
  EXPECT_THROW((void)connectReshape(f, root, std::vector<IntExpr>{m}), UserError);
}

TEST(Window, SliceReadsEveryStep) {
  for (int64_t start = 0; start < 5; start++) {
    for (int64_t stop = start; stop <= 9; stop++) {
      for (int64_t step = 1; step <= 3; step++) {
        Fusion f;
        std::vector<IterDomain*> root = {f.idNew(9, IterType::Iteration)};
        std::vector<IterDomain*> logical =
            connectSlice(f, root, std::vector<IntExpr>{start}, std::vector<IntExpr>{stop}, std::vector<IntExpr>{step});
        int64_t count = (stop - start + step - 1) / step;
        ASSERT_TRUE(logical[0]->extent().isConst(count));
        for (int64_t j = 0; j < count; j++) {
          ASSERT_EQ(valueOf(logical[0], {{root[0], start + j * step}}), j);
        }
      }
    }
  }
}

TEST(Window, PadShifts) {
  Fusion f;
  std::vector<IterDomain*> root = {f.idNew(4, IterType::Iteration), f.idNew(4, IterType::Iteration)};
  std::vector<IterDomain*> logical = connectPad(f, root, std::vector<IntExpr>{2, 0}, std::vector<IntExpr>{-1, 0});
  EXPECT_TRUE(logical[0]->extent().isConst(5));
  EXPECT_EQ(valueOf(logical[0], {{root[0], 1}}), 3);
  EXPECT_EQ(logical[1], root[1]);
}

}  // namespace
}  // namespace meshfuse
