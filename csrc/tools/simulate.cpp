// meshfuse simulate: predicts a call of an annotated program on all ranks of a description of machines.
#include "exec/simulate_call.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "autoplan/plan_files.h"
#include "base/error.h"
#include "base/ranges.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "tools/machine_file.h"
#include "tools/options.h"
#include "tools/output_file.h"
#include "tools/page.h"
#include "tools/page_markup.h"
#include "tools/page_sections.h"
#include "tools/program.h"

namespace meshfuse {

namespace {

constexpr int64_t kShownClasses = 16;

std::string percentText(double part) { return fmt::format("{:.2f}%", 100 * std::max(part, 0.0)); }

std::string ranksText(const SimulatedClass& c) {
  return c.ranks == 1 ? fmt::format("rank {}", c.rank) : fmt::format("rank {} and {} like it", c.rank, c.ranks - 1);
}

bool fits(const SimulatedClass& c, double memoryPerDevice) {
  return static_cast<double>(c.peakBytes()) <= memoryPerDevice;
}

std::string orderText(const Simulation& s) {
  if (s.collectives == 0) {
    return "none";
  }
  return s.blocked.empty() ? fmt::format("{} in one order on all ranks, so no rank waits forever",
                                         counted(static_cast<size_t>(s.collectives), "collective"))
                           : fmt::format("ranks wait for each other forever: {}", joined(s.blocked, ", "));
}

double shareOf(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::string reportOf(const Simulation& s, int64_t ranks, double memoryPerDevice) {
  std::string text = fmt::format(
      "simulation of {}: {}, {}\n  time of a call      {}\n  idle                {} of the time of all ranks\n"
      "  collectives         {}\n",
      counted(static_cast<size_t>(ranks), "rank"),
      s.classes.size() == 1 ? "1 class" : fmt::format("{} classes", s.classes.size()),
      counted(s.classes[0].program->steps.size(), "step"), planTime(s.seconds), percentText(s.idle), orderText(s));
  for (const int64_t k : indices(s.classes)) {
    const SimulatedClass& c = s.classes[k];
    if (k == kShownClasses) {
      text += fmt::format("  {} more classes\n", std::ssize(s.classes) - k);
      break;
    }
    text += fmt::format("  {:<27} kernels {:<8} only collectives {:<8} idle {:<8} memory {}\n", ranksText(c),
                        percentText(shareOf(c.kernels, s.seconds)), percentText(shareOf(c.busy - c.kernels, s.seconds)),
                        percentText(c.idle(s.seconds)), planBytes(static_cast<double>(c.peakBytes())));
  }
  if (const auto full = filtered(s.classes, [&](const SimulatedClass& c) { return !fits(c, memoryPerDevice); });
      !full.empty()) {
    text += fmt::format(
        "  {} {} more memory than the {} of a device: {}\n",
        counted(static_cast<size_t>(sumOf(full, &SimulatedClass::ranks)), "rank"),
        full.size() == 1 && full[0].ranks == 1 ? "takes" : "take", planBytes(memoryPerDevice),
        joined(std::span(full).first(std::min<size_t>(full.size(), size_t{kShownClasses})), ", ", ranksText));
  }
  if (s.isOfFirstRanks) {
    text += "  ranks of a class exchange blocks of different sizes: times and memory are those of its first rank\n";
  }
  return text;
}

std::string stepsOf(const Simulation& s) {
  std::string text;
  for (const SimulatedClass& c : s.classes) {
    text += fmt::format("{}\n{:>12} {:>12}  step, in us\n", ranksText(c), "begin", "end");
    for (const int64_t k : indices(c.steps)) {
      text += fmt::format("{:>12.2f} {:>12.2f}  {}\n", c.steps[k].begin * 1e6, c.steps[k].end * 1e6,
                          c.program->steps[k].name);
    }
  }
  return text;
}

nlohmann::ordered_json jsonOf(const Simulation& s, double memoryPerDevice) {
  using Json = nlohmann::ordered_json;
  return {{"seconds", s.seconds},
          {"idle", s.idle},
          {"collectives", s.collectives},
          {"blocked", s.blocked},
          {"isOfFirstRanks", s.isOfFirstRanks},
          {"classes", mapped(s.classes, [&](const SimulatedClass& c) {
             return Json{{"rank", c.rank},
                         {"ranks", c.ranks},
                         {"kernels", c.kernels},
                         {"busy", c.busy},
                         {"idle", c.idle(s.seconds)},
                         {"peakMemory", c.peakBytes()},
                         {"fits", fits(c, memoryPerDevice)}};
           })}};
}

std::vector<TraceSpan> spansOf(const SimulatedClass& c) {
  const auto nanoseconds = [](double seconds) { return static_cast<int64_t>(std::llround(seconds * 1e9)); };
  return mapped(indices(c.steps), [&](int64_t k) {
    const Step& step = c.program->steps[k];
    const bool communicates = step.kind == HostStepKind::Communicate;
    return TraceSpan{.row = communicates ? TraceRow::Collectives : TraceRow::Kernels,
                     .name = step.name,
                     .begin = nanoseconds(c.steps[k].begin),
                     .end = nanoseconds(c.steps[k].end),
                     .step = k,
                     .bytes = communicates ? c.program->sizes().steps[k].comm.bytesReceived : 0,
                     .queue = step.order.queue};
  });
}

std::string pageOfSimulation(std::string_view title, const Simulation& s, int64_t ranks) {
  const std::span<const SimulatedClass> shown(s.classes.data(),
                                              std::min<size_t>(s.classes.size(), size_t{kShownClasses}));
  const auto most = std::ranges::max(mapped(s.classes, [](const SimulatedClass& c) { return c.peakBytes(); }));
  const std::string figures =
      "<div class=\"figures\">\n" +
      figure("ranks", std::to_string(ranks), fmt::format("in {} of equal parts", counted(s.classes.size(), "group"))) +
      figure("time of a call", planTime(s.seconds), "by the cost model") +
      figure("idle", percentText(s.idle), "of the time of all ranks") +
      figure("memory of the fullest rank", bytesMarkup(most), "arguments, results and arena") +
      figure("collectives", std::to_string(s.collectives),
             s.blocked.empty() ? "in one order on all ranks" : "ranks wait for each other forever") +
      "</div>\n";
  PageParts page{.title = title, .by = "simulated by meshfuse", .body = figures};
  if (std::ranges::any_of(shown, [](const SimulatedClass& c) { return !c.steps.empty(); })) {
    page.sections = {"timeline"};
    page.body += timelineSection(
        mapped(shown, spansOf), "One call by the cost model", mapped(shown, [](const SimulatedClass& c) {
          return c.ranks == 1 ? fmt::format("rank {}", c.rank) : fmt::format("{} ranks like {}", c.ranks, c.rank);
        }));
  }
  return pageOf(page);
}

}  // namespace

int64_t simulateRanks(const SimulateOptions& options) {
  const DistributedConfig machines = machineOf(options.machine);
  checkMachines(machines);
  const std::unique_ptr<Fusion> fusion = loadSizedProgram(options.program, machines.devices());
  check(hasMesh(*fusion),
        "[simulate] no tensor is placed on a mesh, expected an annotated program; meshfuse plan {} -o out writes one",
        options.program.file);
  const Simulation s = simulateCall(*fusion, inputShapes(*fusion, options.program), machines);
  const int64_t ranks = machines.devices();
  if (!options.directory.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.directory, error);
    check(!error, "[simulate] cannot make the directory {}: {}; give -o another one", options.directory,
          error.message());
    const std::string title = std::filesystem::path(options.program.file).filename().string();
    writeWhole("simulate", options.directory + "/simulation.html", pageOfSimulation(title, s, ranks));
    writeWhole("simulate", options.directory + "/steps.txt", stepsOf(s));
  }
  fmt::print("{}", options.json ? jsonOf(s, machines.memoryPerDevice).dump(2) + "\n"
                                : reportOf(s, ranks, machines.memoryPerDevice));
  if (!options.directory.empty() && !options.json) {
    fmt::print("wrote {}/simulation.html and steps.txt\n", options.directory);
  }
  invariant(s.blocked.empty(), "[simulate] {}", orderText(s));
  return kSuccess;
}

}  // namespace meshfuse
