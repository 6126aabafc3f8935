// An explanation for people and for programs.
#pragma once

#include <string>

#include "tools/terminal.h"

namespace meshfuse {

struct Explanation;

[[nodiscard]] std::string explanationText(const Explanation& explanation, const Terminal& terminal);
// One JSON object: tensors, edges, communications, steps, remarks (arrays), rank, arena_bytes, peak_bytes, bytes_received.
// Bytes received are those of the busiest rank, of an all-reduce those of the mean rank.
[[nodiscard]] std::string explanationJson(const Explanation& explanation);

}  // namespace meshfuse
