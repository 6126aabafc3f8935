// meshfuse explain: what the compiler makes of a program on N ranks, and why. Nothing runs unless a timeline is asked for.
#include "exec/explain.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <vector>

#include "base/error.h"
#include "exec/compile.h"
#include "exec/kernel_compiler.h"
#include "exec/symbolic_costs.h"
#include "ir/fusion.h"
#include "multidevice/transport/loopback/loopback.h"
#include "tools/explanation_text.h"
#include "tools/output_file.h"
#include "tools/page.h"
#include "tools/program.h"
#include "tools/stand_in_arguments.h"
#include "tools/terminal.h"
#include "tools/traced_run.h"

namespace meshfuse {

namespace {

// Those of another rank: of the same call the larger number of bytes, and all ranks that any of its ranks meets there.
void addCommunications(std::vector<ExplainedCommunication>& all, const std::vector<ExplainedCommunication>& more) {
  for (const ExplainedCommunication& c : more) {
    const auto same = std::ranges::find(all, c.program, &ExplainedCommunication::program);
    if (same == all.end()) {
      all.push_back(c);
      continue;
    }
    same->bytesReceived = std::max(same->bytesReceived, c.bytesReceived);
    if (c.kind == "transfer") {
      const std::vector<int> known = std::move(same->team);
      same->team.clear();
      std::ranges::set_union(known, c.team, std::back_inserter(same->team));
    }
  }
}

}  // namespace

int explainProgram(const ExplainOptions& options) {
  std::vector<std::string> open;
  const std::unique_ptr<Fusion> fusion = loadSizedProgram(options.program, options.ranks, &open);
  const int ranks = virtualRankCount(*fusion, options.ranks);
  check(!options.json || options.html.empty(),
        "[explain] --json and --html are two forms of one thing; give one of them");
  check(!options.run || options.json || !options.html.empty(), "[explain] --run is for --html and --json");
  std::optional<SymbolicCosts> costs;  // of rank 0
  std::vector<Explanation> ofRank(static_cast<size_t>(ranks));
  runLoopback(ranks, [&](Communicator& comm) {
    std::unique_ptr<Fusion> own = fusion->clone();
    const std::vector<Argument> arguments = standInArguments(*own, options.program, comm.rank());
    const CompiledProgram compiled = compile(*own, arguments, comm, {.compile = standInKernels});
    ofRank[static_cast<size_t>(comm.rank())] = explain(compiled, comm.rank());
    if (comm.rank() == 0 && !open.empty()) {
      costs = symbolicCosts(compiled, open);
    }
  });
  // ranks differ in what they receive, and where parts are uneven in their sizes: rank 0 stands for all
  Explanation explanation = ofRank[0];
  for (const Explanation& other : ofRank) {
    addCommunications(explanation.communications, other.communications);
  }
  std::vector<RankSpans> timeline;
  if (options.run) {
    timeline = traceVirtualRanks(*fusion, inputValues(*fusion, options.program), ranks);
  }
  if (!options.html.empty()) {
    writeOutputFile(options.html, explanationPage({std::filesystem::path(options.program.file).filename().string(),
                                                   explanation, std::move(timeline)}));
    fmt::print("wrote {}\n", options.html);
    return kSuccess;
  }
  fmt::print("{}", options.json ? explanationJson(explanation, timeline)
                                : explanationText(explanation, Terminal(STDOUT_FILENO)));
  if (costs && !options.json) {
    fmt::print(
        "\nby the sizes of {}, where they give these steps\n  bytes that all ranks receive: {}\n  peak bytes of "
        "rank 0: {}\n",
        fmt::join(open, ", "), costs->commBytes.toString(), costs->peakMemory.toString());
    for (const std::string& constant : costs->constants) {
      fmt::print("  as it is here: {}\n", constant);
    }
  }
  return kSuccess;
}

}  // namespace meshfuse
