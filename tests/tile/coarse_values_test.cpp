#include "tile/coarse_values.h"

#include <gtest/gtest.h>

#include <vector>

#include "tile/builder.h"

namespace meshfuse::tile {

namespace {

TensorParam vectorOf(DataType dtype, Memory memory) {
  TensorParam t;
  t.name = memory == Memory::Input ? "x" : memory == Memory::Scratch ? "e" : "y";
  t.dtype = dtype;
  t.memory = memory;
  t.extents = {IntExpr(64)};
  t.strides = {IntExpr(1)};
  return t;
}

// Of x, and of a function of it that `use` reads: which is coarse.
template <class Use>
bool isCoarse(const Use& use) {
  Builder b("coarse", Target::Cpu);
  const int64_t x = b.tensor(vectorOf(DataType::Float, Memory::Input));
  const int64_t s = b.space("s", {{"n", IntExpr(64), {{Level::Serial, 0}, {Level::Vector, 16}}}});
  ValueId result = kNone;
  b.loop(s, 0, 0, {}, [&](std::span<const ValueId>) {
    result = b.point(PointOp::Sigmoid, {b.load(x, {{b.coord(s, 0)}}, s)});
    use(b, s, result);
    return std::vector<ValueId>{};
  });
  return coarseValues(b.program())[result];
}

TEST(CoarseValues, AreRoundedByAllThatReadsThem) {
  EXPECT_TRUE(isCoarse([](Builder& b, int64_t s, ValueId v) {
    const int64_t y = b.tensor(vectorOf(DataType::BFloat16, Memory::Output));
    b.store(y, {{b.coord(s, 0)}}, b.cast(b.point(PointOp::Mul, {v, v}), DataType::BFloat16));
  }));
}

TEST(CoarseValues, AreNotStoredAsFloat) {
  EXPECT_FALSE(isCoarse([](Builder& b, int64_t s, ValueId v) {
    const int64_t y = b.tensor(vectorOf(DataType::BFloat16, Memory::Output));
    const int64_t e = b.tensor(vectorOf(DataType::Float, Memory::Scratch));
    b.store(e, {{b.coord(s, 0)}}, v);
    b.store(y, {{b.coord(s, 0)}}, b.cast(v, DataType::BFloat16));
  }));
}

TEST(CoarseValues, DoNotSelect) {
  EXPECT_FALSE(isCoarse([](Builder& b, int64_t s, ValueId v) {
    const int64_t y = b.tensor(vectorOf(DataType::BFloat16, Memory::Output));
    const ValueId isSmall = b.point(PointOp::Lt, {v, b.constant(DataType::Float, 0.25, s)});
    const ValueId chosen = b.point(PointOp::Where, {isSmall, v, b.constant(DataType::Float, 1, s)});
    b.store(y, {{b.coord(s, 0)}}, b.cast(chosen, DataType::BFloat16));
  }));
}

TEST(CoarseValues, AreNotMadeWhole) {
  EXPECT_FALSE(isCoarse([](Builder& b, int64_t s, ValueId v) {
    const int64_t y = b.tensor(vectorOf(DataType::Int32, Memory::Output));
    b.store(y, {{b.coord(s, 0)}}, b.cast(v, DataType::Int32));
  }));
}

}  // namespace

}  // namespace meshfuse::tile
