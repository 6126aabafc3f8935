#include "device/cuda/named_cuda_device.h"

#include <cctype>

#include "base/disk_cache.h"
#include "base/error.h"
#include "codegen/cuda/emit.h"
#include "device/cuda/nvrtc/capabilities.h"
#include "device/cuda/nvrtc/compiler.h"
#include "device/device.h"

namespace meshfuse {

namespace {

class NamedCudaDevice final : public Device {
 public:
  explicit NamedCudaDevice(std::string_view architecture) {
    check(architecture.starts_with("sm_") && architecture.size() >= 4 &&
              std::isdigit(static_cast<unsigned char>(architecture[3])) != 0,
          "[compile] --arch is \"{}\", expected cpu or an architecture such as sm_90a", architecture);
    info_.architecture = architecture;
    if (capabilities_.nvrtc) {
      NvrtcCompiler::expectArchitecture(architecture);
    }
  }

  DeviceId id() const override { return DeviceId::cuda(0); }
  const DeviceInfo& info() const override { return info_; }

  Listings listings(const tile::Program& program) override {
    const CudaSource source = emitCuda(program);
    Listings result{{{".cu", source.text}}, ""};
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
  std::vector<std::shared_ptr<const Kernel>> compile(std::span<const tile::Program>) override { throwNothingRuns(); }
  int64_t scratchBytes(const Kernel&, std::span<const uint64_t>) const override { throwNothingRuns(); }
  std::shared_ptr<const Routine> routine(const Expr&, const RoutineOptions&) const override { throwNothingRuns(); }
  std::unique_ptr<Queue> makeQueue() override { throwNothingRuns(); }

 private:
  [[noreturn]] static void throwNothingRuns() {
    throwInternalError("[device] a device that is known by name only was asked to run something");
  }

  DeviceInfo info_ = DeviceInfo::hopper();
  const CudaCapabilities capabilities_ = cudaCapabilities();
  NvrtcCompiler compiler_{kernelDiskCache().get()};
};

}  // namespace

std::shared_ptr<Device> makeNamedCudaDevice(std::string_view architecture) {
  return std::make_shared<NamedCudaDevice>(architecture);
}

}  // namespace meshfuse
