// A library of NVIDIA's that is loaded at run time, and the functions of a table of calls.
//
//   struct NvrtcLibrary : VendorLibrary {
//     MESHFUSE_NVRTC_CALLS(MESHFUSE_VENDOR_MEMBER);
//     NvrtcLibrary() : VendorLibrary(sonames, further) { MESHFUSE_NVRTC_CALLS(MESHFUSE_VENDOR_FIND); }
//   };
#pragma once

#include <string>
#include <vector>

#include "base/dynamic_library.h"

// For each call of a table: a member, a pointer to the function; and the assignment of that member in the constructor.
#define MESHFUSE_VENDOR_MEMBER(member, symbol, result, parameters) result(*member) parameters = nullptr
#define MESHFUSE_VENDOR_FIND(member, symbol, result, parameters) member = find<result parameters>(#symbol)

namespace meshfuse {

class VendorLibrary {
 public:
  // sonames: newest first ("libnvrtc.so.13"). If MESHFUSE_CUDA_LIBRARIES is set, only the folder that it names is searched; else the
  // loader's folders, then `further`, which are files.
  explicit VendorLibrary(const std::vector<std::string>& sonames, const std::vector<std::string>& further = {});

  bool usable() const { return reason_.empty(); }
  const std::string& reason() const { return reason_; }  // why it is not usable
  const std::string& name() const { return library_.name(); }

 protected:
  // Null, and the library is not usable, if the function is missing.
  template <class Function>
  Function* find(const char* symbol) {
    Function* const function = library_.find<Function>(symbol);
    if (function == nullptr && usable()) {
      reason_ = library_.reason();
    }
    return function;
  }
  void refuse(std::string reason) { reason_ = std::move(reason); }

 private:
  DynamicLibrary library_;
  std::string reason_;
};

}  // namespace meshfuse
