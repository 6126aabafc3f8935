// meshfuse compile: writes the kernels of a program as files: tile programs, and the outputs of emitters and compilers.
#include "exec/compile.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/error.h"
#include "codegen/cuda/emit.h"
#include "exec/kernel_compiler.h"
#include "ir/fusion.h"
#include "jit/nvrtc/capabilities.h"
#include "jit/nvrtc/compiler.h"
#include "jit/orc/cpu_compiler.h"
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

// The device that kernels are scheduled for, from its name: cpu, sm_90a.
DeviceInfo deviceOf(const std::string& arch) {
  if (arch == "cpu") {
    return hostDevice();
  }
  check(arch.starts_with("sm_") && arch.size() >= 4 && std::isdigit(static_cast<unsigned char>(arch[3])) != 0,
        "[compile] --arch is \"{}\", expected cpu or an architecture such as sm_90a", arch);
  DeviceInfo device = DeviceInfo::hopper();
  device.architecture = arch;
  return device;
}

}  // namespace

int64_t compileProgram(const EmitOptions& options) {
  const DeviceInfo device = deviceOf(options.arch);
  const bool gpu = device.target == tile::Target::Gpu;
  const CudaCapabilities cuda = cudaCapabilities();
  if (gpu && cuda.nvrtc) {
    NvrtcCompiler::expectArchitecture(options.arch);
  }
  const std::unique_ptr<Fusion> fusion = loadSizedProgram(options.program, std::nullopt);
  const std::vector<Argument> arguments = abstractInputs(*fusion, options.program);
  const std::unique_ptr<Communicator> alone = makeSelfCommunicator();
  const SegmentedProgram program = compileToSegments(*fusion, arguments, Agreement(*alone).call(), device);
  NvrtcCompiler compiler(kernelDiskCache().get());
  std::vector<Entry> files{{"planned.fir", program.planned->toString()}, {"local.fir", program.local->toString()}};
  int64_t kernels = 0;
  for (const Segment& s : program.segments) {
    if (s.kind != SegmentKind::Kernel) {
      continue;
    }
    const std::string base = fmt::format("{:02}_{}_T{}", kernels++, s.plan.kind, s.group.outputs[0]->id());
    files.push_back({base});
    files.push_back({base + ".tile", tile::toString(s.plan.program)});
    if (gpu) {
      const CudaSource source = emitCuda(s.plan.program);
      files.push_back({base + ".cu", source.text});
      if (cuda.nvrtc) {
        files.push_back({base + ".cubin", compiler.compileCubin(source.text, options.arch).bytes});
      }
    } else {
      files.push_back({base + ".ll", kernelCompiler().irText(s.plan.program)});
      files.push_back({base + ".s", kernelCompiler().assemblyText(s.plan.program)});
    }
  }
  writeFiles(files, options.directory);
  fmt::print("{} kernel{} for {}\n", kernels, kernels == 1 ? "" : "s", options.arch);
  if (gpu && cuda.nvrtc) {
    const NvrtcCounters counters = compiler.counters();
    fmt::print("NVRTC compiled {}, the disk cache had {}\n", counters.compiled, counters.fromDisk);
  }
  deviceCheck(!gpu || cuda.nvrtc || kernels == 0, "[compile] the texts are written, the cubins are not: {}",
              cuda.nvrtcNote);
  return kSuccess;
}

}  // namespace meshfuse
