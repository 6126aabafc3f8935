#include "base/reproducer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "meshfuse_config.h"

namespace meshfuse {

std::string writeReproducer(std::span<const std::string_view> passes, std::string_view failed,
                            const std::string& program) {
  auto remaining = std::ranges::subrange(std::ranges::find(passes, failed), passes.end());
  std::error_code error;
  std::filesystem::path path =
      std::filesystem::temp_directory_path(error) / fmt::format("meshfuse-{}.fir", hashText(program).hex());
  std::ofstream file(path);
  file << fmt::format("# meshfuse {}: {} failed\n# remaining passes: {}\n", kVersion, failed, fmt::join(remaining, ","))
       << program;
  file.close();
  return file.good() ? path.string() : "";
}

}  // namespace meshfuse
