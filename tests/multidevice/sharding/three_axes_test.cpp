// Plans between random placements on a mesh of three axes: short, within the memory of their ends, and the same in every process.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>

#include "base/hash.h"
#include "multidevice/sharding/plan_check.h"
#include "multidevice/sharding/planner.h"
#include "multidevice/sharding/random_pair.h"

namespace meshfuse {
namespace {

constexpr int kPairs = 200;
const std::vector<int64_t> kExtents{12, 6, 4};

DeviceMesh grid() { return DeviceMesh::create({{"x", 2}, {"y", 3}, {"z", 2}}); }

// Sums only where a plan begins.
std::vector<std::pair<ShardState, ShardState>> randomPairs() {
  std::mt19937 rng(16);
  std::vector<std::pair<ShardState, ShardState>> pairs;
  const DeviceMesh mesh = grid();
  for (int k = 0; k < kPairs; k++) {
    const ShardState from = randomPlacement(rng, mesh, kExtents, {.anyDigit = false, .partial = true});
    pairs.emplace_back(from, randomPlacement(rng, mesh, kExtents, {.anyDigit = false}));
  }
  return pairs;
}

int64_t held(const ShardState& state) { return std::ssize(heldElements(state, kExtents, 0)); }

std::string textOf(const ShardState& from, const ShardState& to, const RedistributionPlan& plan) {
  std::string text =
      fmt::format("{} -> {}: {} elements, peak {}\n", from.toString(), to.toString(), plan.elements, plan.peakState);
  for (const CommStep& step : plan.steps) {
    text += "  " + step.toString() + "\n";
  }
  return text;
}

TEST(ThreeAxes, PlansAreShortAndWithinTheMemoryOfTheirEnds) {
  int partial = 0;
  std::array<int, 5> byLength{};
  for (const auto& [from, to] : randomPairs()) {
    const RedistributionPlan plan = planRedistribution(from, to, {});
    const std::string text = textOf(from, to, plan);
    EXPECT_EQ(plan.note, "") << text;
    EXPECT_LE(plan.peakState, std::max(held(from), held(to))) << text;
    EXPECT_NO_THROW(checkPlan(plan, from, to, std::max(held(from), held(to)))) << text;
    ASSERT_LE(plan.communications().size(), 4U) << text;
    byLength[plan.communications().size()]++;
    partial += from.partial.empty() ? 0 : 1;
  }
  EXPECT_GT(partial, kPairs / 4);
  EXPECT_GT(byLength[2], kPairs / 10) << "the pairs are too easy";
  std::printf("by number of collectives: %d %d %d %d %d\n", byLength[0], byLength[1], byLength[2], byLength[3],
              byLength[4]);
}

// What a process of its own prints: a place in its memory, then all plans as one hash.
TEST(ThreeAxes, PrintPlans) {
  const auto place = std::make_unique<int>();
  std::string all;
  for (const auto& [from, to] : randomPairs()) {
    all += textOf(from, to, planRedistribution(from, to, {}));
  }
  std::printf("\nplans %p %s\n", static_cast<void*>(place.get()), hashText(all).hex().c_str());
}

std::array<std::string, 2> plansOfAProcess() {
  const std::string command =
      "'" + std::filesystem::read_symlink("/proc/self/exe").string() + "' --gtest_filter=ThreeAxes.PrintPlans 2>&1";
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<std::string, 2> found;
  std::array<char, 512> line{};
  while (pipe && std::fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    std::array<char, 128> place{};
    std::array<char, 128> hash{};
    if (std::sscanf(line.data(), "plans %127s %127s", place.data(), hash.data()) == 2) {
      found = {place.data(), hash.data()};
    }
  }
  return found;
}

TEST(ThreeAxes, PlansAreTheSameInEveryProcess) {
  std::set<std::string> places;
  std::set<std::string> plans;
  for (int process = 0; process < 4; process++) {
    const auto [place, hash] = plansOfAProcess();
    ASSERT_FALSE(hash.empty());
    places.insert(place);
    plans.insert(hash);
  }
  EXPECT_EQ(plans.size(), 1U);
  if (places.size() == 1) {
    GTEST_SKIP() << "this machine gives processes the same addresses: that plans depend on them would not show";
  }
}

}  // namespace
}  // namespace meshfuse
