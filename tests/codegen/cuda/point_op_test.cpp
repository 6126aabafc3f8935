// Every elementwise op in every type it takes, and every cast, on awkward operands: generated text against the
// interpreter.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "point_values.h"
#include "simt/emulator.h"
#include "tensor/half.h"
#include "tile/builder.h"
#include "tile/interpreter.h"
#include "tile/scalar.h"

namespace meshfuse {
namespace {

using namespace tile;
using enum DataType;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int kCount = 256;  // elements

const std::vector<double> kReals = {0.0,   -0.0,  1,    -1,   0.5,  -0.5,  2,
                                    3,     -3,    1.5,  -2.5, 0.1,  -0.7,  10,
                                    -10,   100,   1e-8, 1e8,  kInf, -kInf, std::numeric_limits<double>::quiet_NaN(),
                                    0.999, -0.25, 5.25};
const std::vector<int64_t> kIntegers = {0, 1, -1, 2, 3, -3, 7, -8, 31, 32, 33, 63, 64, 100, -100, INT32_MAX, INT32_MIN};

struct Case {
  std::string name;
  Program program;
  std::vector<std::vector<char>> buffers;
  std::vector<std::vector<char>> expected;
  double ulps = 0;  // allowed, of the type of the result
};

std::vector<uint64_t> slotsOf(std::vector<std::vector<char>>& buffers) {
  std::vector<uint64_t> slots;
  for (std::vector<char>& b : buffers) {
    slots.push_back(reinterpret_cast<uint64_t>(b.data()));
  }
  return slots;
}

// Operand `which` of element i: all pairs of the lists appear.
Scalar operandAt(DataType t, int which, int i) {
  if (isFloatingPoint(t)) {
    auto n = static_cast<int>(kReals.size());
    double v = kReals[which == 0 ? i % n : which == 1 ? i / 11 % n : i / 5 % n];
    return castScalar(realScalar(v), Double, t);
  }
  if (t == Bool) {
    return integerScalar(i >> which & 1);
  }
  auto n = static_cast<int>(kIntegers.size());
  int64_t v = kIntegers[which == 0 ? i % n : i / 16 % n];
  if (v == INT32_MIN || v == INT32_MAX) {
    v = v < 0 ? lowestInteger(t) : highestInteger(t);
  }
  return integerScalar(v);
}

// Z = value(operands...) over `types` of operands. `operand` gives operand k of element i.
Case makeCase(std::string name, const std::vector<DataType>& types,
              const std::function<ValueId(Builder&, std::vector<ValueId>)>& value,
              const std::function<Scalar(DataType, int k, int i)>& operand = operandAt) {
  Builder b("k_" + name, Target::Gpu);
  b.gridDim("part", 2);
  int s = b.space("s",
                  {{"i", kCount, {{Level::Part, 0, "part"}, {Level::Warp, 1}, {Level::Lane, 32}, {Level::Vector, 4}}}});
  Case c{.name = std::move(name), .program = {}, .buffers = {}, .expected = {}};
  std::vector<ValueId> operands;
  for (size_t k = 0; k < types.size(); k++) {
    int t = b.tensor({"x" + std::to_string(k), types[k], Memory::Input, {kCount}, {1}, 16, false});
    operands.push_back(b.load(t, {{b.coord(s, 0)}}, s));
    std::vector<char> data(kCount * dataTypeSize(types[k]));
    for (int i = 0; i < kCount; i++) {
      writeElement(data.data() + static_cast<size_t>(i * dataTypeSize(types[k])), types[k],
                   operand(types[k], static_cast<int>(k), i));
    }
    c.buffers.push_back(std::move(data));
  }
  ValueId result = value(b, operands);
  DataType type = b.program().values[result].dtype;
  int z = b.tensor({"z", type, Memory::Output, {kCount}, {1}, 16, false});
  b.store(z, {{b.coord(s, 0)}}, result);
  c.buffers.emplace_back(kCount * dataTypeSize(type), static_cast<char>(0xff));
  c.program = b.take();
  return c;
}

void expectSame(std::vector<Case>& cases) {
  std::vector<simt::Launch> launches;
  for (Case& c : cases) {
    c.expected = c.buffers;
    interpret(c.program, slotsOf(c.expected));
    launches.push_back({simt::kernelOf(c.program), slotsOf(c.buffers)});
  }
  std::vector<simt::Result> results = simt::run(launches);
  for (size_t k = 0; k < cases.size(); k++) {
    Case& c = cases[k];
    ASSERT_EQ(results[k].faults, std::vector<std::string>{}) << c.name;
    DataType t = c.program.tensors.back().dtype;
    int wrong = 0;
    for (int i = 0; i < kCount && wrong < 3; i++) {
      size_t at = static_cast<size_t>(i * dataTypeSize(t));
      Scalar got = readElement(c.buffers.back().data() + at, t);
      Scalar want = readElement(c.expected.back().data() + at, t);
      bool same = isFloatingPoint(t)
                      ? got.real == want.real || (std::isnan(got.real) && std::isnan(want.real)) ||
                            std::abs(got.real - want.real) <=
                                c.ulps * std::ldexp(std::max(std::abs(want.real), 1e-30), -info(t).mantissaBits + 1)
                      : got.integer == want.integer;
      wrong += same ? 0 : 1;
      std::string operands;
      for (size_t x = 0; x + 1 < c.buffers.size(); x++) {
        DataType xt = c.program.tensors[x].dtype;
        Scalar v = readElement(c.buffers[x].data() + static_cast<size_t>(i * dataTypeSize(xt)), xt);
        operands += isFloatingPoint(xt) ? fmt::format(" {}", v.real) : fmt::format(" {}", v.integer);
      }
      EXPECT_TRUE(same) << c.name << " of" << operands << ": got "
                        << (isFloatingPoint(t) ? got.real : static_cast<double>(got.integer)) << ", expected "
                        << (isFloatingPoint(t) ? want.real : static_cast<double>(want.integer));
    }
  }
}

void testOps(DataType t) {
  std::vector<Case> cases;
  for (const PointOpInfo& op : kPointOps) {
    if (!accepts(op.types, t) || mayRefuse(op.op)) {
      continue;
    }
    std::vector<DataType> types(op.arity, t);
    if (op.op == PointOp::Where) {
      types[0] = Bool;
    }
    Case c = makeCase(fmt::format("{}_{}", op.name, info(t).token), types,
                      [&](Builder& b, std::vector<ValueId> x) { return b.point(op.op, std::move(x)); });
    // The host's mathematical functions are good to a few last places; the interpreter rounds a double once.
    c.ulps = isFloatingPoint(t) ? 8 : 0;
    cases.push_back(std::move(c));
  }
  expectSame(cases);
}

TEST(CudaPointOp, Float) { testOps(Float); }
TEST(CudaPointOp, Double) { testOps(Double); }
TEST(CudaPointOp, Int) { testOps(Int); }
TEST(CudaPointOp, Int32) { testOps(Int32); }
TEST(CudaPointOp, Short) { testOps(Short); }
TEST(CudaPointOp, Char) { testOps(Char); }
TEST(CudaPointOp, Bool) { testOps(Bool); }

TEST(CudaPointOp, GivesTheValuesThatAreWrittenDown) {
  struct Values {
    DataType dtype;
    std::vector<PointValue> rows;  // of one op, repeated
  };
  std::vector<Values> values;
  std::vector<Case> cases;
  for (const DataTypeInfo& type : kDataTypes) {
    std::map<PointOp, std::vector<PointValue>> byOp;
    for (const PointValue& row : isHalfPrecision(type.type) ? std::vector<PointValue>{} : pointValues(type.type)) {
      byOp[row.op].push_back(row);
    }
    for (const auto& [op, rows] : byOp) {
      std::vector<DataType> types(info(op).arity, type.type);
      if (op == PointOp::Where) {
        types[0] = Bool;
      }
      cases.push_back(makeCase(
          fmt::format("{}_{}", info(op).name, type.token), types,
          [op = op](Builder& b, std::vector<ValueId> x) { return b.point(op, std::move(x)); },
          [&rows = rows](DataType t, int k, int i) {
            const PointValue& row = rows[static_cast<size_t>(i) % rows.size()];
            return isFloatingPoint(t) ? realScalar(row.real[k]) : integerScalar(row.whole[k]);
          }));
      values.push_back({type.type, rows});
    }
  }
  std::vector<simt::Launch> launches;
  for (Case& c : cases) {
    launches.push_back({simt::kernelOf(c.program), slotsOf(c.buffers)});
  }
  const std::vector<simt::Result> results = simt::run(launches);
  for (size_t k = 0; k < cases.size(); k++) {
    ASSERT_EQ(results[k].faults, std::vector<std::string>{}) << cases[k].name;
    const DataType t = cases[k].program.tensors.back().dtype;
    for (size_t i = 0; i < values[k].rows.size(); i++) {
      const PointValue& row = values[k].rows[i];
      const Scalar got = readElement(cases[k].buffers.back().data() + i * static_cast<size_t>(dataTypeSize(t)), t);
      if (isFloatingPoint(t)) {
        EXPECT_TRUE(agrees(row, t, got.real, 8)) << cases[k].name << " " << row.text << "got " << got.real;
      } else {
        EXPECT_EQ(got.integer, row.wholeResult) << cases[k].name << " " << row.text;
      }
    }
  }
}

TEST(CudaPointOp, CastsOfEveryTypeToEveryOther) {
  std::vector<Case> cases;
  for (const DataTypeInfo& from : kDataTypes) {
    for (const DataTypeInfo& to : kDataTypes) {
      bool truncates = isFloatingPoint(from.type) && isIntegral(to.type);
      if (from.type == to.type) {
        continue;
      }
      Case c =
          makeCase(fmt::format("{}_to_{}", from.token, to.token), {from.type}, [&](Builder& b, std::vector<ValueId> x) {
            // What does not fit an integer is unspecified: keep within [-1, 1].
            if (truncates) {
              ValueId wide = b.cast(x[0], from.type == Double ? Double : Float);
              DataType w = from.type == Double ? Double : Float;
              ValueId one = b.constant(w, 1);
              ValueId finite = b.point(PointOp::Where, {b.point(PointOp::IsNan, {wide}), b.constant(w, 0), wide});
              ValueId clamped =
                  b.point(PointOp::Maximum, {b.point(PointOp::Minimum, {finite, one}), b.point(PointOp::Neg, {one})});
              x[0] = b.cast(clamped, from.type);
            }
            return b.cast(x[0], to.type);
          });
      cases.push_back(std::move(c));
    }
  }
  expectSame(cases);
}

// Zeros, subnormals, the least normal, the largest, infinities, NaN, 1, its next, and halves of units in the last place, one with more bits.
std::vector<uint16_t> awkward16(DataType t) {
  return t == Half ? std::vector<uint16_t>{0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0xfbff, 0x7c00,
                                           0xfc00, 0x7e01, 0x3c00, 0x3c01, 0x1000, 0x1001, 0x8c00, 0x4c00}
                   : std::vector<uint16_t>{0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x7f7f, 0xff7f, 0x7f80,
                                           0xff80, 0x7fc1, 0x3f80, 0x3f81, 0x3b80, 0x3b81, 0xbb00, 0x7b00};
}

// A sum of packed 16-bit floats has the bits of the sum in float that is rounded to their type: of all pairs, packed or not.
TEST(CudaPointOp, PackedSumsHaveTheBitsOfRoundedFloats) {
  std::vector<Case> cases;
  std::vector<simt::Launch> launches;
  for (DataType t : {Half, BFloat16}) {
    const std::vector<uint16_t> values = awkward16(t);
    for (PointOp op : {PointOp::Add, PointOp::Sub}) {
      for (bool packed : {true, false}) {
        Case c = makeCase(fmt::format("{}_{}", info(op).name, info(t).token), {t, t},
                          [&](Builder& b, std::vector<ValueId> x) {
                            const ValueId first = b.cast(x[0], Float);
                            const ValueId second = b.cast(x[1], Float);
                            const ValueId same = b.point(PointOp::Mul, {second, b.constant(Float, 1)});
                            return b.cast(b.point(op, {first, packed ? second : same}), t);
                          });
        c.expected = c.buffers;
        for (size_t i = 0; i < kCount; i++) {
          const uint16_t x = values[i % values.size()];
          const uint16_t y = values[i / values.size()];
          const float b = float16ToFloat(t, y);
          const float sum = float16ToFloat(t, x) + (op == PointOp::Add ? b : -b);
          const uint16_t z = std::isnan(sum) ? 0x7fff : floatToFloat16(t, sum);  // a GPU has one NaN as a result
          std::memcpy(c.buffers[0].data() + 2 * i, &x, 2);
          std::memcpy(c.buffers[1].data() + 2 * i, &y, 2);
          std::memcpy(c.expected[2].data() + 2 * i, &z, 2);
        }
        EXPECT_EQ(kernelText(emitCuda(c.program).text).find("sumWords") != std::string::npos, packed);
        cases.push_back(std::move(c));
      }
    }
  }
  for (Case& c : cases) {
    launches.push_back({simt::kernelOf(c.program), slotsOf(c.buffers)});
  }
  const std::vector<simt::Result> results = simt::run(launches);
  for (size_t k = 0; k < cases.size(); k++) {
    const auto bits = [&](const std::vector<char>& buffer, size_t i) {
      uint16_t word = 0;
      std::memcpy(&word, buffer.data() + 2 * i, 2);
      return fmt::format("{:04x}", word);
    };
    const Case& c = cases[k];
    ASSERT_EQ(results[k].faults, std::vector<std::string>{}) << c.name;
    for (size_t i = 0; i < kCount; i++) {
      EXPECT_EQ(bits(c.buffers[2], i), bits(c.expected[2], i))
          << c.name << " of " << bits(c.buffers[0], i) << " and " << bits(c.buffers[1], i);
    }
  }
}

TEST(CudaPointOp, RandomWordsAreThePublishedOnes) {
  std::vector<Case> cases;
  for (int word = 0; word < 4; word++) {
    cases.push_back(makeCase(fmt::format("philox_{}", word), {Int, Int, Int},
                             [&](Builder& b, std::vector<ValueId> x) { return b.random(x[0], x[1], x[2], word); }));
  }
  expectSame(cases);
}

}  // namespace
}  // namespace meshfuse
