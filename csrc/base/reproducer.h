// The file that a failing pass writes. Its first lines have the command with which `meshfuse opt` fails in the same way.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace meshfuse {

// Writes the program as it was before a stage, with the passes of the stage up to the failed one, to the directory for temporary files.
// Returns the path; "" if the file cannot be written. passes: all passes of the stage in order, including `failed`. sizes: the values of
// size symbols for which the stage planned.
[[nodiscard]] std::string writeReproducer(std::span<const std::string_view> passes, std::string_view failed,
                                          const std::string& program, const std::map<std::string, int64_t>& sizes = {});

}  // namespace meshfuse
