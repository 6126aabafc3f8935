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
  const auto listed = [this](const std::vector<int>& some) {
    std::string list;
    for (const int t : some) {
      list += fmt::format("{}T{} ({})", list.empty() ? "" : ", ", tensors[t].val, placeOf(tensors[t]));
    }
    return list;
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

}  // namespace meshfuse
