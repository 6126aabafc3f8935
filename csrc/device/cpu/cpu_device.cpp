#include "device/cpu/cpu_device.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "base/disk_cache.h"
#include "base/error.h"
#include "base/ranges.h"
#include "base/refused_index.h"
#include "base/rounding.h"
#include "base/thread_pool.h"
#include "device/cpu/onednn/contraction.h"
#include "device/cpu/onednn/double_product.h"
#include "device/cpu/orc/cpu_compiler.h"
#include "device/cpu/routine.h"
#include "device/device.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "meshfuse_config.h"

namespace meshfuse {

namespace {

constexpr int64_t kPage = 4096;  // each thread's scratch starts on a page of its own
// Times the second caches of all logical processors of the machine. A virtual machine of a few cores reports the last cache of the whole socket, which others use too.
constexpr int64_t kMostLastCache = 16;

// Intel's prefetcher of the second cache follows 32 streams, one in a page (Optimization Reference Manual, "Streamer"). Instructions that
// prefetch the same lines only take line fill buffers from streaming stores.
constexpr int64_t kStreamsOfIntel = 32;

// A data cache of the first processor, as the kernel reports it; else what the C library says, which may be the caches of all processors
// of the socket together.
int64_t cacheBytes(int64_t level, int64_t name, int64_t otherwise) {
  for (int64_t index = 0;; index++) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    int64_t itsLevel = 0;
    int64_t kibibytes = 0;
    std::string type;
    if (!(std::ifstream(folder + "level") >> itsLevel) || !(std::ifstream(folder + "type") >> type) ||
        !(std::ifstream(folder + "size") >> kibibytes)) {
      break;
    }
    if (itsLevel == level && type != "Instruction" && kibibytes > 0) {
      return kibibytes << 10;
    }
  }
  const int64_t bytes = sysconf(static_cast<int>(name));
  return bytes > 0 ? bytes : otherwise;
}

DeviceInfo infoOfThisMachine() {
  DeviceInfo d;
  d.target = tile::Target::Cpu;
  d.l1Bytes = cacheBytes(1, _SC_LEVEL1_DCACHE_SIZE, d.l1Bytes);
  d.l2Bytes = cacheBytes(2, _SC_LEVEL2_CACHE_SIZE, d.l2Bytes);
  d.lastCacheBytes = std::min(cacheBytes(3, _SC_LEVEL3_CACHE_SIZE, d.lastCacheBytes),
                              kMostLastCache * d.l2Bytes * std::max<int64_t>(1, std::thread::hardware_concurrency()));
  d.followedStreams = __builtin_cpu_is("intel") ? kStreamsOfIntel : 0;
  // Ranks compare it: plans differ where Double is left to kernels.
  d.library = !kHasOneDnn ? "" : multipliesDoubles() ? "oneDNN" : "oneDNN, those of Double by kernels";
  d.refuseContraction = Contraction::refuse;
  return d;
}

// One for all devices of the process: a handle of loaded code and an open directory.
CpuCompiler& compiler() {
  static CpuCompiler compiler({.disk = kernelDiskCache()});
  return compiler;
}

std::shared_ptr<const CpuKernel> placeholder() {
  auto kernel = std::make_shared<CpuKernel>();
  kernel->run = [](const uint64_t*, int64_t, int64_t, void*) {
    throwInternalError("[kernels] a placeholder kernel was run; open the device with compiles = true");
  };
  kernel->scratchBytes = [](const uint64_t*) -> int64_t { return 0; };
  return kernel;
}

// All work is done when a call returns.
class CpuQueue final : public Queue {
 public:
  explicit CpuQueue(std::shared_ptr<ThreadPool> pool) : pool_(std::move(pool)), threads_(pool_->threads()) {}

  void launch(const Launch& l) override {
    const auto& kernel = static_cast<const CpuKernel&>(l.kernel);
    if (l.checksIndices) {
      return launchChecked(l, kernel);
    }
    if (l.parts == 1) {
      return kernel.run(l.slots.data(), 0, 1, l.scratch);
    }
    runParts(l, [&](int64_t begin, int64_t end, void* scratch) { kernel.run(l.slots.data(), begin, end, scratch); });
  }

  void call(const Routine& routine, std::span<void* const> operands, void* out, void* workspace) override {
    static_cast<const CpuRoutine&>(routine).run(*pool_, operands, out, workspace);
  }

  void clear(void* memory, int64_t bytes) override { std::memset(memory, 0, bytes); }

  void copy(void* to, const void* from, std::span<const BytePiece> pieces) override {
    for (const BytePiece& p : pieces) {
      std::memcpy(static_cast<char*>(to) + p.to, static_cast<const char*>(from) + p.from, p.bytes);
    }
  }

  void copyElements(const StridedElements& to, const StridedElements& from) override {
    meshfuse::copyElements(to, from);
  }

  // Work has ended when its call returns.
  void record(Event&) override {}
  void waitFor(const Event&) override {}
  void wait() override {}

 private:
  void launchChecked(const Launch& l, const CpuKernel& kernel) {
    RefusedIndex refused;
    runParts(l, [&](int64_t begin, int64_t end, void* scratch) {
      const RefusedIndexScope scope(refused);
      kernel.run(l.slots.data(), begin, end, scratch);
    });
    if (refused.any()) [[unlikely]] {
      throwRefusedIndex(l.name, refused.index(), refused.extent());
    }
  }

  // Each thread has a part of the scratch.
  template <class Fn>
  void runParts(const Launch& l, const Fn& fn) {
    char* const scratch = static_cast<char*>(l.scratch);
    if (l.parts == 1) {
      return fn(0, 1, scratch);
    }
    const int64_t own = l.scratchBytes / threads_;
    pool_->run(l.parts, [&](int64_t begin, int64_t end, int64_t worker) { fn(begin, end, scratch + worker * own); });
  }

  const std::shared_ptr<ThreadPool> pool_;
  const int64_t threads_;
};

class CpuTimer final : public Timer {
 public:
  explicit CpuTimer(int64_t points) : times_(points) {}
  void mark(int64_t point, Queue&) override { times_[point] = Clock::now(); }
  Clock::time_point timeOf(int64_t point) const override { return times_[point]; }

 private:
  std::vector<Clock::time_point> times_;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options)
      : info_(infoOfThisMachine()),
        compiles_(options.compiles),
        pool_(std::make_shared<ThreadPool>(ThreadPoolOptions{.threads = options.threads, .spin = options.spin})) {}

  DeviceId id() const override { return DeviceId::cpu(); }
  const DeviceInfo& info() const override { return info_; }
  std::optional<int64_t> memoryBytes() const override { return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE); }
  bool isHostMemory() const override { return true; }
  std::shared_ptr<void> allocate(int64_t bytes) override {
    return Tensor::empty({bytes}, DataType::Bool, DeviceId::cpu()).storage();
  }
  void read(void* host, const void* memory, int64_t bytes) override { std::memcpy(host, memory, bytes); }
  void write(void* memory, const void* host, int64_t bytes) override { std::memcpy(memory, host, bytes); }

  std::vector<std::shared_ptr<const Kernel>> compile(std::span<const tile::Program> programs) override {
    if (!compiles_) {
      return {programs.size(), placeholder()};
    }
    const std::vector<std::shared_ptr<const CpuKernel>> kernels = compiler().compile(programs);
    return {kernels.begin(), kernels.end()};
  }

  int64_t scratchBytes(const Kernel& kernel, std::span<const uint64_t> slots) const override {
    const int64_t bytes = static_cast<const CpuKernel&>(kernel).scratchBytes(slots.data());
    return roundUp(bytes, kPage) * pool_->threads();
  }

  std::shared_ptr<const Routine> routine(const Expr& op, const RoutineOptions& options) const override {
    return routineOf(op, options, pool_->threads());
  }

  std::optional<std::string_view> routineName(const Expr& op) const override {
    return isContraction(op) && op.tensorInputs()[0]->dtype() != DataType::Double ? "oneDNN" : "C++ routine";
  }

  std::unique_ptr<Queue> makeQueue() override { return std::make_unique<CpuQueue>(pool_); }
  std::unique_ptr<Event> makeEvent() override { return std::make_unique<Event>(); }
  std::unique_ptr<Timer> makeTimer(int64_t points) override { return std::make_unique<CpuTimer>(points); }

  Listings listings(const tile::Program& program) override {
    return {{{".ll", compiler().irText(program)}, {".s", compiler().assemblyText(program)}}, "", ""};
  }

 private:
  const DeviceInfo info_;
  const bool compiles_;
  const std::shared_ptr<ThreadPool> pool_;
};

}  // namespace

std::shared_ptr<Device> makeCpuDevice(const DeviceOptions& options) { return std::make_shared<CpuDevice>(options); }

}  // namespace meshfuse
