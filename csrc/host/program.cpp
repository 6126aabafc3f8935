#include "host/program.h"

#include <fmt/format.h>

#include "ir/fusion.h"

namespace meshfuse {

namespace {

std::string placeOf(const TensorPlan& t) {
  switch (t.place) {
    case Place::Input:
      return fmt::format("input {}", t.index);
    case Place::Output:
      return fmt::format("output {}", t.index);
    case Place::Arena:
      return fmt::format("arena + {}", t.offset);
  }
  return "";
}

}  // namespace

std::string CommCall::name() const {
  return isPermutation ? "permute" : fmt::format("{}{}", meshfuse::name(kind), counts.empty() ? "" : "-v");
}

std::string HostProgram::toString() const {
  std::string text = fmt::format("host program, arena {} bytes, peak {} bytes\n", arenaBytes, peakBytes);
  for (const Step& s : steps) {
    std::string reads;
    for (int t : s.reads) {
      const TensorPlan& p = tensors[t];
      reads += fmt::format("{}T{} ({})", reads.empty() ? "" : ", ", p.val, placeOf(p));
    }
    std::string writes;
    for (int t : s.writes) {
      const TensorPlan& p = tensors[t];
      writes += fmt::format("{}T{} ({})", writes.empty() ? "" : ", ", p.val, placeOf(p));
    }
    std::string detail;
    if (s.kind == HostStepKind::Launch) {
      detail = fmt::format(", {} parts", s.launch.parts);
    } else if (s.kind == HostStepKind::Communicate) {
      detail = fmt::format(" among [{}], {} bytes received", fmt::join(s.comm.team.ranks, ", "), s.comm.bytesReceived);
    }
    text += fmt::format("  {}: {} -> {}{}\n", s.name, reads, writes, detail);
  }
  return text;
}

}  // namespace meshfuse
