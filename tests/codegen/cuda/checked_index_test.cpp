// Generated kernels that meet an index out of range: they record it, read index 0 in its place, and nothing outside of the table.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "simt/emulator.h"
#include "tile/builder.h"
#include "tile/interpreter.h"
#include "tile/scalar.h"

namespace meshfuse {
namespace {

using namespace tile;
using enum DataType;

constexpr int64_t kRows = 10;

// z[i] = x[checked(index[i] + shift, 10)] of `count` elements, two parts of 128; `hole`: the first four are -1.
Program lookup(DataType type, int64_t count, int64_t shift, bool hole) {
  Builder b("lookup", Target::Gpu);
  b.gridDim("part", 2);
  int s =
      b.space("s", {{"i", count, {{Level::Part, 0, "part"}, {Level::Warp, 1}, {Level::Lane, 32}, {Level::Vector, 4}}}});
  int x = b.tensor({"x", Float, Memory::Input, {kRows}, {1}, 16, false});
  int index = b.tensor({"index", type, Memory::Input, {count}, {1}, 16, false});
  int z = b.tensor({"z", Float, Memory::Output, {count}, {1}, 16, false});
  IntExpr i = b.coord(s, 0);
  std::vector<Pred> where;
  if (hole) {
    where = {{3, i}};
  }
  ValueId given = b.load(index, {{i}}, s, {.where = where});
  ValueId shifted = b.point(PointOp::Add, {given, b.integer(type, shift, s)});
  ValueId checked = b.checkedIndex(shifted, b.integer(type, kRows, s), s, where);
  b.store(z, {{i}}, b.load(x, {{0, b.cast(checked, Int)}}, s, {.where = where, .fill = b.constant(Float, -1, s)}));
  return b.take();
}

struct Buffers {
  std::vector<float> x;
  std::vector<char> index;
  std::vector<float> z;

  Buffers(DataType type, const std::vector<int64_t>& indices)
      : index(indices.size() * static_cast<size_t>(dataTypeSize(type))), z(indices.size(), -7) {
    for (int64_t i = 0; i < kRows; i++) {
      x.push_back(static_cast<float>(100 + i));
    }
    for (size_t i = 0; i < indices.size(); i++) {
      writeElement(index.data() + i * static_cast<size_t>(dataTypeSize(type)), type, integerScalar(indices[i]));
    }
  }
  std::vector<uint64_t> slots() {
    return {reinterpret_cast<uint64_t>(x.data()), reinterpret_cast<uint64_t>(index.data()),
            reinterpret_cast<uint64_t>(z.data())};
  }
};

TEST(CudaCheckedIndex, RecordsTheFirstThatItRefuses) {
  for (DataType type : {Int, Int32}) {
    int64_t most = type == Int ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max();
    for (int64_t bad : {int64_t{-1}, kRows, most, -most - 1}) {
      std::vector<int64_t> indices;
      for (int64_t i = 0; i < 200; i++) {
        indices.push_back(i % kRows);
      }
      indices[133] = bad;
      Buffers m(type, indices);
      simt::Result r = simt::run(simt::Launch{simt::kernelOf(lookup(type, 200, 0, false)), m.slots()});
      EXPECT_EQ(r.faults, std::vector<std::string>{});
      EXPECT_EQ(r.refused.taken, 1U);
      EXPECT_EQ(r.refused.index, bad);
      EXPECT_EQ(r.refused.extent, kRows);
      for (size_t i = 0; i < indices.size(); i++) {
        EXPECT_EQ(m.z[i], m.x[static_cast<size_t>(i == 133 ? 0 : indices[i])]) << i;
      }
    }
  }
}

TEST(CudaCheckedIndex, RecordsOneOfMany) {
  std::vector<int64_t> indices(200);
  for (int64_t i = 0; i < 200; i++) {
    indices[static_cast<size_t>(i)] = kRows + i;
  }
  Buffers m(Int, indices);
  const Program program = lookup(Int, 200, 0, false);
  for (uint64_t seed = 1; seed <= 5; seed++) {
    const simt::Result r = simt::run(simt::Launch{.kernel = simt::kernelOf(program), .slots = m.slots(), .seed = seed});
    EXPECT_EQ(r.faults, std::vector<std::string>{});
    EXPECT_EQ(r.refused.taken, 1U);
    EXPECT_GE(r.refused.index, kRows);
    EXPECT_LT(r.refused.index, kRows + 200);
    EXPECT_EQ(r.refused.extent, kRows);
    EXPECT_EQ(m.z, std::vector<float>(200, m.x[0]));
  }
}

TEST(CudaCheckedIndex, SaysNothingOfWhatNobodyReads) {
  for (DataType type : {Int, Int32}) {
    for (bool hole : {false, true}) {
      for (int64_t count : {5, 129, 200, 256}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name(type), hole, count));
        std::vector<int64_t> indices;
        for (int64_t i = 0; i < count; i++) {
          indices.push_back(hole && i <= 3 ? 1 << 20 : i % kRows - kRows);
        }
        Program program = lookup(type, count, kRows, hole);
        Buffers ours(type, indices);
        Buffers theirs(type, indices);
        simt::Result r = simt::run(simt::Launch{simt::kernelOf(program), ours.slots()});
        EXPECT_EQ(r.faults, std::vector<std::string>{});
        EXPECT_EQ(r.refused.taken, 0U);
        interpret(program, theirs.slots());
        EXPECT_EQ(ours.z, theirs.z);
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
