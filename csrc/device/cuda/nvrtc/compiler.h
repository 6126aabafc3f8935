// CUDA C++ text to a cubin, by NVRTC, which is loaded at run time. Needs no driver and no GPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/disk_cache.h"
#include "base/hash.h"

namespace meshfuse {

struct Cubin {
  std::string bytes;
  std::string log;  // of the compiler; empty if it came from disk
  Hash128 text;     // of the text that was compiled
  bool fromDisk = false;
};

// What a thread of a kernel takes.
struct KernelResources {
  int64_t registers = 0;
  int64_t spilledBytes = 0;  // stores and loads of registers that did not suffice
  int64_t stackBytes = 0;    // local memory
  friend bool operator==(const KernelResources&, const KernelResources&) = default;
};

struct NvrtcCounters {
  int64_t compiled = 0;
  int64_t fromDisk = 0;
  double milliseconds = 0;  // of wall time inside NVRTC, all threads together
};

// Several threads may use it at once.
class NvrtcCompiler {
 public:
  // `cache` is optional and outlives the compiler.
  explicit NvrtcCompiler(DiskCache* cache = nullptr) : cache_(cache) {}

  // `arch`: a real architecture such as sm_90a. DeviceError if NVRTC does not load; InternalError with the
  // compiler's log and the numbered lines of the text if NVRTC refuses the text.
  [[nodiscard]] Cubin compileCubin(std::string_view text, std::string_view arch);
  // The PTX of the same text, for tests and explanations.
  [[nodiscard]] static std::string compilePtx(std::string_view text, std::string_view arch);

  // What the compiler reports of the only kernel of the text, for tests and explanations. InternalError if its log has another form.
  [[nodiscard]] static KernelResources resources(std::string_view text, std::string_view arch);

  // The numbers of the architectures that this NVRTC has, from 80 on. DeviceError if NVRTC does not load.
  [[nodiscard]] static std::vector<int> architectures();
  // Checks that this NVRTC compiles kernels of codegen/cuda for `arch`: sm_80 and later, also with a suffix that NVRTC accepts (sm_90a).
  // UserError that lists the architectures if it does not; DeviceError if NVRTC does not load.
  static void expectArchitecture(std::string_view arch);

  NvrtcCounters counters() const;

 private:
  DiskCache* cache_;
  std::atomic<int64_t> compiled_{0};
  std::atomic<int64_t> fromDisk_{0};
  std::atomic<int64_t> nanoseconds_{0};
};

}  // namespace meshfuse
