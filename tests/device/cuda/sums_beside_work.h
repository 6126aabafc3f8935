// A program of several ranks whose collectives run beside kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ranges.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

inline constexpr int64_t kElements = 1 << 10;  // 4 KiB

// Two sums over the ranks, the second of the first one's results, beside a kernel that needs neither; then ops that need one of them or all.
// `checked`: a lookup by an index that may be out of range.
inline std::unique_ptr<Fusion> sumsBesideWork(int64_t ranks, bool checked = false) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
  const auto input = [&](std::vector<int64_t> shape, DataType type = DataType::Float) {
    TensorView* x = makeContigConcreteTensor(shape, type);
    fusion->addInput(x);
    x->setDeviceMesh(mesh);
    return x;
  };
  const auto overRanks = [&](TensorView* factor) {
    TensorView* terms = input({ranks, kElements});
    terms->outer_split(0, ranks);
    terms->axis(0)->parallelize(ParallelType::DIDx);
    TensorView* total = sum(mul(terms, factor), {0});
    total->setDeviceMesh(mesh);
    return total;
  };
  TensorView* first = overRanks(input({kElements}));
  TensorView* second = overRanks(first);
  TensorView* beside = exp(input({2 * kElements}));
  fusion->addOutput(beside);
  TensorView* then = sub(first, input({kElements}));
  fusion->addOutput(then);
  fusion->addOutput(add(then, second));
  if (checked) {
    fusion->addOutput(embedding_fwd(input({5}, DataType::Int), input({8, 4})));
  }
  return fusion;
}

// Numbers are 1.
inline std::vector<Argument> argumentsOf(const Fusion& fusion, int64_t rank, uint64_t seed) {
  return mapped(fusion.inputs(), [&](const Val* in) -> Argument {
    if (!in->isTensor()) {
      return int64_t{1};
    }
    const TensorView* tv = in->asTensor();
    const Tensor whole = tv->dtype() == DataType::Int
                             ? Tensor::of({0, 1, 2, 3, 4}, {5}, DataType::Int)
                             : randomTensor(tv->constantShape(), tv->dtype(), seed + static_cast<uint64_t>(in->id()));
    return shardTensor(whole, tv, rank).clone();
  });
}

inline std::vector<Argument> moved(const std::vector<Argument>& arguments, DeviceId to) {
  return mapped(arguments, [&](const Argument& a) {
    const Tensor* const tensor = std::get_if<Tensor>(&a);
    return tensor != nullptr ? Argument(tensor->to(to)) : a;
  });
}

}  // namespace meshfuse
