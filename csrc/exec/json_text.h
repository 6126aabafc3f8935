// Text in JSON.
#pragma once

#include <string>
#include <string_view>

namespace meshfuse {

// With quotes: a "b" becomes "a \"b\"".
[[nodiscard]] std::string jsonText(std::string_view text);

}  // namespace meshfuse
