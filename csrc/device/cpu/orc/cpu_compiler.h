// Tile programs for a CPU to functions in memory.
//
//   CpuCompiler compiler({.disk = std::make_shared<DiskCache>(directory)});
//   std::shared_ptr<const CpuKernel> kernel = compiler.compile(programs)[0];
//   kernel->run(slots.data(), 0, parts, scratch);
//
// A program is looked up in memory, then on disk, then compiled; the key is the program's text, the emitter's and LLVM's
// versions and the target. Programs of one call that need LLVM are compiled in parallel. If the build has no LLVM, all but the constructor
// and counters() throw a UserError that says so.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/disk_cache.h"
#include "codegen/llvm/emit.h"
#include "device/device.h"
#include "tile/tile.h"

namespace meshfuse {

// Machine code of one program; it stays mapped while the CpuKernel exists. codegen/llvm/emit.h describes the ABI.
struct CpuKernel final : Kernel {
  using Run = void (*)(const uint64_t* slots, int64_t partBegin, int64_t partEnd, void* scratch);
  using ScratchBytes = int64_t (*)(const uint64_t* slots);

  Run run = nullptr;
  ScratchBytes scratchBytes = nullptr;  // of each worker, for these sizes
  std::shared_ptr<const void> code;
};

struct CpuCompilerOptions {
  int64_t threads = 0;                   // of one compile call; 0: one for each core
  size_t kernels = 4096;                 // kept in memory; the least recently used is evicted first
  std::shared_ptr<DiskCache> disk = {};  // none: nothing is kept between processes
  std::optional<CpuTarget> target = {};  // none: this machine
};

struct CpuCompilerCounters {
  int64_t compiles = 0;  // calls of LLVM
  int64_t memoryHits = 0;
  int64_t diskHits = 0;
};

// Thread-safe.
class CpuCompiler {
 public:
  explicit CpuCompiler(CpuCompilerOptions options = {});
  ~CpuCompiler();
  CpuCompiler(const CpuCompiler&) = delete;
  CpuCompiler& operator=(const CpuCompiler&) = delete;

  // One kernel for each program, in order; equal programs get the same one.
  std::vector<std::shared_ptr<const CpuKernel>> compile(std::span<const tile::Program> programs);

  CpuCompilerCounters counters() const;
  const CpuTarget& target() const;

  // The code of a program, for tests and dumps.
  std::string irText(const tile::Program& program) const;
  std::string assemblyText(const tile::Program& program) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// This machine, as LLVM knows it.
[[nodiscard]] CpuTarget hostTarget();
// A machine like `target` whose registers have at most `vectorBytes` (16 or 32) bytes.
[[nodiscard]] CpuTarget narrowerTarget(const CpuTarget& target, int64_t vectorBytes);

}  // namespace meshfuse
