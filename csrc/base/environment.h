// Variables of the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace meshfuse {

// The value of a variable; "" if it is not set.
[[nodiscard]] std::string environmentText(const char* variable);
// The number that a variable gives; nothing if it is not set or empty. UserError unless it is an integer from `least` to `most`; the error
// calls it `what`, such as "a number of threads".
[[nodiscard]] std::optional<int64_t> environmentNumber(const char* variable, int64_t least, int64_t most,
                                                       std::string_view what = "a number");

}  // namespace meshfuse
