#include "device/cuda/named_cuda_device.h"

#include <optional>
#include <vector>

#include "base/disk_cache.h"
#include "base/error.h"
#include "base/ranges.h"
#include "codegen/cuda/emit.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/cublaslt/product.h"
#include "device/cuda/nccl/nccl_communicator.h"
#include "device/cuda/nvrtc/compiler.h"
#include "device/cuda/routines/routine_program.h"
#include "device/device.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

class PlannedRoutine final : public Routine {
 public:
  explicit PlannedRoutine(int64_t workspaceBytes) : workspaceBytes_(workspaceBytes) {}
  int64_t workspaceBytes() const override { return workspaceBytes_; }

 private:
  int64_t workspaceBytes_;
};

class NamedCudaDevice final : public Device {
 public:
  explicit NamedCudaDevice(std::string_view architecture) {
    const std::vector<int> known = capabilities_.nvrtc ? NvrtcCompiler::architectures() : knownArchitectures();
    std::optional<DeviceInfo> info = DeviceInfo::ofArchitecture(architecture);
    check(info && (capabilities_.nvrtc || contains(known, *architectureNumber(architecture))),
          "[compile] --arch is \"{}\", expected cpu or one of {}, some of them with a letter such as sm_90a",
          architecture, joined(known, ", ", [](int n) { return fmt::format("sm_{}", n); }));
    if (capabilities_.nvrtc) {
      NvrtcCompiler::expectArchitecture(architecture);
    }
    info_ = *std::move(info);
    info_.library = "cuBLASLt";
    info_.mostWorkspaceBytes = advisedWorkspaceBytes(architecture);
    info_.knowsWorkspaces = false;
    info_.refuseContraction = CublasLtProduct::refuse;
    info_.refuseCollective = NcclCommunicator::refuse;
    info_.combinedBytes = NcclCommunicator::combinedBytes;
  }

  DeviceId id() const override { return DeviceId::cuda(0); }
  const DeviceInfo& info() const override { return info_; }

  Listings listings(const tile::Program& program) override {
    const CudaSource source = emitCuda(program);
    Listings result{{{".cu", source.text}}, "", launchText(source)};
    if (capabilities_.nvrtc) {
      result.files.push_back({".cubin", compiler_.compileCubin(source.text, info_.architecture).bytes});
    } else {
      result.missing = fmt::format("the texts are written, the cubins are not: {}", capabilities_.nvrtcNote);
    }
    return result;
  }

  std::string compilerReport() const override {
    const NvrtcCounters counters = compiler_.counters();
    return capabilities_.nvrtc
               ? fmt::format("NVRTC compiled {}, the disk cache had {}", counters.compiled, counters.fromDisk)
               : "";
  }

  bool isHostMemory() const override { return false; }
  std::shared_ptr<void> allocate(int64_t) override { throwNothingRuns(); }
  void read(void*, const void*, int64_t) override { throwNothingRuns(); }
  void write(void*, const void*, int64_t) override { throwNothingRuns(); }
  // Kernels that no queue runs: programs are planned and explained.
  std::vector<std::shared_ptr<const Kernel>> compile(std::span<const tile::Program> programs) override {
    return {programs.size(), std::make_shared<const Kernel>()};
  }
  int64_t scratchBytes(const Kernel&, std::span<const uint64_t>) const override { return 0; }
  void expectRoutine(const Expr& op) const override { expectCudaRoutine(op); }
  // What a product needs is known on a GPU only: it gets the most that a plan allows.
  std::shared_ptr<const Routine> routine(const Expr& op, const RoutineOptions& options) const override {
    return std::make_shared<const PlannedRoutine>(isContraction(op)
                                                      ? CublasLtProduct::plannedWorkspaceBytes(info_.mostWorkspaceBytes)
                                                      : routineProgram(op, options).workspaceBytes);
  }
  std::optional<std::string_view> routineName(const Expr& op) const override { return cudaRoutineName(op); }
  std::unique_ptr<Queue> makeQueue() override { throwNothingRuns(); }
  std::unique_ptr<Event> makeEvent() override { throwNothingRuns(); }
  std::unique_ptr<Timer> makeTimer(int64_t) override { throwNothingRuns(); }

 private:
  [[noreturn]] static void throwNothingRuns() {
    throwInternalError("[device] a device that is known by name only was asked to run something");
  }

  DeviceInfo info_;
  const CudaCapabilities capabilities_ = cudaCapabilities();
  NvrtcCompiler compiler_{kernelDiskCache().get()};
};

}  // namespace

std::shared_ptr<Device> makeNamedCudaDevice(std::string_view architecture) {
  return std::make_shared<NamedCudaDevice>(architecture);
}

}  // namespace meshfuse
