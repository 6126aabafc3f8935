// meshfuse explain: what the compiler makes of a program on N ranks, and why. Nothing runs.
#include "exec/explain.h"

#include <fmt/core.h>
#include <unistd.h>

#include "exec/compile.h"
#include "ir/fusion.h"
#include "multidevice/transport/loopback/loopback.h"
#include "tools/explanation_text.h"
#include "tools/program.h"
#include "tools/stand_in_arguments.h"
#include "tools/terminal.h"

namespace meshfuse {

int explainProgram(const ExplainOptions& options) {
  const std::unique_ptr<Fusion> fusion = loadProgram(options.program);
  const int ranks = rankCount(*fusion, options.ranks);
  const std::vector<Argument> arguments = standInArguments(*fusion, options.program);
  Explanation explanation;
  runLoopback(ranks, [&](Communicator& comm) {
    std::unique_ptr<Fusion> own = fusion->clone();
    CompiledProgram compiled = compile(*own, arguments, comm, {});
    if (comm.rank() == 0) {
      explanation = explain(compiled, 0);
    }
  });
  fmt::print("{}", options.json ? explanationJson(explanation) : explanationText(explanation, Terminal(STDOUT_FILENO)));
  return kSuccess;
}

}  // namespace meshfuse
