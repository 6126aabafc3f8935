#include "device/cuda/cuda_device.h"

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/disk_cache.h"
#include "base/error.h"
#include "base/ranges.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/copy_program.h"
#include "device/cuda/cublaslt/product.h"
#include "device/cuda/cuda_kernel.h"
#include "device/cuda/cuda_queue.h"
#include "device/cuda/cuda_timer.h"
#include "device/cuda/driver/context.h"
#include "device/cuda/driver/library.h"
#include "device/cuda/driver/memory.h"
#include "device/cuda/nccl/library.h"
#include "device/cuda/nccl/nccl_communicator.h"
#include "device/cuda/nvrtc/compiler.h"
#include "device/cuda/routines/routine.h"
#include "device/device.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int64_t index) : context_(index), queues_(context_) {
    const CurrentContext current(context_);
    memory_ = std::make_unique<CudaMemory>(context_, queues_);
    NvrtcCompiler::expectArchitecture(context_.architecture());
    const std::optional<std::string> refusal = refusalOfKernels();
    deviceCheck(!refusal, "[cuda] {}", refusal.value_or(""));
    info_.architecture = context_.architecture();
    info_.lastCacheBytes = context_.lastCacheBytes();
    info_.gpu = context_.facts();
    if (const CublasLtLibrary& products = cublasLtLibrary(); products.usable()) {
      info_.library = fmt::format("cuBLASLt {}", products.version());
      info_.mostWorkspaceBytes = advisedWorkspaceBytes(info_.architecture);
      info_.refuseContraction = CublasLtProduct::refuse;
    }
    info_.refuseCollective = NcclCommunicator::refuse;
    info_.combinedBytes = [](const CollectiveOfElements& call, int64_t elements, int64_t ranks) {
      return ncclLibrary().usable() ? NcclCommunicator::combinedBytes(call, elements, ranks) : 0;
    };
  }
  ~CudaDevice() override {
    try {
      const CurrentContext current(context_);
      products_.reset();
    } catch (const DeviceError&) {  // the device is gone, and the handle with it
    }
  }

  DeviceId id() const override { return DeviceId::cuda(context_.index()); }
  const DeviceInfo& info() const override { return info_; }
  bool isHostMemory() const override { return false; }
  std::optional<int64_t> memoryBytes() const override { return memory_->totalBytes(); }
  std::optional<MemoryUse> memoryUse() const override { return memory_->use(); }
  void resetMost() override { memory_->resetMost(); }
  std::shared_ptr<void> allocate(int64_t bytes) override { return memory_->allocate(bytes); }
  void read(void* host, const void* memory, int64_t bytes) override { memory_->read(host, memory, bytes); }
  void write(void* memory, const void* host, int64_t bytes) override { memory_->write(memory, host, bytes); }
  void expectOwn(const void* address) const override { memory_->expectOwn(address); }
  void settle() override {
    const auto lock = queues_.withoutCaptures();
    memory_->settle();
  }
  void orderBefore(GpuStream stream) override {
    const CurrentContext current(context_);
    queues_.orderBefore(static_cast<cuda::Stream>(stream.handle));
  }
  void orderAfter(GpuStream stream) override {
    const CurrentContext current(context_);
    queues_.orderAfter(static_cast<cuda::Stream>(stream.handle));
  }

  std::vector<std::shared_ptr<const Kernel>> compile(std::span<const tile::Program> programs) override {
    return mapped(programs, [this](const tile::Program& p) -> std::shared_ptr<const Kernel> { return compiled(p); });
  }

  // Scratch is in registers and in shared memory.
  int64_t scratchBytes(const Kernel&, std::span<const uint64_t>) const override { return 0; }

  void expectRoutine(const Expr& op) const override { expectCudaRoutine(op); }
  std::shared_ptr<const Routine> routine(const Expr& op, const RoutineOptions& options) const override {
    const CurrentContext current(context_);
    if (isContraction(op)) {
      return std::make_shared<CublasLtProduct>(products(), op, options.layouts);
    }
    return std::make_shared<KernelRoutine>(context_, routineProgram(op, options), [this](const CudaSource& source) {
      return compiler_.compileCubin(source.text, info_.architecture).bytes;
    });
  }
  std::optional<std::string_view> routineName(const Expr& op) const override { return cudaRoutineName(op); }

  std::unique_ptr<Queue> makeQueue() override {
    const CurrentContext current(context_);
    return std::make_unique<CudaQueue>(
        context_, queues_,
        [this](const StridedElements& to, const StridedElements& from) { return copyKernel(to, from); });
  }

  std::unique_ptr<Event> makeEvent() override {
    const CurrentContext current(context_);
    return std::make_unique<CudaQueueEvent>(context_);
  }

  std::unique_ptr<Timer> makeTimer(int64_t points) override {
    const CurrentContext current(context_);
    return std::make_unique<CudaTimer>(context_, points);
  }

  std::shared_ptr<DeviceCommunicator> communicator(Communicator& over) override {
    return NcclCommunicator::make(over, *this, context_, *memory_,
                                  [](const Kernel& kernel, std::span<const uint64_t> slots, cuda::Stream stream) {
                                    static_cast<const CudaKernel&>(kernel).launch(slots, nullptr, stream);
                                  });
  }

  std::string compilerReport() const override {
    const NvrtcCounters kernels = compiler_.counters();
    const std::lock_guard lock(productsMutex_);
    const AlgorithmCounters products = products_ == nullptr ? AlgorithmCounters() : products_->algorithms().counters();
    return fmt::format("NVRTC compiled {}, the disk cache had {}; cuBLASLt chose {} algorithms, the disk cache had {}",
                       kernels.compiled, kernels.fromDisk, products.chosen, products.fromDisk);
  }

  Listings listings(const tile::Program& program) override {
    const CudaSource source = emitCuda(program);
    return {{{".cu", source.text}, {".cubin", compiler_.compileCubin(source.text, info_.architecture).bytes}},
            "",
            launchText(source)};
  }

 private:
  std::shared_ptr<const CudaKernel> compiled(const tile::Program& program) {
    CudaSource source = emitCuda(program);
    const Cubin cubin = compiler_.compileCubin(source.text, info_.architecture);
    return std::make_shared<CudaKernel>(context_, program, std::move(source), cubin.bytes);
  }

  // Made for the first contraction.
  const CublasLtHandle& products() const {
    const std::lock_guard lock(productsMutex_);
    if (products_ == nullptr) {
      products_ = std::make_unique<const CublasLtHandle>(info_, kernelDiskCache().get());
    }
    return *products_;
  }

  std::shared_ptr<const CudaKernel> copyKernel(const StridedElements& to, const StridedElements& from) {
    const tile::Program program = copyProgram(to, from);
    const std::string text = tile::toString(program);
    const std::lock_guard lock(copyMutex_);
    std::shared_ptr<const CudaKernel>& kernel = copyKernels_[text];
    if (kernel == nullptr) {
      kernel = compiled(program);
    }
    return kernel;
  }

  const CudaContext context_;
  CudaStreams queues_;
  std::unique_ptr<CudaMemory> memory_;
  DeviceInfo info_ = DeviceInfo::hopper();
  mutable NvrtcCompiler compiler_{kernelDiskCache().get()};
  mutable std::mutex productsMutex_;
  mutable std::unique_ptr<const CublasLtHandle> products_;
  std::mutex copyMutex_;
  std::map<std::string, std::shared_ptr<const CudaKernel>> copyKernels_;  // by the text of the program
};

}  // namespace

std::shared_ptr<Device> makeCudaDevice(int64_t index) { return std::make_shared<CudaDevice>(index); }

}  // namespace meshfuse
