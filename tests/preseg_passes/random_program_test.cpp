// Random programs with random shardings on random meshes: every rank's result against the interpretation of the whole.
#include <gtest/gtest.h>

#include <map>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "ir/text.h"
#include "preseg_passes/propagate_shardings.h"
#include "preseg_passes/random_program.h"
#include "preseg_passes/sharded_program.h"
#include "preseg_passes/specialize.h"
#include "preseg_passes/table.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

// SEEDS: more of them, by hand
uint32_t seedsOr(uint32_t usual) {
  const char* asked = std::getenv("SEEDS");
  return asked != nullptr ? static_cast<uint32_t>(std::atoi(asked)) : kSanitized ? usual / 8 : usual;
}

void runRandomPrograms(RandomProgramKind kind) {
  std::map<std::string, int64_t> histogram;
  std::map<std::string, int64_t> communication;
  const uint32_t count = seedsOr(400);
  for (uint32_t seed = 0; seed < count; seed++) {
    const RandomProgram program(seed, histogram, kind);
    try {
      ShardedRun run = runSharded(program.fusion(), {}, {.callBytes = 0});
      for (const std::string& step : run.communications) {
        communication[step.substr(0, step.find('('))]++;
      }
    } catch (const std::exception& e) {
      FAIL() << "seed " << seed << ": " << e.what() << "\n" << program.fusion().toString();
    }
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << "\n" << program.fusion().toString();
  }
  for (const auto& table : {histogram, communication}) {
    for (const auto& [name, n] : table) {
      std::printf("%s %ld, ", name.c_str(), n);
    }
    std::printf("\n");
  }
}

TEST(RandomProgram, EveryRankHasItsPartOfTheResult) { runRandomPrograms({}); }

TEST(RandomProgram, PartsOfAxesOwnDigits) { runRandomPrograms({.parts = true}); }

TEST(RandomProgram, PartsMayBeUnevenOrEmpty) { runRandomPrograms({.uneven = true}); }

// One propagation, then every size: the numbers are right whether or not it divides, and nothing is left to spread.
TEST(RandomProgram, SizesOfMeshesMayComeLater) {
  std::map<std::string, int64_t> histogram;
  const uint32_t count = seedsOr(80);
  int steps = 0;
  for (uint32_t seed = 0; seed < count; seed++) {
    const RandomProgram program(seed, histogram, {.uneven = seed % 2 == 1, .symbolic = true});
    std::string at;
    try {
      std::unique_ptr<Fusion> spread = program.fusion().clone();
      PassContext context(*spread);
      runPassesBeforeSizes(*spread, context);
      const std::string text = spread->toString();
      ASSERT_EQ(parseFusion(text)->toString(), text);
      for (const MeshSizes& sizes : std::vector<MeshSizes>{{{"x", 1}, {"y", 1}},
                                                           {{"x", 2}, {"y", 1}},
                                                           {{"x", 3}, {"y", 2}},
                                                           {{"x", 4}, {"y", 2}},
                                                           {{"x", 8}, {"y", 1}}}) {
        MeshSizes known;
        for (const std::string& axis : openAxes(*spread)) {
          known[axis] = sizes.at(axis);
        }
        std::unique_ptr<Fusion> fusion = specialize(*spread, known, &program.fusion());
        at = fusion->toString();
        PassContext again(*fusion);
        ASSERT_FALSE(propagateShardings(*fusion, again)) << at;
        ShardedRun run = runSharded(*fusion);
        steps += static_cast<int>(run.communications.size());
        if (sizes.at("x") == 1) {
          ASSERT_TRUE(run.communications.empty()) << at;
        }
      }
    } catch (const std::exception& e) {
      FAIL() << "seed " << seed << ": " << e.what() << "\n" << program.fusion().toString() << at;
    }
    ASSERT_FALSE(::testing::Test::HasFailure()) << "seed " << seed << "\n" << program.fusion().toString() << at;
  }
  EXPECT_GT(steps, static_cast<int>(count));
}

}  // namespace
}  // namespace meshfuse
