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
#include "base/error.h"
#include "base/ranges.h"
#include "device/open.h"
#include "exec/abstract_inputs.h"
#include "exec/assumed_ranks.h"
#include "exec/compile.h"
#include "exec/explain.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "preseg_passes/specialize.h"

namespace meshfuse {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kTries = 8;         // limits of the model
constexpr int64_t kMostRanks = 8;     // that are compiled, if ranks differ
constexpr int64_t kNamedTensors = 5;  // in an error
constexpr double kRounding = 1e-9;

struct Peak {
  double bytes = 0;
  int64_t rank = 0;
  std::vector<ExplainedBuffer> largest;  // in the fullest step
};

// Whether the program of another rank may have other sizes: blocks that differ are sent.
bool ranksMayDiffer(const HostProgram& program) {
  return std::ranges::any_of(program.steps, [](const Step& s) {
    return s.kind == HostStepKind::Communicate && (s.comm.kind == Collective::Transfer || !s.comm.received.empty());
  });
}

std::vector<ExplainedBuffer> largestBuffers(const CompiledProgram& compiled, int64_t rank) {
  const std::vector<ExplainedBuffer> buffers = explain(compiled, rank).buffers;
  const auto bytesIn = [&](int64_t step) {
    return sumOf(buffers,
                 [&](const ExplainedBuffer& b) { return b.firstStep <= step && step <= b.lastStep ? b.bytes : 0; });
  };
  const int64_t fullest = *std::ranges::max_element(indices(compiled.host->steps), {}, bytesIn);
  std::vector<ExplainedBuffer> alive =
      filtered(buffers, [&](const ExplainedBuffer& b) { return b.firstStep <= fullest && fullest <= b.lastStep; });
  std::ranges::stable_sort(alive, std::greater(), &ExplainedBuffer::bytes);
  alive.resize(std::min<size_t>(alive.size(), kNamedTensors));
  return alive;
}

// Of the fullest rank.
class CompiledPeaks {
 public:
  CompiledPeaks(const DistributedConfig& machines, const OptimizationConfig& wishes)
      : devices_(machines.devices()), wishes_(wishes) {}

  Peak of(const Fusion& annotated) const {
    const std::unique_ptr<Fusion> sized = withSizes(annotated);
    const auto shapes = mapped(sized->inputs(), [](const Val* in) {
      return in->isTensor() ? in->asTensor()->constantShape() : std::vector<int64_t>();
    });
    Peak peak;
    bool differ = false;
    for (int64_t rank = 0; rank == 0 || (differ && rank < std::min(devices_, kMostRanks)); rank++) {
      AssumedRanks ranks(devices_, rank);
      const CompiledProgram compiled =
          compile(*sized, abstractInputs(*sized, shapes, rank), Agreement(ranks).call(), device_);
      const auto bytes = static_cast<double>(compiled.host->sizes().peakBytes);
      if (bytes > peak.bytes) {
        peak = {bytes, rank, largestBuffers(compiled, rank)};
      }
      differ = differ || ranksMayDiffer(*compiled.host);
    }
    return peak;
  }

 private:
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

struct Attempt {
  std::unique_ptr<Fusion> annotated;
  AutoPlan plan;
  Peak peak;
};

[[noreturn]] void refuse(const Attempt& least, double memory) {
  throwUserError(fmt::format(
      "[autoplan] no plan fits in memoryPerDevice, {:.4g} bytes: compiled, the smallest takes {:.4g} on rank {}, on "
      "mesh "
      "{}; its largest tensors, in bytes on a device: {}; add devices or memory, or make these tensors smaller",
      memory, least.peak.bytes, least.peak.rank, meshText(least.plan.mesh),
      joined(least.peak.largest, ", ",
             [](const ExplainedBuffer& b) { return fmt::format("{} {}", b.tensor, b.bytes); })));
}

}  // namespace

AutoPlan planWithinMemory(Fusion& fusion, const DistributedConfig& machines, const OptimizationConfig& wishes,
                          const std::filesystem::path& outDir) {
  const auto start = Clock::now();
  const auto sinceStart = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const CompiledPeaks peaks(machines, wishes);
  const bool reportsMore = wishes.alternatives || wishes.microBatches || wishes.stages;
  const auto attempt = [&](double limit, bool withReport) {
    DistributedConfig limited = machines;
    limited.memoryPerDevice = limit;
    OptimizationConfig own = wishes;
    if (!withReport) {
      own.alternatives = false;
      own.microBatches = own.stages = std::nullopt;
    }
    own.maxSeconds = std::max(wishes.maxSeconds - sinceStart(), wishes.maxSeconds * 1e-3);
    Attempt result{.annotated = fusion.clone()};
    result.plan = autoParallelize(*result.annotated, limited, own);
    return result;
  };
  std::optional<Attempt> least;  // in memory
  double bound = 0;
  double limit = machines.memoryPerDevice;
  bool isLast = false;
  for (int64_t k = 0; k < kTries; k++) {
    Attempt next;
    try {
      next = attempt(limit, false);
    } catch (const NoPlanFits& refusal) {
      if (isLast && !least) {
        throw;
      }
      if (isLast) {
        break;
      }
      isLast = true;
      limit = refusal.least * (1 + kRounding);
      continue;
    }
    bound = bound == 0 ? next.plan.bound : std::min(bound, next.plan.bound);
    next.peak = peaks.of(*next.annotated);
    const bool fits = next.peak.bytes <= machines.memoryPerDevice;
    if (fits && reportsMore && (wishes.microBatches || !next.plan.timeLimitReached)) {
      next.plan = attempt(limit, true).plan;
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
    refuse(*least, machines.memoryPerDevice);
  }
  AutoPlan plan = std::move(least->plan);
  plan.peakMemory = least->peak.bytes;
  plan.bound = bound;
  plan.search = sinceStart();
  if (!outDir.empty()) {
    writePlan(outDir, *least->annotated, plan);
  }
  applyPlan(fusion, plan, machines);
  return plan;
}

}  // namespace meshfuse
