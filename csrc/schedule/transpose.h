// Transpose: the template of pointwise groups whose tensors lie in memory along two different dims (`transpose_axes.h`).
//
// A kernel works block by block. It reads a block along n, computes there what it can, exchanges the values, and writes along m:
//
//   CPU   for blocks:  for m: for n:  convert(values) -> scratch       16 x 16 elements in registers
//                      for n: for m:  store(results of scratch); prefetch a part of the next block
//   GPU   convert(values) through shared memory; store(results)
//
// Both directions move whole cache lines, whatever the strides.
#pragma once

#include "schedule/template.h"
#include "schedule/transpose_axes.h"
#include "tile/builder.h"

namespace meshfuse {

// The decisions of a target about a kernel of one block size.
struct TransposeBlocks {
  int64_t rows = 1;     // positions of m in a block
  int64_t columns = 1;  // positions of n
  int64_t vector = 1;   // CPU: elements of a vector
  // CPU: blocks of a part, one after the other along n; along m if all of n is one block.
  bool alongM = false;
  int64_t inPart = 1;
  bool prefetches = false;
};

// Blocks of a CPU for elements of these sizes, of the results along m and of the tensors along n. onlyStreamsAlongM: nothing but streaming
// stores of results goes along m.
[[nodiscard]] TransposeBlocks cpuBlocks(const TransposeAxes& axes, int64_t bytesAlongM, int64_t bytesAlongN,
                                        bool onlyStreamsAlongM, const DeviceInfo& device);

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
