#include "exec/plan_within_memory.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autoplan/plan_files.h"
#include "autoplan/unapplied_plan.h"
#include "base/error.h"
#include "base/ranges.h"
#include "device/open.h"
#include "exec/abstract_inputs.h"
#include "exec/assumed_ranks.h"
#include "exec/compile.h"
#include "exec/compile_planned.h"
#include "exec/explain.h"
#include "exec/rank_classes.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "preseg_passes/specialize.h"

namespace meshfuse {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTries = 8;         // limits of the model, before the least one
constexpr int64_t kMostRanks = 8;     // that are compiled, if ranks differ
constexpr int64_t kNamedTensors = 5;  // in an error
constexpr double kRounding = 1e-9;
constexpr double kLeastSeconds = 0.01;  // of a search after the time has ended
constexpr double kLastSeconds = 5;      // at least, for the plan of least memory

struct Peak {
  double bytes = 0;
  int64_t rank = 0;
  std::shared_ptr<const CompiledProgram> program;
};

// In the fullest step.
std::vector<ExplainedBuffer> largestBuffers(const Peak& peak) {
  const std::vector<ExplainedBuffer> buffers = explain(*peak.program, peak.rank).buffers;
  const auto bytesIn = [&](int64_t step) {
    return sumOf(buffers,
                 [&](const ExplainedBuffer& b) { return b.firstStep <= step && step <= b.lastStep ? b.bytes : 0; });
  };
  const int64_t fullest = *std::ranges::max_element(indices(peak.program->host->steps), {}, bytesIn);
  std::vector<ExplainedBuffer> alive =
      filtered(buffers, [&](const ExplainedBuffer& b) { return b.firstStep <= fullest && fullest <= b.lastStep; });
  std::ranges::stable_sort(alive, std::greater(), &ExplainedBuffer::bytes);
  alive.resize(std::min<size_t>(alive.size(), kNamedTensors));
  return alive;
}

// The first rank of each class, then the others.
std::vector<int64_t> inOrder(const RankClasses& classes) {
  std::vector<int64_t> order = classes.firstRanks;
  for (const int64_t rank : indices(classes.classOf)) {
    if (!contains(classes.firstRanks, rank)) {
      order.push_back(rank);
    }
  }
  return order;
}

// Of the fullest rank.
class CompiledPeaks {
 public:
  CompiledPeaks(const DistributedConfig& machines, const OptimizationConfig& wishes)
      : devices_(machines.devices()), wishes_(wishes) {}

  // Of an annotated program.
  Peak of(const Fusion& annotated) const {
    const bool hasSizes = wishes_.sizes.empty() && openAxes(annotated).empty();
    const std::unique_ptr<Fusion> made = hasSizes ? nullptr : withSizes(annotated);
    const Fusion& sized = hasSizes ? annotated : *made;
    const auto shapes = mapped(sized.inputs(), [](const Val* in) {
      return in->isTensor() ? in->asTensor()->constantShape() : std::vector<int64_t>();
    });
    return fullest([&](int64_t rank) {
      AssumedRanks assumed(devices_, rank);
      return compile(sized, abstractInputs(sized, shapes, rank), Agreement(assumed).call(), device_, {.verify = false});
    });
  }

  // The same, from where the search of a plan ended; the passes that follow change the program.
  Peak of(const PropagatedProgram& propagated) const {
    const auto planned = planPropagated(propagated.program, *propagated.context);
    return fullest([&](int64_t rank) { return compilePlanned(planned, rank, devices_, device_); });
  }

 private:
  Peak fullest(const std::function<CompiledProgram(int64_t rank)>& compileFor) const {
    Peak peak;
    std::vector<int64_t> ranks{0};
    int64_t classes = 1;
    bool differ = false;
    for (int64_t k = 0; k < std::min(differ ? devices_ : classes, kMostRanks); k++) {
      const int64_t rank = ranks[k];
      const auto compiled = std::make_shared<const CompiledProgram>(compileFor(rank));
      const auto bytes = static_cast<double>(compiled->host->sizes().peakBytes);
      if (bytes > peak.bytes) {
        peak = {bytes, rank, compiled};
      }
      if (k == 0) {
        const RankClasses all = rankClasses(*compiled->program.planned, devices_);
        classes = std::ssize(all.firstRanks);
        ranks = inOrder(all);
        differ = mayExchangeUnlikeBlocks(*compiled->program.planned);
      }
    }
    return peak;
  }

  std::unique_ptr<Fusion> withSizes(const Fusion& annotated) const {
    if (openAxes(annotated).empty()) {
      return concretize(annotated, wishes_.sizes);
    }
    MeshSizes given;
    for (const DeviceMesh::Axis& axis : wishes_.mesh) {
      if (axis.size) {
        given[axis.name] = *axis.size;
      }
    }
    return concretize(*specialize(annotated, sizesForRanks(annotated, devices_, given), &annotated), wishes_.sizes);
  }

  const int64_t devices_;
  const OptimizationConfig& wishes_;
  const std::shared_ptr<Device> device_ = openDevice(DeviceId::cpu(), {.threads = 1, .compiles = false});
};

// `again`: of a search that reports more. If the time ended it at another plan, its alternatives are not those of `plan`.
void addReport(AutoPlan& plan, AutoPlan again) {
  const auto isSame = [](const PlannedTensor& a, const PlannedTensor& b) {
    return a.id == b.id && a.placement == b.placement;
  };
  if (again.mesh == plan.mesh && std::ranges::equal(again.pins, plan.pins, isSame)) {
    plan.pins = std::move(again.pins);
    plan.ideas = std::move(again.ideas);
  }
  plan.pipeline = std::move(again.pipeline);
  plan.timeLimitReached |= plan.pipeline && plan.pipeline->timeLimitReached;
}

// The order of steps of the compiled program keeps it, and a smaller one that the program has.
void setMemory(Fusion& fusion, double bytes) {
  constexpr double kMost = 1e18;
  PlannerSettings settings = fusion.planner();
  const auto most = static_cast<int64_t>(std::min(bytes, kMost));
  settings.memory = std::min(settings.memory.value_or(most), most);
  fusion.setPlanner(std::move(settings));
}

struct Attempt {
  AutoPlan plan;
  Peak peak;
};

// `bound`: no plan of the model takes fewer bytes. `isCutShort`: by the time limit.
[[noreturn]] void refuse(const Attempt& least, double memory, double bound, bool isCutShort) {
  throwUserError(fmt::format(
      "[autoplan] no plan {}: compiled, the smallest takes {:.4g} on rank {}, on mesh {}; its largest tensors, in "
      "bytes on a device: {}; {}add devices or memory, or make these tensors smaller",
      bound > memory ? fmt::format("fits in memoryPerDevice, {:.4g} bytes", memory)
                     : fmt::format("that fits in memoryPerDevice, {:.4g} bytes, was found", memory),
      least.peak.bytes, least.peak.rank, meshText(least.plan.mesh),
      joined(largestBuffers(least.peak), ", ",
             [](const ExplainedBuffer& b) { return fmt::format("{} {}", b.tensor, b.bytes); }),
      isCutShort && bound <= memory ? "raise maxSeconds, " : ""));
}

}  // namespace

AutoPlan planWithinMemory(Fusion& fusion, const DistributedConfig& machines, const OptimizationConfig& wishes,
                          const std::filesystem::path& outDir) {
  checkMachines(machines);
  const auto start = Clock::now();
  const auto sinceStart = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const CompiledPeaks peaks(machines, wishes);
  const std::unique_ptr<Fusion> withLimit = fusion.clone();
  setMemory(*withLimit, machines.memoryPerDevice);
  const bool reportsMore = wishes.alternatives || wishes.microBatches || wishes.stages;
  bool isLast = false;
  const auto attempt = [&](double limit, bool withReport) {
    DistributedConfig limited = machines;
    limited.memoryPerDevice = limit;
    OptimizationConfig own = wishes;
    if (!withReport) {
      own.alternatives = false;
      own.microBatches = own.stages = std::nullopt;
    }
    own.maxSeconds =
        std::max(wishes.maxSeconds - sinceStart(), isLast ? kLastSeconds : std::min(wishes.maxSeconds, kLeastSeconds));
    return unappliedPlan(*withLimit, limited, own);
  };
  const auto peakOf = [&](const UnappliedPlan& found) {
    if (found.propagated) {
      return peaks.of(*found.propagated);
    }
    const std::unique_ptr<Fusion> annotated = withLimit->clone();
    applyPlan(*annotated, found.plan, machines);
    return peaks.of(*annotated);
  };
  std::optional<Attempt> least;  // in memory
  double bound = 0;
  double limit = machines.memoryPerDevice;
  bool isCutShort = false;
  std::optional<NoPlanFits> refused;
  for (int64_t k = 0; k < kTries + 2; k++) {
    isCutShort |= k > 0 && !isLast && sinceStart() > wishes.maxSeconds;
    if (!isLast && (isCutShort || k >= kTries)) {
      limit = 1;  // byte: the refusal says what the least plan takes
    }
    UnappliedPlan found;
    try {
      found = attempt(limit, false);
    } catch (const NoPlanFits& refusal) {
      if (isLast && !least) {
        throw *refused;
      }
      if (isLast) {
        break;
      }
      isLast = true;
      isCutShort |= sinceStart() > wishes.maxSeconds;
      refused = refusal;
      limit = refusal.least * (1 + kRounding);
      continue;
    }
    bound = bound == 0 ? found.plan.bound : std::min(bound, found.plan.bound);
    Peak peak = peakOf(found);
    Attempt next{std::move(found.plan), std::move(peak)};
    const bool fits = next.peak.bytes <= machines.memoryPerDevice;
    if (fits && reportsMore && (wishes.microBatches || !next.plan.timeLimitReached)) {
      try {
        addReport(next.plan, attempt(limit, true).plan);
      } catch (const NoPlanFits&) {  // the time was too short to find the plan again
      }
    }
    limit = std::min(limit, next.plan.peakMemory) * machines.memoryPerDevice / next.peak.bytes;
    if (!least || next.peak.bytes < least->peak.bytes) {
      least = std::move(next);
    }
    if (fits || isLast) {
      break;
    }
  }
  if (least->peak.bytes > machines.memoryPerDevice) {
    refuse(*least, machines.memoryPerDevice, refused ? refused->bound : 0, isCutShort);
  }
  AutoPlan plan = std::move(least->plan);
  plan.peakMemory = least->peak.bytes;
  plan.bound = bound;
  plan.timeLimitReached |= isCutShort;
  plan.search = sinceStart();
  applyPlan(*withLimit, plan, machines);  // an error leaves `fusion` unchanged
  if (!outDir.empty()) {
    writePlan(outDir, *withLimit, plan);
  }
  setMemory(fusion, machines.memoryPerDevice);
  applyPlan(fusion, plan, machines);
  plan.search = sinceStart();
  return plan;
}

}  // namespace meshfuse
