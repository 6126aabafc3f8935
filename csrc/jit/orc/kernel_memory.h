// Where the code and the constants of one kernel lie. LLVM's headers stay within this folder.
#pragma once

#include <llvm/ExecutionEngine/RTDyldMemoryManager.h>

#include <string>

namespace meshfuse {

// One stretch of address space for a kernel's code, constants and data: they reach each other by 32-bit distances, which the
// linker of LLVM does not check, and pieces mapped one by one may end up further apart where much is mapped.
class KernelMemory final : public llvm::RTDyldMemoryManager {
 public:
  KernelMemory() = default;
  ~KernelMemory() override;

  bool needsToReserveAllocationSpace() override { return true; }
  void reserveAllocationSpace(uintptr_t codeBytes, llvm::Align codeAlign, uintptr_t constantBytes,
                              llvm::Align constantAlign, uintptr_t dataBytes, llvm::Align dataAlign) override;
  uint8_t* allocateCodeSection(uintptr_t bytes, unsigned align, unsigned id, llvm::StringRef name) override;
  uint8_t* allocateDataSection(uintptr_t bytes, unsigned align, unsigned id, llvm::StringRef name,
                               bool isConstant) override;
  // Code becomes executable, constants become read-only. True if that failed: LLVM's convention.
  bool finalizeMemory(std::string* error = nullptr) override;

  // Our scalar functions first, then those of the process: the C library, for what a machine lacks as instructions.
  uint64_t getSymbolAddress(const std::string& name) override;

 private:
  struct Part {
    uint8_t* begin = nullptr;
    uint8_t* next = nullptr;
    uint8_t* end = nullptr;
  };
  static uint8_t* take(Part& part, uintptr_t bytes, unsigned align);

  uint8_t* base_ = nullptr;
  size_t bytes_ = 0;
  Part code_, constants_, data_;  // in this order, each on pages of its own
};

}  // namespace meshfuse
