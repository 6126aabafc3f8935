// The file that a failing pass writes: `meshfuse opt --pass=...` fails on it in the same way.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace meshfuse {

// Writes the program as it was before a stage, with the names of the failed pass and of the passes after it, to the directory for
// temporary files. Returns the path; "" if the file cannot be written. passes: all passes of the stage in order, including
// `failed`.
[[nodiscard]] std::string writeReproducer(std::span<const std::string_view> passes, std::string_view failed,
                                          const std::string& program);

}  // namespace meshfuse
