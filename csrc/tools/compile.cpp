// meshfuse compile: writes the kernels of a program as files: tile programs, and the outputs of emitters and compilers.
#include "exec/compile.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "device/device.h"
#include "device/open.h"
#include "ir/fusion.h"
#include "multidevice/transport/communicator.h"
#include "tools/abstract_inputs.h"
#include "tools/output_file.h"
#include "tools/program.h"
#include "tools/terminal.h"

namespace meshfuse {

namespace {

// A file, or a heading over files, which has no bytes.
struct Entry {
  std::string name;
  std::optional<std::string> bytes = {};
};

// Writes files, once all of them are complete, so that a failure leaves no files. Prints the size of each.
void writeFiles(const std::vector<Entry>& entries, const std::string& directory) {
  const Terminal terminal(STDOUT_FILENO);
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  check(!error, "[compile] cannot make the directory {}: {}", directory, error.message());
  for (const auto& [name, bytes] : entries) {
    if (bytes) {
      const std::string path = directory + "/" + name;
      writeOutputFile(path, *bytes);
      fmt::print("  {} ({} bytes)\n", path, bytes->size());
    } else {
      fmt::print("{}\n", terminal.heading(name));
    }
  }
}

}  // namespace

int64_t compileProgram(const EmitOptions& options) {
  const std::shared_ptr<Device> device = namedDevice(options.arch);
  const std::unique_ptr<Fusion> fusion = loadSizedProgram(options.program, std::nullopt);
  const std::vector<Argument> arguments = abstractInputs(*fusion, options.program);
  const std::unique_ptr<Communicator> alone = makeSelfCommunicator();
  const SegmentedProgram program = compileToSegments(*fusion, arguments, Agreement(*alone).call(), device->info());
  std::vector<Entry> files{{"planned.fir", program.planned->toString()}, {"local.fir", program.local->toString()}};
  int64_t kernels = 0;
  std::string missing;
  for (const Segment& s : program.segments) {
    if (s.kind != SegmentKind::Kernel) {
      continue;
    }
    const std::string base = fmt::format("{:02}_{}_T{}", kernels++, s.plan.kind, s.group.outputs[0]->id());
    files.push_back({base});
    files.push_back({base + ".tile", tile::toString(s.plan.program)});
    Device::Listings listings = device->listings(s.plan.program);
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
