// Objects become kernels: linked into memory of their own.
#include <dlfcn.h>
#include <llvm/ExecutionEngine/RTDyldMemoryManager.h>
#include <llvm/ExecutionEngine/RuntimeDyld.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/rounding.h"
#include "device/cpu/orc/object_compiler.h"

namespace meshfuse {

using namespace llvm;

namespace {

const std::map<std::string, void*, std::less<>>& runtimeSymbols() {
  static const std::map<std::string, void*, std::less<>> table = [] {
    const auto symbols = cpuRuntimeSymbols();
    return std::map<std::string, void*, std::less<>>(symbols.begin(), symbols.end());
  }();
  return table;
}

uintptr_t wholePages(uintptr_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return roundUp(bytes, page);
}

// One stretch of address space for a kernel's code, constants and data: they reach each other by 32-bit distances, which the
// linker of LLVM does not check, and pieces mapped one by one may end up further apart where much is mapped.
class KernelMemory final : public RTDyldMemoryManager {
 public:
  KernelMemory() = default;
  ~KernelMemory() override {
    if (base_ != nullptr) {
      munmap(base_, bytes_);
    }
  }

  bool needsToReserveAllocationSpace() override { return true; }
  void reserveAllocationSpace(uintptr_t codeBytes, Align codeAlign, uintptr_t constantBytes, Align constantAlign,
                              uintptr_t dataBytes, Align dataAlign) override {
    uintptr_t largestAlign = std::max({codeAlign.value(), constantAlign.value(), dataAlign.value()});
    invariant(base_ == nullptr && wholePages(1) % largestAlign == 0,
              "[kernel memory] the memory is already reserved, or the alignment {} is not supported", largestAlign);
    const uintptr_t code = wholePages(codeBytes);
    const uintptr_t constants = wholePages(constantBytes);
    // A page more: the linker does not announce the addresses of functions elsewhere, 8 bytes for each function called.
    const uintptr_t data = wholePages(dataBytes) + wholePages(1);
    bytes_ = code + constants + data;
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    deviceCheck(at != MAP_FAILED,
                "[kernel memory] cannot reserve {} bytes for a kernel's code; raise the limit of the address space",
                bytes_);
    base_ = static_cast<uint8_t*>(at);
    code_ = {base_, base_, base_ + code};
    constants_ = {code_.end, code_.end, code_.end + constants};
    data_ = {constants_.end, constants_.end, constants_.end + data};
  }

  uint8_t* allocateCodeSection(uintptr_t bytes, unsigned align, unsigned, StringRef) override {
    return take(code_, bytes, align);
  }
  uint8_t* allocateDataSection(uintptr_t bytes, unsigned align, unsigned, StringRef, bool isConstant) override {
    return take(isConstant ? constants_ : data_, bytes, align);
  }

  // Code becomes executable, constants become read-only. True if that failed: LLVM's convention.
  bool finalizeMemory(std::string* = nullptr) override {
    auto bytesOf = [](const Part& part) { return static_cast<size_t>(part.end - part.begin); };
    return mprotect(code_.begin, bytesOf(code_), PROT_READ | PROT_EXEC) != 0 ||
           mprotect(constants_.begin, bytesOf(constants_), PROT_READ) != 0;
  }

  // Our scalar functions first, then those of the process: the C library, for what a machine lacks as instructions.
  uint64_t getSymbolAddress(const std::string& name) override {
    auto found = runtimeSymbols().find(name);
    void* address = found != runtimeSymbols().end() ? found->second : dlsym(RTLD_DEFAULT, name.c_str());
    return reinterpret_cast<uint64_t>(address);
  }

 private:
  struct Part {
    uint8_t* begin = nullptr;
    uint8_t* next = nullptr;
    uint8_t* end = nullptr;
  };

  static uint8_t* take(Part& part, uintptr_t bytes, unsigned align) {
    const uintptr_t alignment = std::max(align, 1U);
    uintptr_t at = roundUp(reinterpret_cast<uintptr_t>(part.next), alignment);
    auto* section = reinterpret_cast<uint8_t*>(at);
    invariant(section + bytes <= part.end, "[kernel memory] a section of {} bytes exceeds the reserved memory", bytes);
    part.next = section + bytes;
    return section;
  }

  uint8_t* base_ = nullptr;
  size_t bytes_ = 0;
  Part code_, constants_, data_;  // in this order, each on pages of its own
};

}  // namespace

std::shared_ptr<const CpuKernel> loadObject(std::string_view bytes) {
  auto memory = std::make_shared<KernelMemory>();
  Expected<std::unique_ptr<object::ObjectFile>> file =
      object::ObjectFile::createObjectFile(MemoryBufferRef(StringRef(bytes.data(), bytes.size()), "kernel"));
  if (!file) {
    consumeError(file.takeError());
    return nullptr;
  }
  RuntimeDyld linker(*memory, *memory);
  linker.loadObject(**file);
  linker.resolveRelocations();
  if (linker.hasError() || memory->finalizeMemory()) {
    return nullptr;
  }
  uint64_t run = linker.getSymbol(std::string(kKernelSymbol)).getAddress();
  uint64_t scratch = linker.getSymbol(std::string(kScratchBytesSymbol)).getAddress();
  if (run == 0 || scratch == 0) {
    return nullptr;
  }
  auto kernel = std::make_shared<CpuKernel>();
  kernel->run = reinterpret_cast<CpuKernel::Run>(run);
  kernel->scratchBytes = reinterpret_cast<CpuKernel::ScratchBytes>(scratch);
  kernel->code = std::move(memory);
  return kernel;
}

}  // namespace meshfuse
