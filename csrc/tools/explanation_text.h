// An explanation for people and for programs.
#pragma once

#include <span>
#include <string>

#include "tools/terminal.h"
#include "tools/traced_run.h"

namespace meshfuse {

struct Explanation;

[[nodiscard]] std::string explanationText(const Explanation& explanation, const Terminal& terminal);
// One JSON object: meshes, tensors, edges, communications, steps, buffers, remarks (arrays), rank, program, arena_bytes, peak_bytes,
// bytes_received, and of a run timeline. `page.h` draws the same.
// Bytes received are those of the busiest rank, of an all-reduce those of the mean rank.
[[nodiscard]] std::string explanationJson(const Explanation& explanation, std::span<const RankSpans> timeline);

}  // namespace meshfuse
