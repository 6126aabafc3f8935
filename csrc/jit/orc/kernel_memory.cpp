#include "jit/orc/kernel_memory.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "codegen/llvm/emit.h"

namespace meshfuse {

namespace {

const std::map<std::string, void*, std::less<>>& runtimeSymbols() {
  static const std::map<std::string, void*, std::less<>> table = [] {
    std::map<std::string, void*, std::less<>> t;
    for (auto& [name, address] : cpuRuntimeSymbols()) {
      t.emplace(name, address);
    }
    return t;
  }();
  return table;
}

uintptr_t wholePages(uintptr_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

KernelMemory::~KernelMemory() {
  if (base_ != nullptr) {
    munmap(base_, bytes_);
  }
}

void KernelMemory::reserveAllocationSpace(uintptr_t codeBytes, llvm::Align codeAlign, uintptr_t constantBytes,
                                          llvm::Align constantAlign, uintptr_t dataBytes, llvm::Align dataAlign) {
  uintptr_t largestAlign = std::max({codeAlign.value(), constantAlign.value(), dataAlign.value()});
  invariant(base_ == nullptr && wholePages(1) % largestAlign == 0, "[kernel memory] reserved twice, or alignment {}",
            largestAlign);
  const uintptr_t code = wholePages(codeBytes);
  const uintptr_t constants = wholePages(constantBytes);
  // A page more: the linker does not announce the addresses of functions elsewhere, 8 bytes for each function called.
  const uintptr_t data = wholePages(dataBytes) + wholePages(1);
  bytes_ = code + constants + data;
  void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  deviceCheck(at != MAP_FAILED, "[kernel memory] no {} bytes for a kernel's code; raise the limit of address space",
              bytes_);
  base_ = static_cast<uint8_t*>(at);
  code_ = {base_, base_, base_ + code};
  constants_ = {code_.end, code_.end, code_.end + constants};
  data_ = {constants_.end, constants_.end, constants_.end + data};
}

uint8_t* KernelMemory::take(Part& part, uintptr_t bytes, unsigned align) {
  const uintptr_t alignment = std::max(align, 1U);
  uintptr_t at = (reinterpret_cast<uintptr_t>(part.next) + alignment - 1) / alignment * alignment;
  auto* section = reinterpret_cast<uint8_t*>(at);
  invariant(section + bytes <= part.end, "[kernel memory] a section of {} bytes was not announced", bytes);
  part.next = section + bytes;
  return section;
}

uint8_t* KernelMemory::allocateCodeSection(uintptr_t bytes, unsigned align, unsigned, llvm::StringRef) {
  return take(code_, bytes, align);
}

uint8_t* KernelMemory::allocateDataSection(uintptr_t bytes, unsigned align, unsigned, llvm::StringRef,
                                           bool isConstant) {
  return take(isConstant ? constants_ : data_, bytes, align);
}

bool KernelMemory::finalizeMemory(std::string*) {
  auto bytesOf = [](const Part& part) { return static_cast<size_t>(part.end - part.begin); };
  return mprotect(code_.begin, bytesOf(code_), PROT_READ | PROT_EXEC) != 0 ||
         mprotect(constants_.begin, bytesOf(constants_), PROT_READ) != 0;
}

uint64_t KernelMemory::getSymbolAddress(const std::string& name) {
  auto found = runtimeSymbols().find(name);
  void* address = found != runtimeSymbols().end() ? found->second : dlsym(RTLD_DEFAULT, name.c_str());
  return reinterpret_cast<uint64_t>(address);
}

}  // namespace meshfuse
