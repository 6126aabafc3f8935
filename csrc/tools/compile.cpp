// meshfuse compile: writes the kernels of a program as files: tile programs, and the outputs of emitters and compilers.
#include "exec/compile.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

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

// Files under headings; written only once all of them are complete, so that a failure leaves no files.
class Files {
 public:
  void heading(std::string text) { files_.push_back({std::move(text), {}, true}); }
  void add(std::string name, std::string bytes) { files_.push_back({std::move(name), std::move(bytes), false}); }
  // Prints the size of each file.
  void write(const std::string& directory, const Terminal& terminal) const {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    check(!error, "[compile] cannot make the directory {}: {}", directory, error.message());
    for (const Entry& entry : files_) {
      if (entry.isHeading) {
        fmt::print("{}\n", terminal.heading(entry.name));
        continue;
      }
      const std::string path = directory + "/" + entry.name;
      writeOutputFile(path, entry.bytes);
      fmt::print("  {} ({} bytes)\n", path, entry.bytes.size());
    }
  }

 private:
  struct Entry {
    std::string name;
    std::string bytes;
    bool isHeading;
  };
  std::vector<Entry> files_;
};

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

int compileProgram(const EmitOptions& options) {
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
  Files files;
  files.add("planned.fir", program.planned->toString());
  files.add("local.fir", program.local->toString());
  int kernels = 0;
  for (const Segment& s : program.segments) {
    if (s.kind != SegmentKind::Kernel) {
      continue;
    }
    const std::string base = fmt::format("{:02}_{}_T{}", kernels++, s.plan.kind, s.group.outputs[0]->id());
    files.heading(base);
    files.add(base + ".tile", tile::toString(s.plan.program));
    if (gpu) {
      const CudaSource source = emitCuda(s.plan.program);
      files.add(base + ".cu", source.text);
      if (cuda.nvrtc) {
        files.add(base + ".cubin", compiler.compileCubin(source.text, options.arch).bytes);
      }
    } else {
      files.add(base + ".ll", kernelCompiler().irText(s.plan.program));
      files.add(base + ".s", kernelCompiler().assemblyText(s.plan.program));
    }
  }
  files.write(options.directory, Terminal(STDOUT_FILENO));
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
