// Every example program for a GPU, over types and odd sizes: the generated text under the emulator against the
// interpreter.
#include <gtest/gtest.h>

#include <chrono>

#include "simt/compare.h"
#include "simt/program_cases.h"

namespace meshfuse::simt {
namespace {

using namespace tile;
using enum DataType;

void expectAllRight(const std::vector<Comparison>& cases) {
  std::vector<Verdict> verdicts = compare(cases);
  for (size_t i = 0; i < cases.size(); i++) {
    EXPECT_TRUE(verdicts[i].right()) << cases[i].describe() << ":\n" << verdicts[i].describe();
  }
}

constexpr Target kGpu = Target::Gpu;

TEST(GpuProgram, Pointwise) { expectAllRight(pointwisePrograms()); }
TEST(GpuProgram, RowReductionAndNormalization) { expectAllRight(rowPrograms()); }
TEST(GpuProgram, OuterSumAndTranspose) { expectAllRight(columnPrograms()); }

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
