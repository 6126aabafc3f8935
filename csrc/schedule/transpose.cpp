#include "schedule/transpose.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "schedule/eligibility.h"
#include "schedule/extents.h"
#include "schedule/transpose_writer.h"

namespace meshfuse {

namespace {

// Smaller ones are left to rows: a block would be mostly empty, or the kernel costs more to compile than it saves.
constexpr int64_t kLeastExtent = 8;
constexpr int64_t kLeastElements = 4096;
// Blocks that are exchanged: on a CPU all of them stay in the first caches, on a GPU in the registers of a thread.
constexpr size_t kMostExchangedCpu = 8;
constexpr size_t kMostExchangedGpu = 3;

}  // namespace

TransposeJudgement::TransposeJudgement(const Group& g, Coordinates c, TransposeAxes a, const DeviceInfo& d)
    : Judgement(g), device(d), coordinates(std::move(c)), axes(std::move(a)) {
  kind = "transpose";
  cost = costOf(group, device);
  loops = coordinates.extents;
  positions = usualExtent(axes.M) * usualExtent(axes.N) * usualExtent(axes.B);
}

std::variant<KernelPlan, LibraryCall> TransposeJudgement::write() const {
  KernelPlan plan = TransposeWriter(group, coordinates, axes, device).write();
  plan.kind = kind;
  return plan;
}

// Results along n are stored before other inputs along m are read.
bool TransposeJudgement::readsWhereItWrites(const TensorView* output, const TensorView* input) const {
  return sharePositions(group, coordinates, output, input) &&
         contains(axes.outputsAlongN, output) == contains(axes.inputsAlongN, input);
}

std::optional<std::string> TransposeJudgement::refuseParts(const Judgement& a, const Judgement& b) const {
  for (const Judgement* part : {&a, &b}) {
    if (part->callsLibrary) {
      return "one of them is no kernel";
    }
  }
  return std::nullopt;
}

Verdict judgeTranspose(const Group& group, const DeviceInfo& device) {
  if (std::ranges::any_of(group.exprs, [](const Expr* e) { return e->kind() == ExprKind::Reduce; })) {
    return {};
  }
  CoordinatesOrReason found = rowCoordinates(group);
  if (!found.coordinates) {
    return {};  // as rows says
  }
  std::optional<TransposeAxes> axes = findTransposeAxes(group, *found.coordinates);
  if (!axes) {
    return {};
  }
  const bool onCpu = device.target == tile::Target::Cpu;
  const int64_t m = usualExtent(axes->M);
  const int64_t n = usualExtent(axes->N);
  if (std::min(m, n) < kLeastExtent || m * n * usualExtent(axes->B) < kLeastElements ||
      axes->exchanged.size() > (onCpu ? kMostExchangedCpu : kMostExchangedGpu)) {
    return {};
  }
  return {std::make_unique<const TransposeJudgement>(group, std::move(*found.coordinates), std::move(*axes), device),
          {}};
}

}  // namespace meshfuse
