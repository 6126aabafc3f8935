#include "device/cuda/api/vendor_library.h"

#include <cstdlib>

#include "base/ranges.h"

namespace meshfuse {

namespace {

std::vector<std::string> placesOf(const std::vector<std::string>& sonames, const std::vector<std::string>& further) {
  const char* const folder = std::getenv("MESHFUSE_CUDA_LIBRARIES");
  if (folder != nullptr && *folder != '\0') {
    return mapped(sonames, [&](const std::string& soname) { return std::string(folder) + "/" + soname; });
  }
  std::vector<std::string> places = sonames;
  append(places, further);
  return places;
}

}  // namespace

VendorLibrary::VendorLibrary(const std::vector<std::string>& sonames, const std::vector<std::string>& further)
    : library_(placesOf(sonames, further)), reason_(library_.reason()) {}

}  // namespace meshfuse
