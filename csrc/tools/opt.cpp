// meshfuse opt: runs named passes on a program, text in, text out.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "base/error.h"
#include "base/ranges.h"
#include "device/device.h"
#include "device/open.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "localize/localize.h"
#include "preseg_passes/concretize.h"
#include "preseg_passes/specialize.h"
#include "preseg_passes/table.h"
#include "segment/local_context.h"
#include "segment/table.h"
#include "tools/program.h"

namespace meshfuse {

namespace {

constexpr std::string_view kSpecialize = "specialize";
constexpr std::string_view kConcretize = "concretize";
constexpr std::string_view kLocalize = "localize";
constexpr std::string_view kAll = "all";

std::string pipeline() {
  return fmt::format(
      "{}: before all passes, or after propagate-shardings; not part of all: gives sizes to mesh axes whose size is a "
      "symbol\n"
      "{}: before all passes: binds the sizes of the inputs, so that all shapes are static\n{}{}: after the passes "
      "over the global program: makes the program of one rank, with the coordinates of the rank as symbols\n{}",
      kSpecialize, kConcretize, printPasses(presegPasses()), kLocalize, printPasses(localPasses()));
}

std::vector<std::string_view> namesOfAll() {
  std::vector<std::string_view> names{kConcretize};
  append(names, passNames(presegPasses()));
  names.push_back(kLocalize);
  append(names, passNames(localPasses()));
  return names;
}

// The passes up to number `last` of `known` are in pipeline order from the first pass of a stage, before which concretize may stand.
bool isInOrder(std::span<const std::string_view> passes, std::span<const std::string_view> known, int64_t last) {
  const int64_t first = last + 1 - std::ssize(passes);
  const bool isStart = first == 0 || first == 1 || (first > 0 && known[first - 1] == kLocalize);
  return isStart && std::ranges::equal(passes, known.subspan(first, passes.size()));
}

// `values`: of size symbols of the program as it was read.
std::unique_ptr<Fusion> apply(std::string_view pass, std::unique_ptr<Fusion> fusion, LocalContext& local,
                              const ProgramOptions& options, const std::map<std::string, int64_t>& values) {
  if (pass == kSpecialize) {
    return specialize(*fusion, meshSizes(options));
  }
  if (pass == kConcretize) {
    return concretize(*fusion, inputShapes(*fusion, options));
  }
  if (pass == kLocalize) {
    return localize(*fusion);
  }
  const auto rows = localPasses();
  if (const auto row = std::ranges::find(rows, pass, &PassRow<Fusion, LocalContext>::name); row != rows.end()) {
    const PassRunner<Fusion, LocalContext> runner{.stage = "opt",
                                                  .print = [&](const Fusion& f) { return toText(f, local); },
                                                  .verify = [](const Fusion& f) { return verify(f); }};
    runner.run({&*row, 1}, *fusion, local);
  } else {
    runPass(*fusion, pass, values);
  }
  return fusion;
}

// The whole pipeline is for axes of given sizes, as that of a run.
std::unique_ptr<Fusion> loadPipelineInput(const ProgramOptions& options) {
  std::unique_ptr<Fusion> fusion = loadProgram(options);
  const MeshSizes sizes = meshSizes(options);
  for (const std::string& axis : openAxes(*fusion)) {
    check(sizes.contains(axis), "[opt] mesh axis {} of {} has no size; give it: --mesh {}=4", axis, options.file, axis);
  }
  return openAxes(*fusion).empty() ? std::move(fusion) : loadSizedProgram(options, std::nullopt);
}

}  // namespace

int64_t optimizeProgram(const OptOptions& options) {
  if (options.printPipeline) {
    fmt::print("{}", pipeline());
    return kSuccess;
  }
  const std::vector<std::string_view> known = namesOfAll();
  check(!options.passes.empty(), "[opt] no pass given; --pass expects names separated by commas, of: {}, or all",
        fmt::join(known, ", "));
  std::vector<std::string_view> passes;
  for (const std::string& pass : options.passes) {
    if (pass == kAll) {
      append(passes, known);
      continue;
    }
    check(pass == kSpecialize || contains(known, pass), "[opt] there is no pass \"{}\"; there are: {}, {}, and all",
          pass, fmt::join(known, ", "), kSpecialize);
    passes.push_back(pass);
  }
  const bool whole = options.passes.front() == kAll;
  std::unique_ptr<Fusion> fusion = whole ? loadPipelineInput(options.program) : loadProgram(options.program);
  // layouts and device of contiguous arguments on this machine
  LocalContext local{.device = openDevice(DeviceId::cpu(), {.threads = 1})->info()};
  const std::map<std::string, int64_t> values =
      options.program.sizes.empty() ? std::map<std::string, int64_t>() : symbolSizes(*fusion, options.program);
  for (int64_t k = 0; k < std::ssize(passes); k++) {
    const std::vector<std::string> open = openAxes(*fusion);
    try {
      fusion = apply(passes[k], std::move(fusion), local, options.program, values);
    } catch (const InternalError& e) {
      check(open.empty(),
            "[opt] {} cannot be applied while mesh axes have no sizes: {}; give them: --mesh {}=4, and --pass={} "
            "before it",
            passes[k], fmt::join(open, ", "), open.empty() ? "" : open[0], kSpecialize);
      // in pipeline order it is a bug of the pass
      const auto place = std::ranges::find(known, passes[k]);
      if (place == known.end() || isInOrder(std::span(passes).first(k + 1), known, place - known.begin())) {
        throw;
      }
      throwUserError(
          fmt::format("[opt] {} cannot be applied to this program: {}\nit may rely on passes before it: --pass={}",
                      passes[k], e.what(), fmt::join(known.begin(), place + 1, ",")));
    }
  }
  fmt::print("{}", toText(*fusion, local));
  return kSuccess;
}

}  // namespace meshfuse
