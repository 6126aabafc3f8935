// meshfuse explain: what the compiler makes of a program on N ranks, and why. Nothing runs.
#include "exec/explain.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "exec/compile.h"
#include "exec/kernel_compiler.h"
#include "ir/fusion.h"
#include "multidevice/transport/loopback/loopback.h"
#include "tools/explanation_text.h"
#include "tools/program.h"
#include "tools/stand_in_arguments.h"
#include "tools/terminal.h"

namespace meshfuse {

int explainProgram(const ExplainOptions& options) {
  const std::unique_ptr<Fusion> fusion = loadGlobalProgram(options.program);
  const int ranks = virtualRankCount(*fusion, options.ranks);
  const std::vector<Argument> arguments = standInArguments(*fusion, options.program);
  std::vector<Explanation> ofRank(static_cast<size_t>(ranks));
  runLoopback(ranks, [&](Communicator& comm) {
    std::unique_ptr<Fusion> own = fusion->clone();
    ofRank[static_cast<size_t>(comm.rank())] =
        explain(compile(*own, arguments, comm, {.compile = standInKernels}), comm.rank());
  });
  // ranks differ only in what they receive
  Explanation explanation = ofRank[0];
  for (const Explanation& other : ofRank) {
    for (size_t k = 0; k < explanation.communications.size(); k++) {
      int64_t& bytes = explanation.communications[k].bytesReceived;
      bytes = std::max(bytes, other.communications[k].bytesReceived);
    }
  }
  fmt::print("{}", options.json ? explanationJson(explanation) : explanationText(explanation, Terminal(STDOUT_FILENO)));
  return kSuccess;
}

}  // namespace meshfuse
