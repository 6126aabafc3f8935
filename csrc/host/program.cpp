#include "host/program.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

std::string placeOf(const TensorPlan& t) {
  return t.place == Place::Arena ? fmt::format("arena + {}", t.offset)
                                 : fmt::format("{} {}", t.place == Place::Input ? "input" : "output", t.index);
}

}  // namespace

std::string CommCall::name() const {
  return isPermutation ? "permute" : fmt::format("{}{}", meshfuse::name(kind), counts.empty() ? "" : "-v");
}

std::string HostProgram::toString() const {
  std::string text = fmt::format("host program, arena {} bytes, peak {} bytes\n", arenaBytes, peakBytes);
  const auto listed = [this](const std::vector<int64_t>& some) {
    return joined(some, ", ",
                  [this](int64_t t) { return fmt::format("T{} ({})", tensors[t].val, placeOf(tensors[t])); });
  };
  for (const Step& s : steps) {
    std::string detail;
    if (s.kind == HostStepKind::Launch) {
      detail = fmt::format(", {} parts", s.launch.parts);
    } else if (s.kind == HostStepKind::Communicate) {
      detail = fmt::format(" among [{}], {} bytes received", fmt::join(s.comm.team.ranks, ", "), s.comm.bytesReceived);
    }
    text += fmt::format("  {}: {} -> {}{}\n", s.name, listed(s.reads), listed(s.writes), detail);
  }
  return text;
}

void sayingMemory(const HostProgram& program, const std::function<void()>& allocate) {
  try {
    allocate();
  } catch (const UserError& e) {
    const auto largest = std::ranges::max_element(program.tensors, {}, &TensorPlan::bytes);
    if (largest == program.tensors.end()) {
      throw;
    }
    throwUserError(
        fmt::format("{}\nthe program takes {} bytes: arguments, results and an arena of {} bytes; its largest "
                    "tensor is T{} {}[{}] of {} bytes",
                    e.what(), program.peakBytes, program.arenaBytes, largest->val, name(largest->dtype),
                    fmt::join(largest->sizes, ", "), largest->bytes));
  }
}

}  // namespace meshfuse
