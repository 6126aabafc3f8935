// meshfuse compile: prints the steps of a program, and writes the kernels as files: tile programs, and the outputs of emitters and compilers.
#include "exec/compile.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/device.h"
#include "device/open.h"
#include "exec/abstract_inputs.h"
#include "ir/fusion.h"
#include "multidevice/transport/communicator.h"
#include "tools/output_file.h"
#include "tools/program.h"
#include "tools/terminal.h"

namespace meshfuse {

namespace {

// A line of text, or a file.
struct Entry {
  std::string text;  // of a file: its name
  std::optional<std::string> bytes = {};
};

// Writes files, once all of them are complete, so that a failure leaves no files. Prints the lines, and the size of each file.
void writeFiles(const std::vector<Entry>& entries, const std::string& directory) {
  const Terminal terminal(STDOUT_FILENO);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  check(!error, "[compile] cannot make the directory {}: {}; give -o another one", directory, error.message());
  for (const auto& [text, bytes] : entries) {
    if (bytes) {
      const std::string path = directory + "/" + text;
      writeOutputFile(path, *bytes);
      fmt::print("  {} ({} bytes)\n", path, bytes->size());
    } else {
      fmt::print("{}\n", terminal.heading(text));
    }
  }
}

// A step without a kernel: "C++ routine scan T8[8, 6]".
std::string stepText(const Segment& step, const Device& device) {
  const Expr& op = step.kind == SegmentKind::Library ? *step.call.op : *step.group.exprs.back();
  const std::string result = op.tensorOutput()->toString();
  const CommAttributes& comm = op.attributes().comm;
  switch (step.kind) {
    case SegmentKind::Library:
      return fmt::format("{} {} {}", device.routineName(op).value_or("no"), op.opName(),
                         step.group.outputs[0]->toString());
    case SegmentKind::Communicate:
      return fmt::format("collective {} {}", callName(comm.kind, comm.form()), result);
    case SegmentKind::View:
      return fmt::format("view {} {}: no code", op.opName(), result);
    case SegmentKind::Reference:
      return fmt::format("interpreter {} {}: some tensor has no elements", op.opName(), result);
    case SegmentKind::Kernel:
      break;
  }
  return "";
}

}  // namespace

int64_t compileProgram(const EmitOptions& options) {
  const std::shared_ptr<Device> device = namedDevice(options.arch);
  const std::unique_ptr<Fusion> fusion = loadSizedProgram(options.program, std::nullopt);
  const std::vector<Argument> arguments = abstractInputs(*fusion, inputShapes(*fusion, options.program));
  const std::unique_ptr<Communicator> alone = makeSelfCommunicator();
  const SegmentedProgram program = compileToSegments(*fusion, arguments, Agreement(*alone).call(), device->info());
  std::vector<Entry> files{{"planned.fir", program.planned->toString()}, {"local.fir", program.local->toString()}};
  for (const Segment& step : program.segments) {
    if (step.kind == SegmentKind::Library) {
      device->expectRoutine(*step.call.op);
    }
  }
  int64_t kernels = 0;
  std::string missing;
  for (const Segment& s : program.segments) {
    if (s.kind != SegmentKind::Kernel) {
      files.push_back({stepText(s, *device)});
      continue;
    }
    const std::string base = fmt::format("{:02}_{}_T{}", kernels++, s.plan.kind, s.group.outputs[0]->id());
    files.push_back({fmt::format("kernel {}: {}", base, joined(s.group.exprs, ", ", &Expr::opName))});
    Device::Listings listings = device->listings(s.plan.program);
    if (!listings.launch.empty()) {
      files.push_back({"  " + listings.launch});
    }
    files.push_back({base + ".tile", tile::toString(s.plan.program)});
    for (Device::Listing& l : listings.files) {
      files.push_back({base + l.suffix, std::move(l.bytes)});
    }
    missing = std::move(listings.missing);
  }
  writeFiles(files, options.directory);
  fmt::print("{} kernel{} for {}\n", kernels, kernels == 1 ? "" : "s", options.arch);
  if (const std::string report = device->compilerReport(); !report.empty()) {
    fmt::print("{}\n", report);
  }
  deviceCheck(missing.empty(), "[compile] {}", missing);
  return kSuccess;
}

}  // namespace meshfuse
