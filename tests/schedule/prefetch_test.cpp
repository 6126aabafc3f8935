// The last sweeps over a row bring in the next one: each of them a part, together all of it.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/statistics.h"
#include "ops/tensors.h"
#include "schedule/kernel_check.h"
#include "schedule/rows.h"
#include "tile/tile.h"

namespace meshfuse {

namespace {

constexpr int64_t kColumns = 5000;
constexpr int64_t kRows = 12;
const DeviceInfo kSmallCache{.l2Bytes = 10 * kColumns * 4};  // holds several rows, not all

struct Sweep {
  const tile::Stmt* loop;
  const tile::Stmt* prefetch;  // of the first input; may be none
};

// Innermost loops over n, in order.
void sweepsOf(const tile::Program& p, const std::vector<tile::Stmt>& body, std::vector<Sweep>& sweeps) {
  for (const tile::Stmt& s : body) {
    const auto isOverN = [&](const tile::Stmt& of) {
      return of.kind == tile::StmtKind::For && p.spaces[0].axes[of.axis].name == "n";
    };
    if (isOverN(s) && std::ranges::none_of(s.body, isOverN)) {
      sweeps.push_back({&s, nullptr});
      for (const tile::Stmt& inside : s.body) {
        if (inside.kind == tile::StmtKind::Prefetch && inside.param == 0) {
          sweeps.back().prefetch = &inside;
        }
      }
    } else {
      sweepsOf(p, s.body, sweeps);
    }
  }
}

KernelCheck check(const std::function<TensorView*(TensorView*)>& build, DeviceInfo device, int64_t rows = kRows) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor({rows, kColumns});
  fusion.addInput(x);
  fusion.addOutput(build(x));
  KernelCheck c = checkKernel(fusion, device, {randomTensor({rows, kColumns}, DataType::Float, 1, -2, 2)});
  EXPECT_EQ(c.difference, "");
  return c;
}

// How often the elements of row 3 are brought in during the sweeps over row 2; and by how many of the sweeps.
struct Brought {
  std::vector<int> times = std::vector<int>(kColumns, 0);
  int sweeps = 0;
};

Brought broughtDuringRow2(const tile::Program& p) {
  std::vector<Sweep> sweeps;
  sweepsOf(p, p.body, sweeps);
  Brought result;
  int64_t step = kColumns;  // of the innermost loop
  for (const tile::Digit& d : p.spaces[0].axes.back().digits) {
    step = d.level == tile::Level::Serial ? d.stride.constValue() : step;
  }
  for (const Sweep& s : sweeps) {
    if (s.prefetch == nullptr) {
      continue;
    }
    result.sweeps++;
    for (int64_t n = 0; n < kColumns; n += step) {
      auto at = [&](size_t dim) {
        return s.prefetch->index[dim].expr.evaluate([&](std::string_view symbol) { return symbol == "m" ? 2 : n; });
      };
      EXPECT_EQ(at(0), 3);
      for (int64_t e = at(1); e < at(1) + 16 * s.prefetch->lines; e++) {
        if (e < kColumns) {
          result.times[e]++;
        }
      }
    }
  }
  return result;
}

TEST(Prefetch, TheLastTwoSweepsShareTheNextRow) {
  struct Case {
    std::function<TensorView*(TensorView*)> build;
    int sweeps;
  };
  const std::vector<Case> cases = {
      {[](TensorView* x) { return sum(x, {1}); }, 1},
      {[](TensorView* x) { return variance(x, {1}, 1); }, 2},
      {[](TensorView* x) { return rms_norm(x, {kColumns}, nullptr, 1e-5).output; }, 2},
      {[](TensorView* x) { return layer_norm(x, {kColumns}, nullptr, nullptr, 1e-5).output; }, 2},
      {[](TensorView* x) {
         return layer_norm(rms_norm(x, {kColumns}, nullptr, 1e-5).output, {kColumns}, nullptr, nullptr, 1e-5).output;
       },
       2},
  };
  for (const Case& c : cases) {
    Brought b = broughtDuringRow2(check(c.build, kSmallCache).plan.program);
    EXPECT_EQ(b.sweeps, c.sweeps);
    int64_t total = 0;
    for (size_t e = 0; e < b.times.size(); e++) {
      ASSERT_GE(b.times[e], 1) << "element " << e << " of " << c.sweeps << " sweeps";
      total += b.times[e];
    }
    EXPECT_LE(total, kColumns + 16 * c.sweeps * 4) << "lines are brought in again";
  }
}

// Reads and stores of a kernel that waits for memory alternate line by line. Costly ops need more vectors at a time, and so do loops in the
// caches.
TEST(Prefetch, CheapOpsTakeALineAtATime) {
  const auto step = [](TensorView* (*op)(TensorView*), DataType type, const DeviceInfo& device) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor({kRows, kColumns}, type);
    fusion.addInput(x);
    fusion.addOutput(castOp(type, op(x)));
    const KernelCheck c = checkKernel(fusion, device, {randomTensor({kRows, kColumns}, type, 1, -2, 2)});
    EXPECT_EQ(c.difference, "");
    const std::vector<tile::Digit>& digits = c.plan.program.spaces[0].axes.back().digits;
    const auto serial = std::ranges::find(digits, tile::Level::Serial, &tile::Digit::level);
    return serial->stride.constValue();
  };
  EXPECT_EQ(step(abs, DataType::Float, kSmallCache), 16);
  EXPECT_EQ(step(abs, DataType::Double, kSmallCache), 16);
  EXPECT_EQ(step(abs, DataType::BFloat16, kSmallCache), 32);
  EXPECT_EQ(step(tanh, DataType::Float, kSmallCache), 64);
  EXPECT_EQ(step([](TensorView* x) { return dropout(x, 0.5).output; }, DataType::Float, kSmallCache), 64);
  EXPECT_EQ(step(abs, DataType::Float, {.l2Bytes = kRows * kColumns * 4}), 64);
}

TEST(Prefetch, OfLongRowsIfTwoOfThemFitInTheSecondCache) {
  const auto norm = [](TensorView* x) { return rms_norm(x, {kColumns}, nullptr, 1e-5).output; };
  const auto sweeps = [&](int64_t bytes) {
    return broughtDuringRow2(check(norm, {.l2Bytes = bytes}, kFewRows).plan.program).sweeps;
  };
  EXPECT_EQ(sweeps(2 * kColumns * 4), 2);
  EXPECT_EQ(sweeps(2 * kColumns * 4 - 4), 0);
}

TEST(Prefetch, NotOfWhatTheSecondCacheHolds) {
  KernelCheck c = check([](TensorView* x) { return rms_norm(x, {kColumns}, nullptr, 1e-5).output; },
                        {.l2Bytes = kRows * kColumns * 4});
  EXPECT_EQ(broughtDuringRow2(c.plan.program).sweeps, 0);
}

// The row of the table that the next row of a lookup reads; after the last one, row 0.
TEST(Prefetch, OfTheNextRowThatALookupReads) {
  const auto lookup = [](TensorView* index, TensorView* table, bool isEmbedding) {
    return isEmbedding ? embedding_fwd(index, table) : index_select(table, 0, index);
  };
  for (const bool isEmbedding : {false, true}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* index = makeContigConcreteTensor({kRows}, DataType::Int);
    TensorView* table = makeContigConcreteTensor({30, kColumns});
    fusion.addInput(index);
    fusion.addInput(table);
    fusion.addOutput(lookup(index, table, isEmbedding));
    const KernelCheck c = checkKernel(
        fusion, kSmallCache,
        {randomTensor({kRows}, DataType::Int, 1, 0, 29), randomTensor({30, kColumns}, DataType::Float, 2, -2, 2)});
    EXPECT_EQ(c.difference, "");
    const std::string text = tile::toString(c.plan.program);
    EXPECT_NE(text.find("load x0[m + 1] where m + 1 < 12 else 0:i64"), std::string::npos) << text;
    EXPECT_NE(text.find("prefetch x1[%"), std::string::npos) << text;
  }
}

// The number of a row must be the same along the elements of a step.
TEST(Prefetch, OnlyRowsThatAStepReadsAlone) {
  const auto textOf = [](const std::vector<int64_t>& indexShape, const std::vector<int64_t>& tableShape,
                         const std::function<TensorView*(TensorView*, TensorView*)>& lookup) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* index = makeContigConcreteTensor(indexShape, DataType::Int);
    TensorView* table = makeContigConcreteTensor(tableShape);
    fusion.addInput(index);
    fusion.addInput(table);
    fusion.addOutput(lookup(index, table));
    const KernelCheck c =
        checkKernel(fusion, kSmallCache,
                    {randomTensor(indexShape, DataType::Int, 1, 0, 29), randomTensor(tableShape, DataType::Float, 2)});
    EXPECT_EQ(c.difference, "");
    return tile::toString(c.plan.program);
  };
  const auto embedding = [](TensorView* index, TensorView* table) { return embedding_fwd(index, table); };
  const std::string oneNumber = textOf({}, {30, kColumns}, [](TensorView* index, TensorView* table) {
    return add(embedding_fwd(index, table), ones({kRows, kColumns}, DataType::Float));
  });
  EXPECT_EQ(oneNumber.find("prefetch x1[m"), std::string::npos) << oneNumber;
  const std::string twoDims = textOf({3, 4}, {30, kColumns}, embedding);
  EXPECT_NE(twoDims.find("prefetch x1[%"), std::string::npos) << twoDims;
  EXPECT_NE(twoDims.find(", n]"), std::string::npos) << twoDims;
  const std::string alongN = textOf({kColumns}, {kRows, 30, 1},
                                    [](TensorView* index, TensorView* table) { return index_select(table, 1, index); });
  EXPECT_EQ(alongN.find("prefetch x1[m + 1, %"), std::string::npos) << alongN;
}

}  // namespace

}  // namespace meshfuse
