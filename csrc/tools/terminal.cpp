#include "tools/terminal.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>

namespace meshfuse {

Terminal::Terminal(int fileDescriptor) {
  const char* term = std::getenv("TERM");
  colours_ = isatty(fileDescriptor) == 1 && std::getenv("NO_COLOR") == nullptr &&
             (term == nullptr || std::string_view(term) != "dumb");
}

std::string Terminal::painted(std::string_view code, std::string_view text) const {
  return colours_ ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
}

std::string bytesText(int64_t bytes) {
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) {
    return fmt::format("{} bytes", bytes);
  }
  double value = static_cast<double>(bytes) / 1024;
  int unit = 0;
  while (value >= 1024 && unit < 3) {
    value /= 1024;
    unit++;
  }
  return fmt::format("{:.1f} {} ({} bytes)", value, kUnits[unit], bytes);
}

}  // namespace meshfuse
