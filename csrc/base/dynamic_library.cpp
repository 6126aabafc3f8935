#include "base/dynamic_library.h"

#include <dlfcn.h>

#include <filesystem>

namespace meshfuse {

DynamicLibrary::DynamicLibrary(std::span<const std::string> names) {
  for (const std::string& name : names) {
    if (name.empty()) {
      continue;
    }
    std::error_code error;
    if (name.find('/') != std::string::npos && std::filesystem::exists(name, error) &&
        !std::filesystem::is_regular_file(name, error)) {  // dlopen of a pipe waits for a writer
      reason_ += (reason_.empty() ? "" : "; ") + name + " is no regular file";
      continue;
    }
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      name_ = name;
      reason_.clear();
      return;
    }
    const char* why = dlerror();
    reason_ += (reason_.empty() ? "" : "; ") + std::string(why != nullptr ? why : name + " did not load");
  }
}

void* DynamicLibrary::address(const char* symbol) {
  void* at = handle_ == nullptr ? nullptr : dlsym(handle_, symbol);
  if (at == nullptr && handle_ != nullptr) {
    reason_ = name_ + " has no function " + symbol;
  }
  return at;
}

}  // namespace meshfuse
