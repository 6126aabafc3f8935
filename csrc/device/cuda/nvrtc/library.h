// The loaded NVRTC of the process.
#pragma once

#include "device/cuda/api/nvrtc.h"
#include "device/cuda/api/vendor_library.h"

namespace meshfuse {

struct NvrtcLibrary : VendorLibrary {
  NvrtcLibrary();

  MESHFUSE_NVRTC_CALLS(MESHFUSE_VENDOR_MEMBER);
  int major = 0;
  int minor = 0;
};

// Loaded at the first call.
NvrtcLibrary& nvrtcLibrary();

}  // namespace meshfuse
