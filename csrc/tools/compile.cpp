// meshfuse compile: the kernels of a program as files: tile programs, and what the emitters and compilers make of them.
#include "exec/compile.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "codegen/cuda/emit.h"
#include "exec/kernel_compiler.h"
#include "ir/fusion.h"
#include "jit/nvrtc/capabilities.h"
#include "jit/nvrtc/compiler.h"
#include "jit/orc/cpu_compiler.h"
#include "multidevice/transport/communicator.h"
#include "tools/program.h"
#include "tools/stand_in_arguments.h"
#include "tools/terminal.h"

namespace meshfuse {

namespace {

class Directory {
 public:
  explicit Directory(std::string path) : path_(std::move(path)) {
    std::error_code error;
    std::filesystem::create_directories(path_, error);
    check(!error, "[compile] cannot make the directory {}: {}", path_, error.message());
  }
  // The file's size is printed as it is written.
  void write(const std::string& name, const std::string& bytes) const {
    const std::string path = path_ + "/" + name;
    std::ofstream file(path, std::ios::binary);
    file << bytes;
    file.close();
    check(file.good(), "[compile] cannot write {}", path);
    fmt::print("  {} ({} bytes)\n", path, bytes.size());
  }

 private:
  std::string path_;
};

// sm_90 -> the description kernels are scheduled for.
DeviceInfo deviceOf(const std::string& arch) {
  if (arch == "cpu") {
    return hostDevice();
  }
  check(arch.starts_with("sm_") && arch.size() >= 5 && std::isdigit(static_cast<unsigned char>(arch[3])) != 0,
        "[compile] --arch is \"{}\", expected cpu or an architecture such as sm_90a", arch);
  DeviceInfo device = DeviceInfo::hopper();
  device.architecture = arch;
  return device;
}

void writeGpuKernel(const Directory& directory, const std::string& base, const tile::Program& program,
                    const std::string& arch, NvrtcCompiler* compiler) {
  const CudaSource source = emitCuda(program);
  directory.write(base + ".cu", source.text);
  if (compiler != nullptr) {
    directory.write(base + ".cubin", compiler->compileCubin(source.text, arch).bytes);
  }
}

void writeCpuKernel(const Directory& directory, const std::string& base, const tile::Program& program) {
  directory.write(base + ".ll", kernelCompiler().irText(program));
  directory.write(base + ".s", kernelCompiler().assemblyText(program));
}

}  // namespace

int compileProgram(const EmitOptions& options) {
  const DeviceInfo device = deviceOf(options.arch);
  const std::unique_ptr<Fusion> fusion = loadProgram(options.program);
  const std::vector<Argument> arguments = standInArguments(*fusion, options.program);
  const std::unique_ptr<Communicator> alone = makeSelfCommunicator();
  const SegmentedProgram program = compileToSegments(*fusion, arguments, *alone, device);
  const CudaCapabilities cuda = cudaCapabilities();
  const bool gpu = device.target == tile::Target::Gpu;
  NvrtcCompiler compiler;
  const Directory directory(options.directory);
  const Terminal terminal(STDOUT_FILENO);
  directory.write("planned.fir", program.planned->toString());
  directory.write("local.fir", program.local->toString());
  int kernels = 0;
  for (const Segment& s : program.segments) {
    if (s.kind != SegmentKind::Kernel) {
      continue;
    }
    const KernelPlan plan = s.scheduler->schedule(s.group, device);
    const std::string base = fmt::format("{:02}_{}_T{}", kernels++, s.scheduler->name, s.group.outputs[0]->id());
    fmt::print("{}\n", terminal.heading(base));
    directory.write(base + ".tile", tile::toString(plan.program));
    if (gpu) {
      writeGpuKernel(directory, base, plan.program, options.arch, cuda.nvrtc ? &compiler : nullptr);
    } else {
      writeCpuKernel(directory, base, plan.program);
    }
  }
  fmt::print("{} kernel{} for {}\n", kernels, kernels == 1 ? "" : "s", options.arch);
  deviceCheck(!gpu || cuda.nvrtc || kernels == 0, "[compile] the texts are written, the cubins are not: {}",
              cuda.nvrtcNote);
  return kSuccess;
}

}  // namespace meshfuse
