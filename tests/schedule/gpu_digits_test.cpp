// How kernels of rows follow from the facts about a GPU: what differs between sm_80, sm_90a and sm_100, and that all of it is right.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <functional>
#include <string>
#include <vector>

#include "architectures.h"
#include "base/ranges.h"
#include "digits/row_major.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "schedule/kernel_check.h"
#include "schedule/rows.h"

namespace meshfuse {
namespace {

DeviceInfo gpu(const char* architecture) { return DeviceInfo::ofArchitecture(architecture).value(); }

using Unary = std::function<TensorView*(TensorView*)>;

// One more input of the fusion of `x`.
TensorView* newInput(TensorView* x, const std::vector<int64_t>& shape, DataType type = DataType::Float) {
  TensorView* input = makeContigConcreteTensor(shape, type);
  x->fusion().addInput(input);
  return input;
}

// The verdict about a fusion with an input of this shape, which `build` may give more inputs.
Verdict judged(Fusion& fusion, const std::vector<int64_t>& shape, const Unary& build, const DeviceInfo& device,
               DataType type, int64_t alignment) {
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor(shape, type);
  fusion.addInput(x);
  fusion.addOutput(build(x));
  Group group = wholeGroup(fusion);
  group.layouts[x->id()] = {rowMajorStrides({shape.begin(), shape.end()}), alignment};
  return judge(group, device, allTemplates());
}

// The digits of m, k and n of a fusion of one input, and its parts: "n p512 r4 w4 l32 v4; 512 parts".
std::string digitsOf(const std::vector<int64_t>& shape, const Unary& build, const DeviceInfo& device,
                     DataType type = DataType::Float, int64_t alignment = 64) {
  Fusion fusion;
  const Verdict verdict = judged(fusion, shape, build, device, type, alignment);
  const auto* rows = dynamic_cast<const RowsJudgement*>(verdict.judgement.get());
  if (rows == nullptr) {
    return verdict.refusal;
  }
  std::string text;
  const auto add = [&](const char* name, const std::vector<tile::Builder::DigitSpec>& axis) {
    text += axis.empty() ? "" : name;
    for (const tile::Builder::DigitSpec& d : axis) {
      text += fmt::format(" {}{}", tile::letterOf(d.level), d.size.toString());
    }
    text += axis.empty() ? "" : "; ";
  };
  add("m", rows->digits.m);
  add("k", rows->digits.k);
  add("n", rows->digits.n);
  return text + fmt::format("{} parts", productOf(rows->digits.grid, &tile::GridDim::count).toString());
}

TensorView* twice(TensorView* x) { return add(x, x); }
TensorView* total(TensorView* x) { return sum(x, {0}); }

// The product of the digits of a level.
int64_t sizeOf(const std::string& digits, char letter) {
  const std::string level = std::string(" ") + letter;
  int64_t size = 1;
  for (size_t at = digits.find(level); at != std::string::npos; at = digits.find(level, at + 1)) {
    size *= std::stoll(digits.substr(at + 2));
  }
  return size;
}

TEST(GpuDigits, AccessesAreAsWideAsTheGpuHasThem) {
  for (const auto& [type, bytes] : {std::pair(DataType::Float, 4), std::pair(DataType::Half, 2)}) {
    const Unary inType = [type](TensorView* x) { return maybeCastOp(type, add(x, x)); };
    for (const char* old : {"sm_80", "sm_86", "sm_89", "sm_90a"}) {
      EXPECT_EQ(sizeOf(digitsOf({1 << 22}, inType, gpu(old), type), 'v') * bytes, 16) << old;
    }
    for (const char* recent : {"sm_100", "sm_100a", "sm_103", "sm_120"}) {
      EXPECT_EQ(sizeOf(digitsOf({1 << 22}, inType, gpu(recent), type), 'v') * bytes, 32) << recent;
      EXPECT_EQ(sizeOf(digitsOf({1 << 22}, inType, gpu(recent), type, 16), 'v') * bytes, 16) << "aligned to 16";
    }
  }
}

// Rows of 24,000 elements and two inputs: a thread of 1024 has 64 registers.
TEST(GpuDigits, RowsStayInRegistersWhereTheyFit) {
  const Unary normalized = [](TensorView* x) { return div(x, unsqueeze(sum(x, {1}), 1)); };
  const auto serial = [&](int64_t columns, DeviceInfo device, int64_t registers) {
    device.gpu.registers = registers;
    return digitsOf({4096, columns}, normalized, device).find(" s") != std::string::npos;
  };
  EXPECT_FALSE(serial(24'000, gpu("sm_90a"), 65536));
  EXPECT_TRUE(serial(40'000, gpu("sm_90a"), 65536));
  EXPECT_TRUE(serial(24'000, gpu("sm_90a"), 32768)) << "half of the registers";
}

// 32 bytes of a row for each thread, more only where the largest block is too small for the row, and a second sweep over long rows of 16 bits.
TEST(GpuDigits, AThreadTakesFewElementsOfARow) {
  const auto digits = [&](int64_t columns, DataType type) {
    return digitsOf(
        {4096, columns}, [&](TensorView* x) { return maybeCastOp(type, div(x, unsqueeze(sum(x, {1}), 1))); },
        gpu("sm_90a"), type);
  };
  const auto threads = [&](const std::string& d) { return sizeOf(d, 'w') * sizeOf(d, 'l'); };
  const auto isHeld = [&](const std::string& d) { return d.find(" s") == std::string::npos; };
  EXPECT_EQ(threads(digits(2048, DataType::Float)), 256);
  EXPECT_EQ(threads(digits(2048, DataType::BFloat16)), 128);
  EXPECT_EQ(threads(digits(8192, DataType::Float)), 1024);
  EXPECT_EQ(threads(digits(32768, DataType::Float)), 1024);
  EXPECT_TRUE(isHeld(digits(32768, DataType::Float)));
  EXPECT_TRUE(isHeld(digits(16384, DataType::BFloat16)));
  EXPECT_FALSE(isHeld(digits(32768, DataType::BFloat16)));
}

// 64 bytes of a row of Floats that is only read: 16 registers of the 32 that a thread has if a multiprocessor runs all of its threads.
TEST(GpuDigits, AThreadTakesMoreOfARowThatIsOnlyRead) {
  const auto threads = [&](const Unary& build, DataType type = DataType::Float,
                           const std::vector<int64_t>& shape = {4096, 2048}) {
    const std::string d = digitsOf(shape, build, gpu("sm_90a"), type);
    return sizeOf(d, 'w') * sizeOf(d, 'l');
  };
  const Unary logOfSums = [](TensorView* x) { return log(sum(exp(sub(x, unsqueeze(max(x, {1}), 1))), {1})); };
  EXPECT_EQ(threads([](TensorView* x) { return sum(x, {1}); }), 128);
  EXPECT_EQ(threads(logOfSums), 128);
  EXPECT_EQ(threads([&](TensorView* x) { return logOfSums(castOp(DataType::Float, x)); }, DataType::BFloat16), 128);
  EXPECT_EQ(threads([&](TensorView* x) { return logOfSums(mul(x, newInput(x, {2048}))); }), 256) << "two rows";
  EXPECT_EQ(threads([](TensorView* x) { return sub(x, unsqueeze(max(x, {1}), 1)); }), 256) << "it stores a row";
  EXPECT_EQ(sizeOf(digitsOf(
                       {1 << 20, 16}, [](TensorView* x) { return sum(x, {1}); }, gpu("sm_90a")),
                   'r'),
            2)
      << "a short row";
  EXPECT_EQ(threads(
                [](TensorView* x) {
                  return sum(x, {0, 2});
                },
                DataType::Float, {64, 256, 1024}),
            128)
      << "a thread takes 32 bytes in each step";
}

// A thread takes four vectors of a row that waits for its index, where blocks of such threads fill the row and the GPU; else two.
TEST(GpuDigits, RowsWithAnIndexAreTakenInLargerShares) {
  using Share = std::pair<int64_t, int64_t>;  // of so many rows, so many vectors of each
  const Share four(1, 4), two(1, 2), twoRows(2, 1);
  const auto expectShare = [](const Share& expected, const char* why, const Unary& rows,
                              const std::vector<int64_t>& shape = {8192, 4096}) {
    Fusion fusion;
    const Verdict verdict = judged(fusion, shape, rows, gpu("sm_90a"), DataType::Float, 64);
    const std::string text = toString(std::get<KernelPlan>(verdict.judgement->write()).program);
    const auto repeats = [&](const char* axis) {
      const size_t at = text.find(fmt::format("{} <", axis));
      return at == std::string::npos ? 1 : sizeOf(text.substr(at, text.find('\n', at) - at), 'r');
    };
    EXPECT_EQ(Share(repeats("m"), repeats("n")), expected) << why;
  };
  const Unary embedded = [](TensorView* table) {
    return embedding_fwd(newInput(table, {table->shape()[0].constValue()}, DataType::Int), table);
  };
  const auto index = [](TensorView* x, std::vector<int64_t> shape) { return newInput(x, shape, DataType::Int); };
  expectShare(four, "an embedding", embedded);
  expectShare(two, "an embedding of 6 warps' vectors", embedded, {8192, 3072});
  expectShare(four, "an embedding that fills the GPU", embedded, {1056, 4096});
  expectShare(two, "an embedding for half of the GPU's threads", embedded, {1056, 2048});
  expectShare(four, "rows at an index", [&](TensorView* x) { return index_select(x, 0, index(x, {8192})); });
  expectShare(four, "an index for each row", [&](TensorView* x) { return takeAlongAxis(x, index(x, {8192, 1}), 0); });
  expectShare(four, "a factor for each row", [&](TensorView* x) { return mul(embedded(x), newInput(x, {8192, 1})); });
  expectShare(two, "no index", [](TensorView* x) { return add(x, newInput(x, {8192, 1})); });
  expectShare(two, "no index and no rows", twice);
  expectShare(two, "a tensor that waits for nothing", [&](TensorView* x) {
    return add(x, embedding_fwd(index(x, {8192}), newInput(x, {512, 4096})));
  });
  expectShare(two, "a table that is read at once too", [&](TensorView* x) { return add(x, embedded(x)); });
  expectShare(two, "a window that waits for nothing", [&](TensorView* x) {
    return add(slice(newInput(x, {8192, 4100}), {0, 4}, {8192, 4100}), embedded(x));
  });
  expectShare(twoRows, "an index for each element", [&](TensorView* x) {
    return takeAlongAxis(x, index(x, {8192, 4096}), 1);
  });
  expectShare(twoRows, "an index of all rows", [&](TensorView* x) { return index_select(x, 1, index(x, {4096})); });
  expectShare(twoRows, "an index of all rows that is computed",
              [&](TensorView* x) { return index_select(x, 1, neg(index(x, {4096}))); });
}

TEST(GpuDigits, PartsFillTheMultiprocessors) {
  for (const char* name : {"sm_80", "sm_86", "sm_90a", "sm_100", "sm_120"}) {
    const DeviceInfo device = gpu(name);
    const auto partsOf = [&](const std::vector<int64_t>& shape) {
      const std::string digits = digitsOf(shape, total, device);
      return std::stoll(digits.substr(digits.rfind("; ") + 2));
    };
    EXPECT_GE(partsOf({1 << 28}), 3 * device.gpu.processors) << name;
    EXPECT_LE(partsOf({1 << 28}), 4 * device.gpu.processors) << name;
    EXPECT_GE(partsOf({1 << 20, 32}), 2 * device.gpu.processors) << name << ", columns";
    EXPECT_EQ(partsOf({1000}), 1) << name << ", too short to be cut";
  }
}

// Many columns are parts enough, and results of a normalization need the sums of their whole row.
TEST(GpuDigits, OnlyLongReductionsWithFewResultsAreCut) {
  const DeviceInfo device = gpu("sm_90a");
  const auto isCut = [&](const std::vector<int64_t>& shape, const Unary& build) {
    const std::string digits = digitsOf(shape, build, device);
    return digits.find("k p") != std::string::npos || digits.rfind("n p", 0) == 0;
  };
  EXPECT_TRUE(isCut({1 << 24}, total));
  EXPECT_TRUE(isCut({1 << 16, 64}, total));
  EXPECT_FALSE(isCut({1 << 16, 1 << 14}, total)) << "512 blocks of columns";
  EXPECT_FALSE(isCut({1 << 24}, [](TensorView* x) { return sub(x, sum(x, {0})); }));
}

TEST(GpuDigits, SmallTensorsAreSharedByAllThreads) {
  EXPECT_EQ(sizeOf(digitsOf({1 << 20}, twice, gpu("sm_90a")), 'r'), 1);
  EXPECT_EQ(sizeOf(digitsOf({1 << 26}, twice, gpu("sm_90a")), 'r'), 2);
}

TEST(GpuDigits, ALaunchCostsWhatMemoryMovesMeanwhile) {
  const auto launch = [](const DeviceInfo& device) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor({64});
    fusion.addInput(x);
    fusion.addOutput(neg(x));
    return judge(wholeGroup(fusion), device, allTemplates()).judgement->cost.launch;
  };
  EXPECT_LT(launch(gpu("sm_86")), launch(gpu("sm_80")));
  EXPECT_LT(launch(gpu("sm_80")), launch(gpu("sm_90a")));
  EXPECT_LT(launch(gpu("sm_90a")), launch(gpu("sm_100")));
  DeviceInfo unknown = gpu("sm_90a");
  unknown.gpu.bytesPerMicrosecond = 0;
  EXPECT_GT(launch(unknown), 0);
}

// Every structure that differs, against the reference interpreter.
class OnEachGpu : public testing::TestWithParam<const char*> {
 protected:
  static void expectRight(const std::vector<int64_t>& shape, const Unary& build, DataType type = DataType::Float,
                          const std::vector<Argument>& more = {}) {
    SCOPED_TRACE(fmt::format("{} elements", productOf(shape)));
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeContigConcreteTensor(shape, type);
    fusion.addInput(x);
    fusion.addOutput(build(x));
    DeviceInfo device = gpu(GetParam());
    device.gpu.processors = 3;  // so that small tensors are cut too
    std::vector<Argument> arguments{randomTensor(shape, type, 1, -2, 2)};
    append(arguments, more);
    EXPECT_EQ(checkKernel(fusion, device, arguments).difference, "");
  }
};

INSTANTIATE_TEST_SUITE_P(Architectures, OnEachGpu, testing::ValuesIn(kArchitectures),
                         [](const auto& p) { return std::string(p.param); });

TEST_P(OnEachGpu, LongSumsAreRight) {
  for (const int64_t n : {65536, 65537, 100'000}) {
    expectRight({n}, total);
    expectRight({n}, [](TensorView* x) { return max(x, {0}); });
  }
  expectRight({3, 70'001}, [](TensorView* x) { return sum(x, {1}); });
  expectRight(
      {5, 65536}, [](TensorView* x) { return exp(sum(mul(x, x), {1})); }, DataType::Half);
}

TEST_P(OnEachGpu, LongColumnsAreRight) {
  for (const int64_t columns : {1, 7, 24, 64}) {
    expectRight({5000, columns}, total);
    expectRight(
        {4096, columns}, [](TensorView* x) { return min(x, {0}); }, DataType::BFloat16);
  }
  expectRight({3001, 16}, [](TensorView* x) { return add(sum(x, {0}), max(x, {0})); });
}

TEST_P(OnEachGpu, RowsReadTwiceAreRight) {
  expectRight(
      {2, 20'000}, [](TensorView* x) { return maybeCastOp(DataType::BFloat16, softmax(x, 1)); }, DataType::BFloat16);
}

TEST_P(OnEachGpu, PointwiseIsRight) {
  for (const DataType type : {DataType::Float, DataType::Half, DataType::Double, DataType::Char}) {
    expectRight({1000}, twice, type);
    expectRight({70, 96}, twice, type);
  }
}

TEST_P(OnEachGpu, RowsOfATableAreRight) {
  const auto indexed = [](int64_t count, int64_t below,
                          const std::function<TensorView*(TensorView*, TensorView*)>& op) {
    expectRight({32, 4096}, [&](TensorView* x) { return op(x, newInput(x, {count}, DataType::Int)); }, DataType::Float,
                {randomTensor({count}, DataType::Int, 2, 0, static_cast<double>(below))});
  };
  indexed(40, 32, [](TensorView* x, TensorView* index) { return embedding_fwd(index, x); });
  indexed(32, 32, [](TensorView* x, TensorView* index) { return add(x, embedding_fwd(index, x)); });
  indexed(4096, 4096, [](TensorView* x, TensorView* index) { return index_select(x, 1, index); });
}

}  // namespace
}  // namespace meshfuse
