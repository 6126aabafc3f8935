// meshfuse opt: named passes on a program, text in, text out.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "preseg_passes/concretize.h"
#include "preseg_passes/localize_fusion.h"
#include "preseg_passes/table.h"
#include "tools/program.h"

namespace meshfuse {

namespace {

constexpr std::string_view kConcretize = "concretize";
constexpr std::string_view kLocalize = "localize";
constexpr std::string_view kAll = "all";

std::string pipeline() {
  return fmt::format(
      "{}: before all passes: binds the sizes of the inputs, dynamic structure becomes static\n{}{}: after all passes: "
      "the "
      "program of one rank, the coordinates of ranks as symbols\n",
      kConcretize, printPasses(presegPasses()), kLocalize);
}

std::vector<std::string> namesOfAll() {
  std::vector<std::string> names{std::string(kConcretize)};
  for (const auto& row : presegPasses()) {
    names.emplace_back(row.name);
  }
  names.emplace_back(kLocalize);
  return names;
}

std::unique_ptr<Fusion> apply(std::string_view pass, std::unique_ptr<Fusion> fusion, const ProgramOptions& options) {
  if (pass == kConcretize) {
    return concretize(*fusion, inputShapes(*fusion, options));
  }
  if (pass == kLocalize) {
    return localize(*fusion);
  }
  const auto rows = presegPasses();
  auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.name == pass; });
  const PassRunner<Fusion, PassContext> runner{
      .stage = "opt",
      .print = [](const Fusion& f) { return f.toString(); },
      .verify = [](const Fusion& f) { return verify(f); },
  };
  PassContext context(*fusion);
  runner.run({&*row, 1}, *fusion, context);
  return fusion;
}

}  // namespace

int optimizeProgram(const OptOptions& options) {
  if (options.printPipeline) {
    fmt::print("{}", pipeline());
    return kSuccess;
  }
  const std::vector<std::string> known = namesOfAll();
  check(!options.passes.empty(), "[opt] no pass given; --pass takes names separated by commas, of: {}, or all",
        fmt::join(known, ", "));
  std::vector<std::string> passes;
  for (const std::string& pass : options.passes) {
    if (pass == kAll) {
      passes.insert(passes.end(), known.begin(), known.end());
      continue;
    }
    check(std::find(known.begin(), known.end(), pass) != known.end(),
          "[opt] there is no pass \"{}\"; there are: {}, and all", pass, fmt::join(known, ", "));
    passes.push_back(pass);
  }
  std::unique_ptr<Fusion> fusion = loadProgram(options.program);
  for (const std::string& pass : passes) {
    fusion = apply(pass, std::move(fusion), options.program);
  }
  fmt::print("{}", fusion->toString());
  return kSuccess;
}

}  // namespace meshfuse
