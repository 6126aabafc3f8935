// An explanation as text and as JSON.
#pragma once

#include <optional>
#include <string>

#include "tools/step_times.h"
#include "tools/terminal.h"
#include "tools/traced_run.h"

namespace meshfuse {

struct Explanation;

[[nodiscard]] std::string explanationText(const Explanation& explanation, const Terminal& terminal);
// One JSON object: meshes, tensors, edges, communications, steps, buffers, graphs, remarks (arrays), rank, device, program, arena_bytes,
// peak_bytes, bytes_received, timeline if the program ran, and times if there are any. `page.h` draws the same data. bytes_received adds
// up, over the collectives, the bytes that the busiest rank of each receives; of an all-reduce, the mean of its ranks.
[[nodiscard]] std::string explanationJson(const Explanation& explanation, const Timeline& timeline,
                                          const std::optional<StepTimes>& times);

}  // namespace meshfuse
