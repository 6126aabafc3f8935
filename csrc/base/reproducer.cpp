#include "base/reproducer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "base/ranges.h"
#include "meshfuse_config.h"

namespace meshfuse {

std::string writeReproducer(std::span<const std::string_view> passes, std::string_view failed,
                            const std::string& program, const std::map<std::string, int64_t>& sizes) {
  const int64_t count = std::min(positionIn(passes, failed) + 1, std::ssize(passes));
  const std::string flags =
      joined(sizes, "", [](const auto& size) { return fmt::format("--size {}={} ", size.first, size.second); });
  std::error_code error;
  std::filesystem::path path =
      std::filesystem::temp_directory_path(error) / fmt::format("meshfuse-{}.fir", hashText(program + flags).hex());
  std::ofstream file(path);
  file << fmt::format("# meshfuse {}: {} failed\n# meshfuse opt {} {}--pass={}\n", kVersion, failed, path.string(),
                      flags, fmt::join(passes.first(count), ","))
       << program;
  file.close();
  return file.good() ? path.string() : "";
}

}  // namespace meshfuse
