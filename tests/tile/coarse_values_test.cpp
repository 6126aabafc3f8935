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

// Whether a function of x that `use` reads is coarse. Values of other types than Float never are.
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
  const std::vector<bool> coarse = coarseValues(b.program());
  for (ValueId id = 0; id < std::ssize(coarse); id++) {
    EXPECT_TRUE(!coarse[id] || b.program().values[id].dtype == DataType::Float) << id;
  }
  return coarse[result];
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

// The halves that are read and the Bool that selects; the Float that is selected is coarse.
TEST(CoarseValues, AreOfFloat) {
  EXPECT_TRUE(isCoarse([](Builder& b, int64_t s, ValueId v) {
    const int64_t h = b.tensor({"h", DataType::BFloat16, Memory::Input, {IntExpr(64)}, {IntExpr(1)}, 64});
    const int64_t y = b.tensor(vectorOf(DataType::BFloat16, Memory::Output));
    const ValueId other = b.cast(b.load(h, {{b.coord(s, 0)}}, s), DataType::Float);
    const ValueId isSmall = b.point(PointOp::Lt, {other, b.constant(DataType::Float, 1, s)});
    b.store(y, {{b.coord(s, 0)}}, b.cast(b.point(PointOp::Where, {isSmall, v, other}), DataType::BFloat16));
  }));
}

// A running sum and the total that a loop carries to the next tile, but no element that is added.
TEST(CoarseValues, AreScannedBeforeRounding) {
  for (const DataType type : {DataType::Float, DataType::BFloat16}) {
    Builder b("scan", Target::Gpu);
    const int64_t x = b.tensor(vectorOf(DataType::Float, Memory::Input));
    const int64_t y = b.tensor(vectorOf(type, Memory::Output));
    const int64_t s = b.space("s", {{"n", IntExpr(64), {{Level::Serial, 0}, {Level::Repeat, 16}}}});
    ValueId element = kNone;
    ValueId scan = kNone;
    b.loop(s, 0, 0, {identity(b, ReduceOp::Sum, DataType::Double, s)}, [&](std::span<const ValueId> before) {
      element = b.point(PointOp::Sigmoid, {b.load(x, {{b.coord(s, 0)}}, s)});
      scan = b.scan(element, before[0], 0, ReduceOp::Sum);
      const ValueId total = b.scanTotal(scan);
      b.store(y, {{b.coord(s, 0)}}, type == DataType::Float ? scan : b.cast(scan, type));
      return std::vector<ValueId>{total};
    });
    const std::vector<bool> coarse = coarseValues(b.program());
    EXPECT_EQ(coarse[scan], type == DataType::BFloat16);
    EXPECT_FALSE(coarse[element]);
  }
}

TEST(CoarseValues, AreNotMadeWhole) {
  EXPECT_FALSE(isCoarse([](Builder& b, int64_t s, ValueId v) {
    const int64_t y = b.tensor(vectorOf(DataType::Int32, Memory::Output));
    b.store(y, {{b.coord(s, 0)}}, b.cast(v, DataType::Int32));
  }));
}

}  // namespace

}  // namespace meshfuse::tile
