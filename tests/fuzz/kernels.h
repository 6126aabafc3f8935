// The kernels of a program one by one, for the tile interpreter and for the emulator of generated CUDA text.
//
// A kernel gets the values that the reference gives the tensors it reads; what it writes is compared with the reference of its ops.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/cpu/orc/cpu_compiler.h"
#include "device/cuda/nvrtc/compiler.h"
#include "fuzz/checks.h"
#include "fuzz/program.h"
#include "interpret/bounds.h"
#include "schedule/group.h"
#include "simt/emulator.h"

namespace meshfuse::fuzz {

struct KernelCase {
  uint64_t seed = 0;
  std::string fusion;               // its ops
  std::vector<std::string> faults;  // of the verifier of tile programs
  KernelPlan plan;
  std::vector<Tensor> memory;  // one a slot
  std::vector<uint64_t> slots;
  int64_t parts = 0;  // of the grid
  struct Output {
    size_t slot;
    BoundedTensor expected;
  };
  std::vector<Output> outputs;
};
using KernelCases = std::vector<std::unique_ptr<KernelCase>>;

// All kernels of a program on a device, as one of its ranks runs them; without shardings where `rank` is negative.
[[nodiscard]] KernelCases kernelsOf(const Program& program, const DeviceInfo& device, int64_t rank);

// The compiler, if there is one, compiles the first of `every` kernels for sm_90a.
struct Compilation {
  NvrtcCompiler* compiler = nullptr;
  int64_t every = 1;
};

// Through the tile interpreter; through the emulator or another runner, all in one batch. One verdict a kernel, empty if it is right. A text that is compiled
// must be the text that was emulated, and must compile without a message.
[[nodiscard]] std::vector<std::string> interpretKernels(const KernelCases& kernels);
[[nodiscard]] std::vector<std::string> emulateKernels(const KernelCases& kernels, const Compilation& compilation,
                                                      const simt::Runner& runner = {});

// As machine code of this CPU, one worker.
[[nodiscard]] std::vector<std::string> runKernels(const KernelCases& kernels, CpuCompiler& compiler);

}  // namespace meshfuse::fuzz
