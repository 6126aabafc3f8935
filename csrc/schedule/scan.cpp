#include "schedule/scan.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "schedule/elementwise.h"
#include "schedule/scan_writer.h"

namespace meshfuse {

namespace {

constexpr size_t kMostTensors = 8;  // of a kernel: each takes registers

bool isScan(const Expr* e) { return e->kind() == ExprKind::Scan; }

bool isBesideScan(const Expr& e) {
  return isElementwise(e) || e.kind() == ExprKind::Expand || e.kind() == ExprKind::Iota;
}

// Why a kernel does not compute the ops, whatever their positions.
std::string refuseOps(const Group& group, const Expr& scan) {
  for (const Expr* e : group.exprs) {
    if (e != &scan && !isBesideScan(*e)) {
      return fmt::format("{} is not computed in a kernel with a scan", e->opName());
    }
  }
  const DataType type = scan.output()->dtype();  // 16 elements of Double and their totals would take too many registers
  if (type == DataType::Double || !tile::hasScan(scan.attributes().reduce, type)) {
    return fmt::format("{} of {} along a line is a library call", name(scan.attributes().reduce), name(type));
  }
  const auto isConstant = [](const TensorView* tv) {
    return std::ranges::all_of(tv->shape(), [](const IntExpr& e) { return e.isConst(); });
  };
  if (!std::ranges::all_of(tensorsOf(group), isConstant) || !isConstant(scan.tensorOutput())) {
    return "a scan whose sizes vary is a library call";
  }
  return tensorsOf(group).size() > kMostTensors ? "a kernel with a scan would need too many registers" : "";
}

// The dim of the iteration space that the scan runs along, if its result has all dims.
std::optional<int64_t> scannedDim(const Coordinates& c, const Expr& scan) {
  const auto index = c.index.find(scan.output()->id());
  if (index == c.index.end() || !(product(scan.tensorOutput()->shape()) == product(c.extents))) {
    return std::nullopt;
  }
  const auto dims = indices(c.extents);
  const auto found = std::ranges::find_if(dims, [&](int64_t d) {
    const IntExpr& i = index->second[scan.attributes().dim];
    return i.isSymbol() && i.symbolName() == dimSymbol(d);
  });
  return found == dims.end() ? std::nullopt : std::optional(*found);
}

// Whether elements that are neighbours along a dim are neighbours in memory, in each tensor that runs over the dim.
bool liesAlong(const Group& group, const Coordinates& c, int64_t dim) {
  return std::ranges::all_of(tensorsOf(group), [&](const TensorView* tv) {
    const std::vector<IntExpr>& index = c.index.at(tv->id());
    const std::vector<int64_t> strides = constantStrides(tv, group.layouts);
    return std::ranges::all_of(indices(index), [&](int64_t d) {
      return !runsOver(index[d], dim) || (index[d].isSymbol() && strides[d] == 1);
    });
  });
}

}  // namespace

ScanJudgement::ScanJudgement(const Group& g, const Expr* s, Coordinates c, KernelAxes a, const DeviceInfo& d)
    : Judgement(g), scan(s), device(d), coordinates(std::move(c)), axes(std::move(a)) {
  kind = "scan";
  writesAnyLayout = false;  // only those that lie as the operand does
  cost = costOf(group, device);
  loops = coordinates.extents;
  positions = product(coordinates.extents).constValue();
}

std::variant<KernelPlan, LibraryCall> ScanJudgement::write() const {
  KernelPlan plan = ScanWriter(*this).write();
  plan.kind = kind;
  return plan;
}

Verdict judgeScan(const Group& group, const DeviceInfo& device) {
  const int64_t scans = std::ranges::count_if(group.exprs, isScan);
  if (device.target != tile::Target::Gpu || scans == 0) {
    return {};
  }
  // of a scan alone the routine says more
  const auto refused = [&](std::string reason) {
    return Verdict{nullptr, group.exprs.size() == 1 ? std::string() : std::move(reason)};
  };
  if (scans > 1) {
    return refused("a kernel has one scan");
  }
  const Expr* scan = *std::ranges::find_if(group.exprs, isScan);
  if (std::string reason = refuseOps(group, *scan); !reason.empty()) {
    return refused(std::move(reason));
  }
  CoordinatesOrReason found = findCoordinates(group);
  if (!found.coordinates) {
    return refused(std::move(found.reason));
  }
  const Coordinates& c = *found.coordinates;
  const auto isPlaced = [&](const TensorView* tv) { return c.index.contains(tv->id()); };
  if (c.conflicted || !std::ranges::all_of(tensorsOf(group), isPlaced) ||
      !std::ranges::all_of(group.exprs, [&](const Expr* e) { return isPlaced(e->tensorOutput()); })) {
    return refused("a tensor is needed at two positions");
  }
  const std::optional<int64_t> dim = scannedDim(c, *scan);
  if (!dim) {
    return refused("the scan would be computed more than once, or along a dim of one element");
  }
  KernelAxes axes;
  bool isInside = false;
  for (int64_t d : c.order) {
    if (d == *dim) {
      isInside = true;
      axes.k.push_back(d);
      axes.K = c.extents[d];
    } else if (!c.extents[d].isConst(1)) {
      (isInside ? axes.n : axes.m).push_back(d);
      (isInside ? axes.N : axes.M) *= c.extents[d];
    }
  }
  if (!liesAlong(group, c, axes.n.empty() ? *dim : axes.n.back())) {
    return refused("tensors lie in memory along different dims");
  }
  return {std::make_unique<const ScanJudgement>(group, scan, std::move(*found.coordinates), std::move(axes), device),
          {}};
}

}  // namespace meshfuse
