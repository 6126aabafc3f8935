// Rows: the template of pointwise, reduction and normalization kernels, written once for all devices.
//
// A target chooses the digits of the axes m, k, n; the structure follows from them:
//   pointwise           for m: for n: store every output
//   inner (n reduced)   for m: one sweep over k and n for each reduction stage, then stores of outputs over n. The last sweep adds to sums
//                       of columns, if there are any, in a scratch row on a CPU and in registers on a GPU
//   outer (k reduced)   for m: for n: one sweep over k for each stage, then stores
// An axis without a serial digit is not looped over: its values stay in registers from one sweep to the next.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedule/axes.h"
#include "schedule/coordinates.h"
#include "schedule/group.h"
#include "schedule/template.h"
#include "tile/builder.h"

namespace meshfuse {

// The decisions of a target.
struct RowDigits {
  std::vector<tile::Builder::DigitSpec> m, k, n;  // empty: the axis is absent (extent 1)
  std::vector<tile::GridDim> grid;
  bool spill = false;         // inner: keep costly intermediates of a sweep in scratch for the next
  bool prefetchRows = false;  // bring in row m + 1 during the sweeps over row m
  int64_t pipelineRows = 0;   // inner: rows of a part, software pipelined; m has no digits then
  int64_t prefetchAhead = 0;  // pointwise: distance in elements of n, if rows are not prefetched
  bool scratchRow = false;    // outer: partial results in scratch, k outside n
  // The first grid dim cuts the reduced axes, or m if the kernel sums columns too: partial results are combined by the last arriver, for
  // each part of a second grid dim. A GPU that sums columns too cuts m twice: the first grid dim counts runs of neighbouring parts, the
  // second the parts of one run.
  bool split = false;
  int64_t streamBytes = INT64_MAX;  // outputs larger than this bypass the caches
};

// A kernel of fewer rows than this may have fewer rows than threads, so a CPU cuts long rows into parts, which the threads share.
inline constexpr int64_t kFewRows = 16;

// Whether some op of the group takes many times as long as an addition, such as exp: isFunction() of ir/point_work.h.
[[nodiscard]] bool isCostly(const Group& group);

// Serial digits, outermost first, of an axis along which a sum accumulates in steps of `each` additions. Each step over a digit but the
// innermost adds the sum of a block: with few terms in each sum, the error grows as that of a pairwise sum. The outermost digit has few
// blocks, because its sums are the largest; `lanes` sums beside each other, which are added up at the end as a tree, allow more terms.
// The outermost digit has the size 0: it runs to the bound. 2048 steps in one lane: {0, 16, 32}, of 4 blocks; in 64 lanes: {0, 4, 16}, of
// 32.
[[nodiscard]] std::vector<tile::Builder::DigitSpec> summing(int64_t steps, int64_t each = 1, int64_t lanes = 1);
// The same with a size for each digit: together they have room for `steps`.
[[nodiscard]] std::vector<tile::Builder::DigitSpec> summingPart(int64_t steps, int64_t each = 1, int64_t lanes = 1);

// Elements of n that one step covers, with digits for n.
[[nodiscard]] int64_t stepWidth(const std::vector<tile::Builder::DigitSpec>& n);

// Digits on a CPU and on a GPU, of axes that are not all of extent 1.
[[nodiscard]] RowDigits cpuDigits(const Group& group, const Coordinates& coordinates, const KernelAxes& axes,
                                  const DeviceInfo& device);
[[nodiscard]] RowDigits gpuDigits(const Group& group, const Coordinates& coordinates, const KernelAxes& axes,
                                  const DeviceInfo& device);

// The facts about a group that a kernel of rows computes.
struct RowsJudgement final : Judgement {
  RowsJudgement(const Group& group, Coordinates coordinates, const DeviceInfo& device);
  [[nodiscard]] std::variant<KernelPlan, LibraryCall> write() const override;
  [[nodiscard]] KernelPlan writeChoice(size_t i) const;
  [[nodiscard]] bool readsWhereItWrites(const TensorView* output, const TensorView* input) const override;
  [[nodiscard]] std::optional<std::string> refuseParts(const Judgement& a, const Judgement& b) const override;

  DeviceInfo device;
  Coordinates coordinates;
  std::vector<KernelAxes> choices;  // the longest vector axis first
  RowDigits digits;                 // of the first choice
};

// Why a CPU computes the group in several kernels: its rows are few, so a kernel of whole rows would leave threads without work, and too long
// for the second cache, so such a kernel would read them again as often as several do.
[[nodiscard]] std::optional<std::string> refuseFewRows(const RowsJudgement& judgement);

// Why a kernel of rows does not sum columns too: sizes vary; the rows are few, narrow or, with their sums, longer than the second cache of a
// CPU or the registers of a GPU; sums of rows alone have a faster structure. If it does, all accesses run along the rows, so write() takes the
// first of the choices.
[[nodiscard]] std::optional<std::string> refuseColumns(const RowsJudgement& judgement);

[[nodiscard]] Verdict judgeRows(const Group& group, const DeviceInfo& device);

}  // namespace meshfuse
