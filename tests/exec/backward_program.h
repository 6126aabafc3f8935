// A backward pass whose gradients are added up over the ranks: its all-reduces run beside its kernels.
#pragma once

#include <memory>
#include <vector>

#include "base/ranges.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

inline constexpr int64_t kBackwardLayers = 4;
inline constexpr int64_t kBackwardFeatures = 288;
inline constexpr int64_t kBackwardRows = 24;

// The gradients of linear layers: dx is the next layer's dy; the terms of dw on the ranks are added up. `checked`: two lookups whose indices
// may be out of range; those of the second are cut over the ranks, which gather them after the check.
inline std::unique_ptr<Fusion> backwardProgram(int64_t ranks, bool checked = false) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
  const auto rows = [&] {
    TensorView* x = makeContigConcreteTensor({ranks, kBackwardRows, kBackwardFeatures});
    fusion->addInput(x);
    x->setDeviceMesh(mesh);
    x->outer_split(0, ranks);
    x->axis(0)->parallelize(ParallelType::DIDx);
    return x;
  };
  TensorView* dy = rows();
  for (int64_t layer = 0; layer < kBackwardLayers; layer++) {
    TensorView* dw = sum(matmul(transpose(dy, 1, 2), rows()), {0});
    dw->setDeviceMesh(mesh);
    fusion->addOutput(dw);
    TensorView* w = makeContigConcreteTensor({kBackwardFeatures, kBackwardFeatures});
    fusion->addInput(w);
    w->setDeviceMesh(mesh);
    dy = matmul(dy, w);
  }
  if (checked) {
    TensorView* table = makeContigConcreteTensor({kBackwardFeatures, 4});
    TensorView* index = makeContigConcreteTensor({5}, DataType::Int);
    for (TensorView* tv : {table, index}) {
      fusion->addInput(tv);
      tv->setDeviceMesh(mesh);
    }
    fusion->addOutput(embedding_fwd(index, table));
    TensorView* parts = makeContigConcreteTensor({5 * ranks}, DataType::Int);
    fusion->addInput(parts);
    parts->setDeviceMesh(mesh);
    parts->outer_split(0, ranks);
    parts->axis(0)->parallelize(ParallelType::DIDx);
    TensorView* found = embedding_fwd(parts, table);
    found->setDeviceMesh(mesh);
    fusion->addOutput(found);
  }
  fusion->addOutput(dy);
  return fusion;
}

inline std::vector<Argument> argumentsOf(const Fusion& fusion, int64_t rank) {
  return mapped(fusion.inputs(), [rank](const Val* in) -> Argument {
    const TensorView* tv = in->asTensor();
    if (tv->dtype() == DataType::Int) {
      return Tensor::of({0, 1, 2, 3, 4}, {5}, DataType::Int);
    }
    return shardTensor(randomTensor(tv->constantShape(), tv->dtype(), in->id()), tv, rank).clone();
  });
}

}  // namespace meshfuse
