// Found pipelines against the enumeration of all pipelines of small programs, whose schedules are simulated event by event.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "autoplan/micro_batches.h"
#include "autoplan/pipeline.h"
#include "autoplan/pipeline_programs.h"
#include "autoplan/program_parts.h"
#include "autoplan/simulated_pipeline.h"
#include "autoplan/stage_costs.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

constexpr int64_t kRandomPipelines = kSanitized ? 10 : 50;
constexpr double kNoPipeline = std::numeric_limits<double>::infinity();

PlanGraph graphOfEvenBlocks(const Fusion& fusion, const DistributedConfig& machines, const DeviceMesh& mesh) {
  return planGraph(fusion, machines, mesh, Division::Even);
}

// All cuts, devices, and schedules.
class EveryPipeline {
 public:
  EveryPipeline(StageCosts& costs, const ProgramParts& parts, const DistributedConfig& machines, int64_t microBatches)
      : costs_(costs), parts_(parts), machines_(machines), microBatches_(microBatches) {}

  double least() {
    for (int64_t v = 1; v <= kMostVirtualStages; v++) {
      for (int64_t groups = 2; groups <= machines_.devices(); groups++) {
        schedule_ = {groups, v, microBatches_, parts_.hasBackward};
        if (v == 1 || (machines_.devices() % groups == 0 && microBatches_ % groups == 0)) {
          chooseDevices({});
        }
      }
    }
    return least_;
  }
  int64_t pipelines() const { return pipelines_; }

 private:
  void chooseDevices(const std::vector<int64_t>& devices) {
    const int64_t used = sumOf(devices);
    if (std::ssize(devices) == schedule_.groups) {
      if (used == machines_.devices()) {
        chooseEnds(devices, {});
      }
      return;
    }
    for (int64_t n = 1; used + n <= machines_.devices(); n++) {
      // on one machine, a power of two at a multiple of itself; or on whole machines
      const int64_t d = machines_.devicesPerMachine;
      const bool isPower = (n & (n - 1)) == 0;
      const bool fits = n < d ? isPower && used % n == 0 : isPower && n % d == 0 && used % d == 0;
      const bool isEqual = schedule_.virtualStages == 1 || n * schedule_.groups == machines_.devices();
      if (fits && isEqual) {
        std::vector<int64_t> more = devices;
        more.push_back(n);
        chooseDevices(more);
      }
    }
  }

  void chooseEnds(const std::vector<int64_t>& devices, const std::vector<int64_t>& ends) {
    if (std::ssize(ends) == schedule_.stages()) {
      if (ends.back() == parts_.count) {
        price(devices, ends);
      }
      return;
    }
    for (int64_t end = ends.empty() ? 1 : ends.back() + 1; end <= parts_.count; end++) {
      std::vector<int64_t> more = ends;
      more.push_back(end);
      chooseEnds(devices, more);
    }
  }

  void price(const std::vector<int64_t>& devices, const std::vector<int64_t>& ends) {
    pipelines_++;
    const auto turns = turnsByHand(schedule_);
    std::vector<StageSeconds> seconds;
    for (int64_t k = 0; k < std::ssize(ends); k++) {
      const int64_t group = k % schedule_.groups;
      const auto machineOf = [&](int64_t stage) {  // of the last device of a stage, and of the first one
        const int64_t g = stage % schedule_.groups;
        const int64_t first = sumOf(std::vector<int64_t>(devices.begin(), devices.begin() + g));
        return std::pair{(first + devices[g] - 1) / machines_.devicesPerMachine, first / machines_.devicesPerMachine};
      };
      const auto link = [&](int64_t from, int64_t to) {
        return machineOf(from).first == machineOf(to).second ? StageLink::Within : StageLink::Between;
      };
      int64_t now = 0;
      int64_t inFlight = 1;
      for (const PipelineTurn& turn : turns[group]) {
        now += turn.stage != k ? 0 : turn.isBackward ? -1 : 1;
        inFlight = schedule_.hasBackward ? std::max(inFlight, now) : 1;
      }
      const auto& plan =
          costs_.of({.begin = k == 0 ? 0 : ends[k - 1],
                     .end = ends[k],
                     .devices = devices[group],
                     .before = k == 0 ? StageLink::None : link(k - 1, k),
                     .after = k + 1 == std::ssize(ends) ? StageLink::None : link(k, k + 1),
                     .inFlight = inFlight,
                     .memory = machines_.memoryPerDevice / static_cast<double>(schedule_.virtualStages)});
      if (!plan) {
        return;
      }
      seconds.push_back(plan->seconds);
    }
    least_ = std::min(least_, simulated(schedule_, seconds));
  }

  StageCosts& costs_;
  const ProgramParts& parts_;
  const DistributedConfig& machines_;
  const int64_t microBatches_;
  PipelineSchedule schedule_;
  int64_t pipelines_ = 0;
  double least_ = kNoPipeline;
};

TEST(SearchPipeline, AgreesWithTheEnumerationOfAllPipelinesOfRandomPrograms) {
  int64_t pipelines = 0;
  int64_t limited = 0;
  int64_t interleaved = 0;
  int64_t refused = 0;
  for (uint32_t seed = 0; seed < kRandomPipelines; seed++) {
    std::mt19937 rng(seed);
    const auto between = [&](double low, double high) {
      return low * std::pow(high / low, static_cast<double>(rng() % 1000) / 1000);
    };
    const auto microBatchesOf = [&] { return int64_t{2} + static_cast<int64_t>(rng() % 5); };
    const int64_t count = microBatchesOf();
    DeepSizes sizes{
        .layers = 2 + static_cast<int64_t>(rng() % 3), .batch = count * (int64_t{4} << (rng() % 6)), .widths = {}};
    sizes.features = int64_t{8} << (rng() % 6);
    for (int64_t k = 0; k < sizes.layers; k++) {
      sizes.widths.push_back(int64_t{8} << (rng() % 7));
    }
    const std::pair<int64_t, int64_t> shapes[] = {{1, 2}, {2, 1}, {1, 4}, {2, 2}, {4, 1}};
    const auto [machineCount, devices] = shapes[rng() % 5];
    const double flops = between(1e9, 1e13);
    DistributedConfig machines{
        .machines = machineCount,
        .devicesPerMachine = devices,
        .within = {.bandwidth = between(1e9, 1e12), .latency = between(1e-7, 1e-5)},
        .between = {.bandwidth = 1e9, .latency = between(1e-7, 1e-4)},
        .memoryPerDevice = 1e15,
        .device = {.flops = flops, .flops16 = 2 * flops, .bandwidth = between(1e9, 1e12), .launch = 1e-7}};
    const auto program = rng() % 3 == 0 ? deepForward(sizes) : deepTraining(sizes);
    const MicroBatches micro = microBatches(*program, count);
    const ProgramParts parts = programParts(micro);
    const auto compare = [&]() -> std::optional<FoundPipeline> {
      StageCosts costs(micro, parts, machines, graphOfEvenBlocks, Deadline::max());
      const std::optional<FoundPipeline> found = searchPipeline(costs, parts, machines, {.microBatches = count});
      EveryPipeline every(costs, parts, machines, count);
      const double least = every.least();
      pipelines += every.pipelines();
      EXPECT_EQ(found.has_value(), std::isfinite(least)) << seed;
      if (found) {
        EXPECT_NEAR(found->seconds, least, 1e-9 * least)
            << seed << " " << found->schedule.groups << " x " << found->schedule.virtualStages << "\n"
            << program->toString();
        EXPECT_LE(found->bound, least * (1 + 1e-9)) << seed;
        interleaved += found->schedule.virtualStages > 1 ? 1 : 0;
      }
      return found;
    };
    const std::optional<FoundPipeline> fastest = compare();
    if (!fastest || HasFailure()) {
      break;
    }
    double peak = 0;
    for (int64_t group = 0; group < fastest->schedule.groups; group++) {
      double sum = 0;
      for (int64_t stage = group; stage < fastest->schedule.stages(); stage += fastest->schedule.groups) {
        sum += fastest->plans[stage].peak;
      }
      peak = std::max(peak, sum);
    }
    machines.memoryPerDevice = (0.7 + 0.03 * static_cast<double>(rng() % 10)) * peak;
    (compare() ? limited : refused)++;
    if (HasFailure()) {
      break;
    }
  }
  EXPECT_GT(pipelines, 40 * kRandomPipelines);
  EXPECT_GT(limited, kRandomPipelines / 8);
  EXPECT_GT(refused, kRandomPipelines / 8);
  EXPECT_GT(interleaved, kRandomPipelines / 50);
}

}  // namespace
}  // namespace meshfuse
