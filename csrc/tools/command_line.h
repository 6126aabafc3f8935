// The command line as data: flags, help and exit codes.
#pragma once

#include <string>
#include <variant>

#include "tools/options.h"

namespace meshfuse {

// The help or the version, as asked for.
struct PrintedText {
  std::string text;
};

using Command = std::variant<RunOptions, ExplainOptions, OptOptions, EmitOptions, BlameOptions, AutoPlanOptions,
                             SimulateOptions, CalibrateOptions, CapabilitiesOptions, PrintedText>;

// The subcommand with its options. `argv[0]` is the name of the program. UserError for an unknown subcommand or flag, a missing or
// malformed value, a number beyond 64 bits and a negative seed.
[[nodiscard]] Command readCommandLine(int argc, const char* const* argv);

}  // namespace meshfuse
