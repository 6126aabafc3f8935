// TransposeAxes: the dims of a pointwise group whose tensors lie in memory along two different dims, gathered into two axes of a kernel.
//
//   m       the dims along which it writes, innermost in the memory of its results
//   n       the dims along which it reads, innermost in the memory of the other tensors
//   batch   all other dims
//
//   permute(x [64, 512, 1024], {2, 0, 1})              m = (64, 512)   n = 1024
//   add(permute(x [8, M, N], {0, 2, 1}), z [8, N, M])   m = M           n = N         batch = 8
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/coordinates.h"

namespace meshfuse {

struct TransposeAxes {
  std::vector<int64_t> m, n, batch;  // reference dims, outermost first
  IntExpr M = 1, N = 1, B = 1;

  // The tensors that lie along n and along m. Other outputs lie along m; other inputs are small.
  std::vector<const TensorView*> inputsAlongN;
  std::vector<const TensorView*> inputsAlongM;
  std::vector<const TensorView*> outputsAlongN;
  // The tensors that are computed along n and read along m: each is exchanged once.
  std::vector<const TensorView*> exchanged;
  // In elements: divides the offset of each access along n (along m), and its steps along all other axes.
  int64_t divisorAlongN = 1;
  int64_t divisorAlongM = 1;

  // The reference dims as expressions of the axes' coordinates.
  std::vector<IntExpr> dims(const Coordinates& c, const IntExpr& mAt, const IntExpr& nAt, const IntExpr& batchAt) const;
};

// The axes of a group without reductions; nothing if its tensors lie along one dim, or if one of them cannot be read along m or n.
[[nodiscard]] std::optional<TransposeAxes> findTransposeAxes(const Group& group, const Coordinates& coordinates);

}  // namespace meshfuse
