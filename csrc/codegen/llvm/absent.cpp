// Compiled in place of this folder where the build has no LLVM.
#include "base/error.h"
#include "codegen/llvm/emit.h"

namespace meshfuse {

bool CpuTarget::has(std::string_view) const { return false; }

void emitCpu(const tile::Program&, const CpuTarget&, llvm::Module&) {
  throwUserError(
      "[llvm] this build of meshfuse has no LLVM, so there are no CPU kernels; install llvm-19-dev and configure "
      "again");
}

std::vector<std::pair<std::string, void*>> cpuRuntimeSymbols() { return {}; }

}  // namespace meshfuse
