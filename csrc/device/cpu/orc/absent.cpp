// Compiled in place of this folder where the build has no LLVM.
#include "base/error.h"
#include "device/cpu/orc/cpu_compiler.h"

namespace meshfuse {

namespace {

[[noreturn]] void throwAbsent() {
  throwUserError(
      "[llvm] this build of meshfuse has no LLVM, so there are no CPU kernels; install llvm-19-dev and configure "
      "again");
}

}  // namespace

struct CpuCompiler::State {};

CpuCompiler::CpuCompiler(CpuCompilerOptions) : state_(std::make_unique<State>()) {}
CpuCompiler::~CpuCompiler() = default;
std::vector<std::shared_ptr<const CpuKernel>> CpuCompiler::compile(std::span<const tile::Program>) { throwAbsent(); }
CpuCompilerCounters CpuCompiler::counters() const { return {}; }
const CpuTarget& CpuCompiler::target() const { throwAbsent(); }
std::string CpuCompiler::irText(const tile::Program&) const { throwAbsent(); }
std::string CpuCompiler::assemblyText(const tile::Program&) const { throwAbsent(); }
CpuTarget hostTarget() { throwAbsent(); }
CpuTarget narrowerTarget(const CpuTarget&, int64_t) { throwAbsent(); }

}  // namespace meshfuse
