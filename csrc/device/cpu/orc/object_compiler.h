// One program to one relocatable object, and an object to memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "codegen/llvm/emit.h"
#include "device/cpu/orc/cpu_compiler.h"

namespace meshfuse {

// LLVM's state for compiling: used by one thread at a time. No passes over the IR run. Code generation has the lowest
// optimization level, but with the basic register allocator. Kernels are at most a tenth slower than with full optimization and compile in
// a third of its time, because the emitter already writes optimized IR.
class ObjectCompiler {
 public:
  explicit ObjectCompiler(const CpuTarget& target);
  ~ObjectCompiler();
  ObjectCompiler(const ObjectCompiler&) = delete;
  ObjectCompiler& operator=(const ObjectCompiler&) = delete;

  std::string object(const tile::Program& program);
  std::string assemblyText(const tile::Program& program);
  std::string irText(const tile::Program& program);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Maps an object's code. Null if it is not a kernel's object.
[[nodiscard]] std::shared_ptr<const CpuKernel> loadObject(std::string_view object);

// LLVM's version, as part of keys.
[[nodiscard]] std::string llvmVersion();

}  // namespace meshfuse
