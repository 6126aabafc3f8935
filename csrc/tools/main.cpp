// meshfuse: runs the subcommand of the command line, and prints errors with their exit codes.
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>
#include <variant>

#include "base/error.h"
#include "exec/dumped_passes.h"
#include "tools/command_line.h"
#include "tools/terminal.h"

namespace meshfuse {

namespace {

struct Execution {
  int64_t operator()(const RunOptions& o) const { return runProgram(o); }
  int64_t operator()(const ExplainOptions& o) const { return explainProgram(o); }
  int64_t operator()(const OptOptions& o) const { return optimizeProgram(o); }
  int64_t operator()(const EmitOptions& o) const { return compileProgram(o); }
  int64_t operator()(const BlameOptions& o) const { return blameRanks(o); }
  int64_t operator()(const AutoPlanOptions& o) const { return planProgram(o); }
  int64_t operator()(const SimulateOptions& o) const { return simulateRanks(o); }
  int64_t operator()(const CalibrateOptions& o) const { return calibrateMachine(o); }
  int64_t operator()(const CapabilitiesOptions& o) const { return listCapabilities(o); }
  int64_t operator()(const PrintedText& o) const {
    fmt::print("{}", o.text);
    return kSuccess;
  }
};

int64_t execute(const Command& command) {
  if (!std::holds_alternative<PrintedText>(command)) {
    checkDumpedPasses();
  }
  const int64_t code = std::visit(Execution(), command);
  const bool isWritten = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  deviceCheck(isWritten, "[command line] cannot write to standard output: {}", std::strerror(errno));
  return code;
}

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) {
  using namespace meshfuse;
  const Terminal terminal(STDERR_FILENO);
  auto say = [&](std::string_view kind, const char* what) {
    std::fflush(stdout);
    fmt::print(stderr, "{} {}\n", terminal.bad(fmt::format("meshfuse: {}:", kind)), what);
  };
  try {
    return static_cast<int>(execute(readCommandLine(argc, argv)));
  } catch (const UserError& e) {
    say("error", e.what());
    return kBadInput;
  } catch (const DeviceError& e) {
    say("device error", e.what());
    return kFailure;
  } catch (const std::exception& e) {
    say("internal error", e.what());
    return kFailure;
  }
}
