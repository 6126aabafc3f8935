#include "device/cuda/named_cuda_device.h"

#include <charconv>
#include <optional>
#include <vector>

#include "base/disk_cache.h"
#include "base/error.h"
#include "base/ranges.h"
#include "codegen/cuda/emit.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/cublaslt/product.h"
#include "device/cuda/nvrtc/compiler.h"
#include "device/cuda/routines.h"
#include "device/device.h"

namespace meshfuse {

namespace {

// The second cache of the largest GPU of an architecture.
struct LastCache {
  int architecture;
  int64_t bytes;
};
constexpr LastCache kLastCaches[] = {
    {80, 40 << 20},   // A100
    {86, 6 << 20},    // A40
    {87, 4 << 20},    // Orin
    {89, 96 << 20},   // L40S
    {90, 50 << 20},   // H100
    {100, 126 << 20}  // B200
};

// The bytes in the row of the architecture; without a row, those of the row before it.
int64_t lastCacheBytes(int architecture) {
  int64_t bytes = kLastCaches[0].bytes;
  for (const LastCache& row : kLastCaches) {
    bytes = row.architecture <= architecture ? row.bytes : bytes;
  }
  return bytes;
}

// 90 of sm_90 and sm_90a; nothing if the name has another form.
std::optional<int> numberOf(std::string_view architecture) {
  if (!architecture.starts_with("sm_")) {
    return std::nullopt;
  }
  int number = 0;
  const char* const end = architecture.data() + architecture.size();
  const auto read = std::from_chars(architecture.data() + 3, end, number);
  return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

class NamedCudaDevice final : public Device {
 public:
  explicit NamedCudaDevice(std::string_view architecture) {
    const std::vector<int> known =
        capabilities_.nvrtc ? NvrtcCompiler::architectures() : mapped(kLastCaches, &LastCache::architecture);
    const std::optional<int> number = numberOf(architecture);
    check(number && (capabilities_.nvrtc || contains(known, *number)),
          "[compile] --arch is \"{}\", expected cpu or one of {}, some of them with a letter such as sm_90a",
          architecture, joined(known, ", ", [](int n) { return fmt::format("sm_{}", n); }));
    if (capabilities_.nvrtc) {
      NvrtcCompiler::expectArchitecture(architecture);
    }
    info_.architecture = architecture;
    info_.lastCacheBytes = lastCacheBytes(*number);
    info_.library = "cuBLASLt";
    info_.refuseContraction = CublasLtProduct::refuse;
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
  // Kernels that no queue runs: programs are planned and explained.
  std::vector<std::shared_ptr<const Kernel>> compile(std::span<const tile::Program> programs) override {
    return {programs.size(), std::make_shared<const Kernel>()};
  }
  int64_t scratchBytes(const Kernel&, std::span<const uint64_t>) const override { return 0; }
  // The workspace of a product is known on a GPU only.
  std::shared_ptr<const Routine> routine(const Expr& op, const RoutineOptions&) const override {
    expectCudaRoutine(op);
    return std::make_shared<const Routine>();
  }
  std::optional<std::string_view> routineName(const Expr& op) const override { return cudaRoutineName(op); }
  std::unique_ptr<Queue> makeQueue() override { throwNothingRuns(); }
  std::unique_ptr<Event> makeEvent() override { throwNothingRuns(); }

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
