// Every example program for a GPU, over types and odd sizes: the generated text under the emulator against the
// interpreter.
#include <gtest/gtest.h>

#include <chrono>

#include "simt/compare.h"

namespace meshfuse::simt {
namespace {

using namespace tile;
using enum DataType;

void expectAllRight(const std::vector<Comparison>& cases) {
  std::vector<Verdict> verdicts = compare(cases);
  for (size_t i = 0; i < cases.size(); i++) {
    std::string sizes;
    for (int64_t s : cases[i].example.sizes) {
      sizes += " " + std::to_string(s);
    }
    EXPECT_TRUE(verdicts[i].right()) << cases[i].example.program.name << sizes << ":\n" << verdicts[i].describe();
  }
}

constexpr Target kGpu = Target::Gpu;

TEST(GpuProgram, Pointwise) {
  std::vector<Comparison> cases;
  for (DataType t : {Float, BFloat16, Half, Double}) {
    for (int64_t n : {1, 15, 1003, 4096}) {
      cases.push_back({addProgram(kGpu, t, n), 1});
    }
    cases.push_back({biasGeluProgram(kGpu, t, 5, 96), 16});
    cases.push_back({biasGeluProgram(kGpu, t, 3, 1027), 16});
    cases.push_back({gatherProgram(kGpu, t, 11, 21, 48), 0});
    cases.push_back({gatherProgram(kGpu, t, 10, 7, 33), 0});
    cases.push_back({dropoutProgram(kGpu, t, 1000), 4});
  }
  cases.push_back({padCatProgram(kGpu, Float, 5, 37, 64), 0});
  cases.push_back({padCatProgram(kGpu, Double, 3, 1, 8), 0});
  expectAllRight(cases);
}

// Sums of n terms below 2 in magnitude: n roundings of partial sums, relative to values of the order of one.
TEST(GpuProgram, RowReductionAndNormalization) {
  std::vector<Comparison> cases;
  for (DataType t : {Float, BFloat16, Half, Double}) {
    for (auto [m, n] : std::vector<std::pair<int64_t, int64_t>>{{3, 7}, {6, 129}, {3, 1333}, {2, 4096}}) {
      auto steps = static_cast<double>(4 * n);
      cases.push_back({innerSumProgram(kGpu, t, m, n), steps});
      cases.push_back({softmaxProgram(kGpu, t, m, n), steps});
      cases.push_back({layerNormProgram(kGpu, t, m, n), steps});
    }
  }
  expectAllRight(cases);
}

TEST(GpuProgram, OuterSumAndTranspose) {
  std::vector<Comparison> cases;
  for (DataType t : {Float, BFloat16, Half, Double}) {
    for (auto [m, n] : std::vector<std::pair<int64_t, int64_t>>{{3, 7}, {200, 136}, {65, 33}}) {
      cases.push_back({outerSumProgram(kGpu, t, m, n), static_cast<double>(4 * m)});
      cases.push_back({transposeProgram(kGpu, t, m, n), 0});
    }
  }
  expectAllRight(cases);
}

// The order in which threads and blocks run must not show.
TEST(GpuProgram, GivesTheSameBitsInAnyOrder) {
  Example example = outerSumProgram(kGpu, Float, 300, 64);
  std::vector<Comparison> cases;
  for (uint64_t seed : {0, 1, 2, 3}) {
    cases.push_back({.example = example, .steps = 1200, .seed = seed});
  }
  expectAllRight(cases);
}

// Full lines are asked for where a row allows it.
TEST(GpuProgram, TouchesFewSectors) {
  std::vector<Comparison> cases;
  for (Example e : {addProgram(kGpu, BFloat16, 1 << 14), softmaxProgram(kGpu, Float, 4, 2048),
                    layerNormProgram(kGpu, Half, 4, 1024), transposeProgram(kGpu, Float, 128, 128)}) {
    cases.push_back({.example = std::move(e), .steps = 8192, .countSectors = true});
  }
  for (const Verdict& v : compare(cases)) {
    for (const TensorTraffic& t : v.result.tensors) {
      EXPECT_LE(static_cast<double>(t.sectors), 1.01 * static_cast<double>(t.idealSectors));
    }
  }
}

TEST(GpuProgram, ReportsTheHashOfTheTextItCompiled) {
  Example example = addProgram(kGpu, Float, 100);
  std::vector<Comparison> cases{{example, 1}};
  EXPECT_EQ(compare(cases)[0].result.text, hashText(emitCuda(example.program).text));
}

}  // namespace
}  // namespace meshfuse::simt
