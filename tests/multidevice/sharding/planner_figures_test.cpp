// How good plans are: bytes against the least that any plan moves, over random pairs on meshes of up to three axes and 64 ranks.
// Every plan is checked on index sets, and no state of a chain is larger than both ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "multidevice/sharding/plan_check.h"
#include "multidevice/sharding/planner.h"
#include "multidevice/sharding/random_pair.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

struct Config {
  DeviceMesh mesh;
  std::vector<int64_t> extents;
};

DeviceMesh meshOf(const std::vector<int64_t>& sizes) {
  std::vector<DeviceMesh::Axis> axes;
  for (size_t i = 0; i < sizes.size(); i++) {
    axes.emplace_back(std::string(1, static_cast<char>('x' + i)), sizes[i]);
  }
  return DeviceMesh::create(axes);
}

std::vector<Config> smallMeshes() {
  return {{meshOf({4}), {16, 8}},         {meshOf({2, 2}), {8, 8}},         {meshOf({2, 3}), {12, 12}},
          {meshOf({4, 2}), {16, 16}},     {meshOf({2, 2, 2}), {8, 8}},      {meshOf({2, 2, 3}), {24, 12}},
          {meshOf({6, 4}), {24, 24}},     {meshOf({2, 3, 2}), {12, 12, 6}}, {meshOf({4, 3, 2}), {24, 24}},
          {meshOf({2, 4, 2}), {16, 8, 4}}};
}

std::vector<Config> largeMeshes() {
  return {{meshOf({4, 4, 4}), {64, 64}}, {meshOf({16, 4}), {64, 64}}, {meshOf({8, 8}), {64, 64}},
          {meshOf({4, 3, 5}), {60, 60}}, {meshOf({32, 2}), {64, 32}}, {meshOf({6, 10}), {60, 60}}};
}

int64_t fullest(const ShardState& state, const std::vector<int64_t>& extents) {
  int64_t n = 1;  // coordinate 0 holds most
  for (size_t k = 0; k < extents.size(); k++) {
    n *= std::ssize(heldIndices(state, k, extents[k], 0));
  }
  return n;
}

struct PlanFigures {
  std::vector<double> ratios;
  int pairs = 0;
  int withoutChain = 0;
  size_t calls = 0;

  double mean() const {
    double sum = 0;
    for (double r : ratios) {
      sum += r;
    }
    return ratios.empty() ? 1 : sum / static_cast<double>(ratios.size());
  }
};

enum class Sums : uint8_t { None, Source, Both };

enum class Digits : uint8_t { Block, Any, Ragged };

ShardState draw(std::mt19937& rng, const Config& config, Digits digits, bool sums) {
  return digits == Digits::Ragged ? randomBlocks(rng, config.mesh, config.extents, sums)
                                  : randomPlacement(rng, config.mesh, config.extents, {digits == Digits::Any, sums});
}

PlanFigures measure(const std::vector<Config>& configs, int rounds, Digits digits, Sums sums, const char* name) {
  PlanFigures f;
  std::mt19937 rng(1);
  PlanOptions options;
  options.alpha = 0.5;
  options.sums = PartialSums::Moved;
  options.direct = DirectChoice::Fallback;
  for (int round = 0; round < rounds / kShareOfPairs; round++) {
    for (const Config& config : configs) {
      const std::vector<int64_t>& extents = config.extents;
      const ShardState from = draw(rng, config, digits, sums != Sums::None);
      const ShardState to = draw(rng, config, digits, sums == Sums::Both);
      const RedistributionPlan plan = planRedistribution(from, to, options);
      const int64_t bound = std::max(fullest(from, extents), fullest(to, extents));
      EXPECT_LE(plan.peakState, bound) << from.toString() << " -> " << to.toString();
      checkPlan(plan, from, to, bound);
      f.pairs++;
      f.calls = std::max(f.calls, plan.communications().size());
      if (!plan.note.empty()) {
        f.withoutChain++;
        continue;
      }
      const double least = leastReceived(from, to, extents);
      if (least == 0 && sums == Sums::None) {
        EXPECT_EQ(plan.elements, 0) << from.toString() << " -> " << to.toString();
      }
      if (least > 0) {
        f.ratios.push_back(static_cast<double>(plan.elements) / least);
      }
    }
  }
  std::sort(f.ratios.begin(), f.ratios.end());
  std::printf(
      "%-42s %5d pairs, %d without a chain, at most %zu calls; bytes over the least: mean %.4f, p90 %.2f, max %.2f\n",
      name, f.pairs, f.withoutChain, f.calls, f.mean(), f.ratios.empty() ? 1 : f.ratios[f.ratios.size() * 9 / 10],
      f.ratios.empty() ? 1 : f.ratios.back());
  return f;
}

// Sizes of even pairs divide: each has a chain.
double meanOfEven(PlanFigures& all, const std::vector<Config>& configs, int rounds, Digits digits, Sums sums,
                  const char* name) {
  const PlanFigures f = measure(configs, rounds, digits, sums, name);
  EXPECT_EQ(f.withoutChain, 0) << name;
  all.pairs += f.pairs;
  return f.mean();
}

// Of all pairs: a mean of few is another.
void expectAtMost(double mean, double limit) {
  if (!kSanitized) {
    EXPECT_LE(mean, limit);
  }
}

TEST(PlannerFigures, BytesOverTheLeast) {
  PlanFigures all;
  const std::vector<Config> small = smallMeshes();
  expectAtMost(meanOfEven(all, small, 120, Digits::Block, Sums::None, "to 24 ranks, block"), 1.01);
  expectAtMost(meanOfEven(all, small, 120, Digits::Any, Sums::None, "to 24 ranks, any digits"), 1.03);
  expectAtMost(meanOfEven(all, small, 120, Digits::Block, Sums::Source, "to 24 ranks, block, sums in the source"),
               1.12);
  expectAtMost(meanOfEven(all, small, 120, Digits::Any, Sums::Source, "to 24 ranks, any digits, sums in the source"),
               1.12);
  meanOfEven(all, small, 120, Digits::Block, Sums::Both, "to 24 ranks, block, sums on both sides");
  meanOfEven(all, small, 120, Digits::Any, Sums::Both, "to 24 ranks, any digits, sums on both sides");
  const std::vector<Config> ragged = {
      {meshOf({4}), {10, 7}},     {meshOf({4, 2}), {10, 7}}, {meshOf({2, 3}), {5, 10}},   {meshOf({2, 2, 2}), {6, 10}},
      {meshOf({3, 4}), {11, 13}}, {meshOf({4}), {1, 6}},     {meshOf({2, 3, 2}), {7, 9}}, {meshOf({4, 3, 2}), {23, 17}},
  };
  all.pairs += measure(ragged, 60, Digits::Ragged, Sums::None, "to 24 ranks, ceil blocks").pairs;
  all.pairs += measure(ragged, 60, Digits::Ragged, Sums::Source, "to 24 ranks, ceil blocks, sums in the source").pairs;
  const std::vector<Config> large = largeMeshes();
  meanOfEven(all, large, 96, Digits::Block, Sums::None, "to 64 ranks, block");
  meanOfEven(all, large, 96, Digits::Any, Sums::None, "to 64 ranks, any digits");
  meanOfEven(all, large, 96, Digits::Block, Sums::Source, "to 64 ranks, block, sums in the source");
  meanOfEven(all, large, 96, Digits::Any, Sums::Source, "to 64 ranks, any digits, sums in the source");
  meanOfEven(all, large, 96, Digits::Any, Sums::Both, "to 64 ranks, any digits, sums on both sides");
  EXPECT_GE(all.pairs, 10000 / kShareOfPairs);
}

}  // namespace
}  // namespace meshfuse
