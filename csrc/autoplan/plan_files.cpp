// A plan as text, and as files.
#include "autoplan/plan_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "autoplan/autoplan.h"
#include "base/atomic_file.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

constexpr int64_t kShownOps = 20;

void writeFile(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file("autoplan", path.string());
  file.write(text.data(), std::ssize(text));
  file.commit();
}

}  // namespace

std::string planTime(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.4g} us", seconds * 1e6)
         : seconds < 1  ? fmt::format("{:.4g} ms", seconds * 1e3)
                        : fmt::format("{:.4g} s", seconds);
}

std::string planBytes(double bytes) {
  return bytes < 1e6   ? fmt::format("{:.4g} kB", bytes / 1e3)
         : bytes < 1e9 ? fmt::format("{:.4g} MB", bytes / 1e6)
                       : fmt::format("{:.4g} GB", bytes / 1e9);
}

std::string PlannedPipeline::scheduleText() const {
  const std::string order = !hasBackward ? "forward" : virtualStages == 1 ? "1F1B" : "interleaved 1F1B";
  return virtualStages == 1 ? order : fmt::format("{}, {} virtual stages each", order, virtualStages);
}

std::string PlannedStage::devicesText() const {
  const int64_t last = firstDevice + mesh.numDevices() - 1;
  const std::string sizes = joined(mesh.axisSizes(), "x", [](int64_t n) { return std::to_string(n); });
  return mesh.numDevices() == 1 ? fmt::format("{}", firstDevice)
                                : fmt::format("{} to {} as {}", firstDevice, last, sizes);
}

namespace {

// `plan`: seconds without a pipeline.
std::string textOf(const PlannedPipeline& p, double plan) {
  if (p.stages.empty()) {
    return fmt::format("pipeline of {} micro-batches: none fits in memory\n", p.microBatches);
  }
  std::string text =
      fmt::format("pipeline of {} micro-batches: {} stages, {}\n", p.microBatches, p.stages.size(), p.scheduleText());
  text += fmt::format(
      "  time of a call      {}, {:+.2f}% against the plan above, at most {:.2f}% above the best pipeline\n",
      planTime(p.seconds), 100 * (p.seconds / std::max(plan, 1e-30) - 1), 100 * p.gap());
  text += fmt::format("  idle                {:.2f}% of the time of all devices\n", 100 * p.idle);
  for (const int64_t k : indices(p.stages)) {
    const PlannedStage& s = p.stages[k];
    text += fmt::format("  stage {:<3} devices {:<18} forward {:<12}", k, s.devicesText(), planTime(s.forward));
    text += p.hasBackward ? fmt::format("backward {:<12}update {:<12}", planTime(s.backward), planTime(s.update)) : "";
    text += fmt::format("memory {:<10} {} ops, {}\n", planBytes(s.memory), s.numOps, joined(s.ops, ", "));
  }
  return text + "  not executed yet: the annotated program is the plan above, without a pipeline\n";
}

}  // namespace

std::string AutoPlan::text() const {
  std::string text = fmt::format("plan on mesh {}\n", meshText(mesh));
  text +=
      fmt::format("  time of a call      {}, at most {:.2f}% above the best plan\n", planTime(seconds), 100 * gap());
  if (timeLimitReached) {
    text += "                      the time limit ended the search; a longer one may find a better plan\n";
  }
  text += fmt::format("  bytes received      {} on a device\n", planBytes(commBytes));
  text += fmt::format("  peak memory         {} on a device\n", planBytes(peakMemory));
  text += "shardings\n";
  for (const PlannedTensor& t : pins) {
    text += fmt::format("  {:<6} {:<24}{}\n", t.name, t.sharding,
                        t.byUser     ? "as annotated"
                        : t.nextBest ? fmt::format("next best {}, {:+.2f}%", planTime(*t.nextBest),
                                                   100 * (*t.nextBest / std::max(seconds, 1e-30) - 1))
                                     : "");
  }
  std::vector<PlannedOp> byTime = ops;
  std::ranges::stable_sort(byTime, std::greater<>(), [](const PlannedOp& op) { return op.compute + op.communication; });
  const int64_t shown = std::min(kShownOps, std::ssize(byTime));
  text += fmt::format("ops that take longest, {} of {}\n", shown, byTime.size());
  for (const PlannedOp& op : byTime | std::views::take(shown)) {
    text += fmt::format("  {:<28} compute {:<12} communication {:<12} {}\n", op.name, planTime(op.compute),
                        planTime(op.communication), op.strategy);
  }
  if (!ideas.empty()) {
    text += "best plan if inputs are sharded in one way only\n";
  }
  for (const PlannedIdea& idea : ideas) {
    text += fmt::format("  {:<10} {}\n", idea.name,
                        idea.seconds ? planTime(*idea.seconds) : "none that is possible and fits");
  }
  return text + (pipeline ? textOf(*pipeline, seconds) : "");
}

void writePlan(const std::filesystem::path& folder, const Fusion& annotated, const AutoPlan& plan) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, "[autoplan] cannot create {}: {}; give another folder", folder.string(), error.message());
  writeFile(folder / "plan.fir", annotated.toString());
  writeFile(folder / "plan.txt", plan.text());
}

}  // namespace meshfuse
