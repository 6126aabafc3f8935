// A tile program for a CPU as LLVM IR: two functions of one module.
//
//   void kernel(const uint64_t* slots, int64_t partBegin, int64_t partEnd, void* scratch)
//   int64_t scratch_bytes(const uint64_t* slots)
//
// `slots` is the argument list of tile/tile.h: a pointer for each tensor that is not Scratch, then the sizes, then the scalars.
// Parts are numbered row-major over Program::grid, 0 <= part < product of its counts (1 without a grid); any thread may run any
// range of them. `scratch` is 64-byte aligned memory of the calling worker, at least scratch_bytes(slots) bytes of unspecified
// contents; it may depend on sizes, and is 0 for a program without Scratch tensors.
//
// The result depends on the program and the target only: not on the number of threads or the order of parts. Arithmetic is
// never contracted or reassociated; a reduction takes register digits ascending, then halves the vector digit, so the bits
// are the same for every vector width.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tile/tile.h"

namespace llvm {
class Module;
}

namespace meshfuse {

inline constexpr std::string_view kKernelSymbol = "kernel";
inline constexpr std::string_view kScratchBytesSymbol = "scratch_bytes";

// Part of the key of compiled kernels on disk: raise it whenever the same program may give other code.
inline constexpr int64_t kCpuEmitterVersion = 14;

// The machine that code is made for, in LLVM's terms.
struct CpuTarget {
  std::string cpu;
  std::string features;      // "+avx2,-avx512f,..."
  int64_t vectorBytes = 16;  // of one machine register: 64 with AVX-512, 32 with AVX2, else 16

  bool has(std::string_view feature) const;  // by LLVM's name: "fma"
};

// Writes the two functions into an empty module. InternalError if the program is not for a CPU or breaks its rules.
void emitCpu(const tile::Program& program, const CpuTarget& target, llvm::Module& module);

// The runtime functions that emitted code may call, by symbol, with their addresses.
[[nodiscard]] std::vector<std::pair<std::string, void*>> cpuRuntimeSymbols();

}  // namespace meshfuse
