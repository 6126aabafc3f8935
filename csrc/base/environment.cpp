#include "base/environment.h"

#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace meshfuse {

std::string environmentText(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

std::optional<int64_t> environmentNumber(const char* variable, int64_t least, int64_t most, std::string_view what) {
  const std::string text = environmentText(variable);
  if (text.empty()) {
    return std::nullopt;
  }
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  check(read.ec == std::errc() && read.ptr == end && value >= least && value <= most,
        "[environment] {} is \"{}\", expected {} from {} to {}", variable, text, what, least, most);
  return value;
}

}  // namespace meshfuse
