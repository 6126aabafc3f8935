// A program of ranks that have rows [rows, 3] each: their sum or maximum takes an all-reduce.
#pragma once

#include <memory>

#include "ir/fusion.h"
#include "ops/reduction.h"
#include "ops/tensors.h"
#include "tensor/tensor.h"

namespace meshfuse {

// An input whose dim 0 is cut over the ranks.
inline TensorView* rowsOf(Fusion& fusion, int64_t ranks) {
  TensorView* x = makeContigTensor(2);
  fusion.addInput(x);
  x->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
  x->outer_split(0, ranks);
  x->axis(0)->parallelize(ParallelType::DIDx);
  return x;
}

inline std::unique_ptr<Fusion> reducedRows(int64_t ranks, ReduceOp op = ReduceOp::Sum) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = rowsOf(*fusion, ranks);
  TensorView* y = op == ReduceOp::Sum ? sum(x, {0}) : max(x, {0});
  fusion->addOutput(y);
  y->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
  return fusion;
}

inline Tensor rows(int64_t count, DataType type = DataType::Float) { return Tensor::full({count, 3}, type, 1); }

}  // namespace meshfuse
