// meshfuse explain: the compiler's decisions for a program on N ranks, with reasons. Nothing runs unless --run or --measure asks for it.
#include "exec/explain.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/open.h"
#include "exec/abstract_inputs.h"
#include "exec/compile.h"
#include "exec/symbolic_costs.h"
#include "ir/fusion.h"
#include "multidevice/transport/loopback/loopback.h"
#include "tools/explanation_text.h"
#include "tools/machine_file.h"
#include "tools/output_file.h"
#include "tools/page.h"
#include "tools/program.h"
#include "tools/step_times.h"
#include "tools/terminal.h"
#include "tools/traced_run.h"

namespace meshfuse {

namespace {

// Adds the communications of another rank: of a call that both make, the larger number of bytes and the union of teams.
void addCommunications(std::vector<ExplainedCommunication>& all, const std::vector<ExplainedCommunication>& more) {
  for (const ExplainedCommunication& c : more) {
    const auto same = std::ranges::find(all, c.program, &ExplainedCommunication::program);
    if (same == all.end()) {
      all.push_back(c);
      continue;
    }
    same->bytesReceived = std::max(same->bytesReceived, c.bytesReceived);
    if (c.kind == Collective::Transfer && c.form != BlockForm::Permutation) {
      const std::vector<int64_t> known = std::exchange(same->team, {});
      std::ranges::set_union(known, c.team, std::back_inserter(same->team));
    }
  }
}

// Programs are compiled for it, and nothing runs on it.
std::shared_ptr<Device> deviceToExplain(const std::string& name) {
  return name.starts_with("sm_") ? namedDevice(name)
                                 : openDevice(DeviceId::parse(name), {.threads = 1, .compiles = false});
}

}  // namespace

int64_t explainProgram(const ExplainOptions& options) {
  std::vector<std::string> open;
  const std::unique_ptr<Fusion> fusion = loadSizedProgram(options.program, options.ranks, &open);
  const int64_t ranks = virtualRankCount(*fusion, options.ranks);
  check(!options.json || options.html.empty(), "[explain] got --json and --html, expected one of them");
  check(!options.run || options.json || !options.html.empty(),
        "[explain] --run needs --html or --json; add one of them");
  check(!options.run || options.device == "cpu",
        "[explain] --run runs on the CPU, --device is {}; leave out one of them", options.device);
  check(options.machine.empty() || options.html.empty(), "[explain] got --machine and --html, expected one of them");
  check(!options.measure || options.device == "cpu",
        "[explain] --measure measures the CPU, --device is {}; leave out one of them", options.device);
  const std::optional<DistributedConfig> machines =
      options.machine.empty() ? std::nullopt : std::optional(machineOf(options.machine));
  if (machines) {
    checkMachines(*machines);
  }
  std::optional<StepTimes> times;
  std::optional<SymbolicCosts> costs;  // of rank 0
  std::vector<Explanation> ofRank(ranks);
  runLoopback(ranks, [&](Communicator& comm) {
    std::unique_ptr<Fusion> own = fusion->clone();
    const std::vector<Argument> arguments = abstractInputs(*own, inputShapes(*own, options.program), comm.rank());
    const CompiledProgram compiled = compile(*own, arguments, Agreement(comm).call(), deviceToExplain(options.device));
    ofRank[comm.rank()] = explain(compiled, comm.rank());
    if (comm.rank() == 0 && !open.empty()) {
      costs = symbolicCosts(compiled, open);
    }
    if (comm.rank() == 0 && machines) {
      times = predictTimes(*compiled.host, *machines);
    }
  });
  // ranks may differ in bytes received and in the sizes of uneven shards: the rest of the explanation is that of rank 0
  Explanation explanation = ofRank[0];
  for (const Explanation& other : ofRank) {
    addCommunications(explanation.communications, other.communications);
  }
  if (options.measure) {
    times = measureTimes(*fusion, inputValues(*fusion, options.program), ranks, *machines);
  }
  const Timeline timeline =
      options.run ? traceVirtualRanks(*fusion, inputValues(*fusion, options.program), ranks) : Timeline();
  if (!options.html.empty()) {
    const std::string title = std::filesystem::path(options.program.file).filename().string();
    writeOutputFile(options.html, explanationPage(title, explanation, timeline));
    fmt::print("wrote {}\n", options.html);
    return kSuccess;
  }
  const Terminal terminal(STDOUT_FILENO);
  fmt::print("{}",
             options.json ? explanationJson(explanation, timeline, times) : explanationText(explanation, terminal));
  if (times && !options.json) {
    fmt::print("{}\n{}", terminal.heading("times of rank 0 for " + options.machine), timesText(*times));
  }
  if (costs && !options.json) {
    fmt::print(
        "\nas functions of {}, for all sizes that lead to these steps\n  bytes that all ranks receive: {}\n"
        "  peak bytes of rank 0: {}\n",
        fmt::join(open, ", "), costs->commBytes.toString(), costs->peakMemory.toString());
    for (const std::string& constant : costs->constants) {
      fmt::print("  constant at the current sizes: {}\n", constant);
    }
  }
  return kSuccess;
}

}  // namespace meshfuse
