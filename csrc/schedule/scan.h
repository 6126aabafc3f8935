// Scan: the template of running totals (cumsum, running extremes) with elementwise ops before and after, on a GPU.
//
// A block holds tiles of whole segments: 16 elements of a line in the registers of one thread (`Scan` in tile.h). Lines longer than a tile
// are scanned tile by tile, and the total is carried.
//
//   lines along memory    v = elements, in vectors;  t = scan(convert v);  results from convert(t), in vectors
//   lines across memory   lanes lie on lines that are neighbours; no exchange of elements
//
// The routine for a scan (csrc/device/cuda/routines) remains for groups that this template refuses: scans of Double, products of floating
// types, narrow integers, sizes that are not constant, and operands that lie in memory along other dims. Both keep sums of Float in Double,
// but add up segments in different orders, so the last bit of a result may differ. Sums that are only rounded to 16 bits
// (tile/coarse_values.h) are Float within a segment here, so they may differ by 17 x 2^-24 of the sum of the absolute values.
#pragma once

#include "schedule/axes.h"
#include "schedule/template.h"

namespace meshfuse {

struct ScanJudgement final : Judgement {
  ScanJudgement(const Group& group, const Expr* scan, Coordinates coordinates, KernelAxes axes,
                const DeviceInfo& device);
  [[nodiscard]] std::variant<KernelPlan, LibraryCall> write() const override;
  [[nodiscard]] bool readsWhereItWrites(const TensorView*, const TensorView*) const override { return false; }
  [[nodiscard]] std::optional<std::string> refuseParts(const Judgement&, const Judgement&) const override {
    return "a scan shares its kernel with the ops that it reads or that read it";
  }

  const Expr* scan;
  DeviceInfo device;
  Coordinates coordinates;
  KernelAxes axes;  // k: the dim of the scan; m and n: the dims outside and inside of it, as they lie in memory
};

[[nodiscard]] Verdict judgeScan(const Group& group, const DeviceInfo& device);

}  // namespace meshfuse
