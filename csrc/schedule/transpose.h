// Transpose: the template of pointwise groups whose tensors lie in memory along two different dims (`transpose_axes.h`).
//
// A kernel works block by block. It reads a block along n, computes there what it can, exchanges the values, and writes along m:
//
//   CPU   for blocks of m:  for strips of n:  for squares of m:  store(results of convert(values)); prefetch a part of the next block
//   GPU   convert(values) through shared memory; store(results)
//
// A CPU turns squares of 16 x 16 elements in registers (8 x 8 of 8-byte types). If results are stored past the caches, a block is two lines
// of a row of the result by a page of a row of an input, and the blocks of a part fill a page of each row of the result: a processor knows
// the addresses of few pages at once, so all of a page is used while it is known. If results stay in the caches, a block is at most 256 x
// 256 elements. A strip, the squares of one vector of n, goes through scratch if its results would not be whole lines because squares are
// narrower than lines. If rows of the result begin within lines, a line is made of two squares in registers (`transpose_shifted.cpp`).
#pragma once

#include "schedule/template.h"
#include "schedule/transpose_axes.h"
#include "tile/builder.h"

namespace meshfuse {

// The blocks of a CPU.
struct TransposeBlocks {
  int64_t rows = 1;     // positions of m in a block
  int64_t columns = 1;  // positions of n
  int64_t vector = 1;   // elements
  int64_t inPart = 1;   // blocks of a part, one after the other along m
};

// Blocks for elements of these sizes, of the results along m and of the tensors along n. streams: all results along m are stored past the
// caches.
[[nodiscard]] TransposeBlocks cpuBlocks(const TransposeAxes& axes, int64_t bytesAlongM, int64_t bytesAlongN,
                                        bool streams);

struct TransposeJudgement final : Judgement {
  TransposeJudgement(const Group& group, Coordinates coordinates, TransposeAxes axes, const DeviceInfo& device);
  [[nodiscard]] std::variant<KernelPlan, LibraryCall> write() const override;
  [[nodiscard]] bool readsWhereItWrites(const TensorView* output, const TensorView* input) const override;
  [[nodiscard]] std::optional<std::string> refuseParts(const Judgement& a, const Judgement& b) const override;

  DeviceInfo device;
  Coordinates coordinates;
  TransposeAxes axes;
};

[[nodiscard]] Verdict judgeTranspose(const Group& group, const DeviceInfo& device);

}  // namespace meshfuse
