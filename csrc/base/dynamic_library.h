// A library that is loaded at run time under the first of several names; if none loads, the reason.
#pragma once

#include <span>
#include <string>

namespace meshfuse {

class DynamicLibrary {
 public:
  // Tries the names in order. Never throws: see loaded() and reason().
  explicit DynamicLibrary(std::span<const std::string> names);

  bool loaded() const { return handle_ != nullptr; }
  const std::string& reason() const { return reason_; }
  const std::string& name() const { return name_; }

  // The function of that name as the type of its declaration; null, and reason() set, if it is missing.
  template <class Function>
  Function* find(const char* symbol) {
    return reinterpret_cast<Function*>(address(symbol));
  }

 private:
  void* address(const char* symbol);

  void* handle_ = nullptr;  // stays loaded until the process ends
  std::string name_;
  std::string reason_;
};

}  // namespace meshfuse
