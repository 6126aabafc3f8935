#include "tools/terminal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <iterator>

namespace meshfuse {

Terminal::Terminal(int64_t fileDescriptor) {
  const char* term = std::getenv("TERM");
  colours_ = isatty(fileDescriptor) == 1 && std::getenv("NO_COLOR") == nullptr && std::getenv("PMIX_RANK") == nullptr &&
             (term == nullptr || std::string_view(term) != "dumb");
}

std::string Terminal::painted(std::string_view code, std::string_view text) const {
  return colours_ ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
}

std::pair<double, std::string_view> inUnits(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  const auto* unit = kUnits;
  for (; bytes >= 1024 && unit != std::end(kUnits) - 1; unit++) {
    bytes /= 1024;
  }
  return {bytes, *unit};
}

std::string bytesText(int64_t bytes) {
  const auto [value, unit] = inUnits(static_cast<double>(bytes));
  return bytes < 1024 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {} ({} bytes)", value, unit, bytes);
}

}  // namespace meshfuse
