#include "exec/json_text.h"

#include <fmt/core.h>

namespace meshfuse {

std::string jsonText(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
    }
    result += static_cast<unsigned char>(c) < 0x20 ? fmt::format("\\u{:04x}", static_cast<int>(c)) : std::string(1, c);
  }
  return result + "\"";
}

}  // namespace meshfuse
