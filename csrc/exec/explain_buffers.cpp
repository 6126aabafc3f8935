// The memory range of each tensor, and its first and last step.
#include <fmt/core.h>

#include <algorithm>

#include "exec/explain_parts.h"
#include "host/program.h"

namespace meshfuse {

std::vector<ExplainedBuffer> explainBuffers(const HostProgram& program) {
  const int last = static_cast<int>(program.steps.size()) - 1;
  std::vector<ExplainedBuffer> buffers;
  for (const TensorPlan& t : program.tensors) {
    const std::string_view place = t.place == Place::Input ? "argument" : t.place == Place::Output ? "result" : "arena";
    const bool stays = t.place != Place::Arena;
    buffers.push_back(
        {fmt::format("T{}", t.val), std::string(place), t.offset, t.bytes, stays ? 0 : last + 1, stays ? last : -1});
  }
  auto lives = [&](int tensor, int step) {
    ExplainedBuffer& b = buffers[tensor];
    b.firstStep = std::min(b.firstStep, step);
    b.lastStep = std::max(b.lastStep, step);
  };
  for (int i = 0; i <= last; i++) {
    const Step& s = program.steps[i];
    for (const auto* list : {&s.reads, &s.writes, &s.operands}) {
      std::ranges::for_each(*list, [&](int t) { lives(t, i); });
    }
  }
  std::erase_if(buffers, [](const ExplainedBuffer& b) { return b.firstStep > b.lastStep; });
  for (int i = 0; i <= last; i++) {
    const LaunchPlan& l = program.steps[i].launch;
    for (size_t k = 0; k < l.workspaces.size(); k++) {
      const int64_t bytes = k < l.zeroed.size() ? l.zeroed[k] : 0;
      if (bytes > 0) {
        buffers.push_back({"workspace", "arena", l.workspaces[k], bytes, i, i});
      }
    }
  }
  std::ranges::stable_sort(buffers, {}, &ExplainedBuffer::firstStep);
  return buffers;
}

}  // namespace meshfuse
