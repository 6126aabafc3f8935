// Variables of the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace meshfuse {

// The value of a variable; "" if it is not set.
[[nodiscard]] std::string environmentText(const char* variable);
// The number that a variable gives; nothing if it is not set or empty. UserError unless it is `what`, as "a number of threads", from
// `least` to `most`.
[[nodiscard]] std::optional<int64_t> environmentNumber(const char* variable, int64_t least, int64_t most,
                                                       std::string_view what = "a number");

}  // namespace meshfuse
