// Kernels that meet an index out of range: they report one, read nothing foreign, and go on with 0.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "base/refused_index.h"
#include "device/cpu/orc/cpu_compiler.h"
#include "device/cpu/orc/run_program.h"
#include "tile/builder.h"
#include "tile/interpreter.h"
#include "tile/scalar.h"

namespace meshfuse {
namespace {

using tile::Builder;
using tile::Level;
using tile::Memory;
using tile::ValueId;

constexpr int64_t kRows = 10;

// Y[n] = X[checked(I[n] + shift, 10)], of n + 3 where `hole` is left out: a hole is -1.
tile::Program lookup(DataType indexType, int64_t vector, int64_t shift, bool hole) {
  Builder b("lookup", tile::Target::Cpu);
  IntExpr n = b.size("N", {.lower = 1});
  int x = b.tensor({"X", DataType::Float, Memory::Input, {kRows}, {1}, 64});
  int index = b.tensor({"I", indexType, Memory::Input, {n}, {1}, 64});
  int y = b.tensor({"Y", DataType::Float, Memory::Output, {n}, {1}, 64});
  int s = b.space("s", {{"n", n, {{Level::Serial, 0}, {Level::Repeat, 2}, {Level::Vector, vector}}}});
  b.loop(s, 0, 0, {}, [&](std::span<const ValueId>) {
    IntExpr i = b.coord(s, 0);
    std::vector<tile::Pred> where;
    if (hole) {
      where = {{3, i}};
    }
    ValueId given = b.load(index, {{i}}, s, {.where = where});
    ValueId shifted = b.point(PointOp::Add, {given, b.integer(indexType, shift, s)});
    ValueId checked = b.checkedIndex(shifted, b.integer(indexType, kRows, s), s, where);
    ValueId row = b.cast(checked, DataType::Int);
    ValueId fill = b.constant(DataType::Float, -1, s);
    b.store(y, {{i}}, b.load(x, {{0, row}}, s, {.where = where, .fill = fill}));
    return std::vector<ValueId>{};
  });
  return b.take();
}

struct Memories {
  std::vector<float> table = std::vector<float>(kRows + 32, 1000);
  std::vector<int64_t> index;  // of either width
  std::vector<float> out;
  std::vector<uint64_t> slots;

  Memories(DataType type, const std::vector<int64_t>& indices) : index(indices.size() + 32), out(indices.size() + 32) {
    for (int64_t i = 0; i < kRows; i++) {
      table[aligned(table) + static_cast<size_t>(i)] = static_cast<float>(100 + i);
    }
    char* place = reinterpret_cast<char*>(index.data() + aligned(index));
    for (size_t i = 0; i < indices.size(); i++) {
      tile::writeElement(place + static_cast<int64_t>(i) * dataTypeSize(type), type, tile::integerScalar(indices[i]));
    }
    slots = {reinterpret_cast<uint64_t>(table.data() + aligned(table)), reinterpret_cast<uint64_t>(place),
             reinterpret_cast<uint64_t>(result()), indices.size()};
  }
  float* result() { return out.data() + aligned(out); }
  template <class T>
  static size_t aligned(const std::vector<T>& v) {
    return (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64 / sizeof(T);
  }
};

TEST(CheckedIndex, ReportsTheFirstBadLaneAndReadsRowZero) {
  for (const CpuTarget& target : testedTargets()) {
    for (DataType type : {DataType::Int, DataType::Int32}) {
      int64_t most = type == DataType::Int ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int32_t>::max();
      for (int64_t vector : {int64_t{1}, int64_t{16}}) {
        CpuCompiler compiler({.target = target});
        tile::Program program = lookup(type, vector, 0, false);
        ASSERT_EQ(tile::verify(program), std::vector<std::string>{});
        auto kernel = compiler.compile({&program, 1})[0];
        for (int64_t bad : {int64_t{-1}, kRows, kRows + 1, most, -most - 1}) {
          for (size_t place : {0, 5, 17, 36}) {
            SCOPED_TRACE(
                fmt::format("{} bytes, {}, vector {}, {} at {}", target.vectorBytes, name(type), vector, bad, place));
            std::vector<int64_t> indices;
            for (int64_t i = 0; i < 37; i++) {
              indices.push_back(i % kRows);
            }
            indices[place] = bad;
            Memories m(type, indices);
            RefusedIndex refused;
            {
              RefusedIndexScope scope(refused);
              kernel->run(m.slots.data(), 0, 1, nullptr);
            }
            ASSERT_TRUE(refused.any());
            EXPECT_EQ(refused.index(), bad);
            EXPECT_EQ(refused.extent(), kRows);
            for (size_t i = 0; i < indices.size(); i++) {
              EXPECT_EQ(m.result()[i], i == place ? 100.F : 100.F + static_cast<float>(indices[i])) << i;
            }
            EXPECT_THROW((void)tile::interpret(program, m.slots), UserError);
          }
        }
      }
    }
  }
}

// Lanes beyond the end, and positions that the predicates leave out, hold whatever a load fills in; with the shift that is out
// of range, and nobody asked for it.
TEST(CheckedIndex, SaysNothingOfWhatNobodyReads) {
  for (const CpuTarget& target : testedTargets()) {
    for (DataType type : {DataType::Int, DataType::Int32}) {
      for (int64_t vector : {int64_t{1}, int64_t{16}}) {
        for (bool hole : {false, true}) {
          SCOPED_TRACE(fmt::format("{} bytes, {}, vector {}, hole {}", target.vectorBytes, name(type), vector, hole));
          CpuCompiler compiler({.target = target});
          tile::Program program = lookup(type, vector, kRows, hole);
          auto kernel = compiler.compile({&program, 1})[0];
          for (size_t n : {1, 4, 5, 31, 37}) {
            std::vector<int64_t> indices;
            for (size_t i = 0; i < n; i++) {
              bool left = hole && i <= 3;
              indices.push_back(left ? 1 << 20 : static_cast<int64_t>(i) % kRows - kRows);
            }
            Memories m(type, indices);
            RefusedIndex refused;
            {
              RefusedIndexScope scope(refused);
              kernel->run(m.slots.data(), 0, 1, nullptr);
            }
            EXPECT_FALSE(refused.any()) << refused.index() << " of " << n;
            std::vector<float> ours(m.result(), m.result() + n);
            EXPECT_NO_THROW((void)tile::interpret(program, m.slots));
            EXPECT_EQ(ours, std::vector<float>(m.result(), m.result() + n));
          }
        }
      }
    }
  }
}

TEST(CheckedIndex, BelongsToTheScopeOfItsThread) {
  RefusedIndex outer;
  RefusedIndex inner;
  refuseIndex(1, 1);
  {
    RefusedIndexScope a(outer);
    {
      RefusedIndexScope b(inner);
      refuseIndex(7, 5);
      refuseIndex(8, 5);
    }
    refuseIndex(9, 4);
  }
  refuseIndex(2, 1);
  EXPECT_EQ(inner.index(), 7);
  EXPECT_EQ(inner.extent(), 5);
  EXPECT_EQ(outer.index(), 9);
  EXPECT_EQ(outer.extent(), 4);
}

}  // namespace
}  // namespace meshfuse
