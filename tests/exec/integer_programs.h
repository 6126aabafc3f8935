// Programs over tensors of one integer type, compiled and compared with the interpreter.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"

namespace meshfuse {

using Values = std::vector<double>;

inline TensorView* symbolicInput(Fusion& f, int64_t dims, DataType type) {
  TensorView* t = makeContigTensor(dims, type);
  f.addInput(t);
  return t;
}

// The elements of op(a, b), computed in `type`.
inline Values binary(DataType type, const Values& a, const Values& b,
                     const std::function<TensorView*(TensorView*, TensorView*)>& op) {
  CheckedCache checked([&](Fusion& f) {
    TensorView* x = symbolicInput(f, 1, type);
    f.addOutput(op(x, symbolicInput(f, 1, type)));
  });
  const auto n = std::ssize(a);
  EXPECT_EQ(checked.call({Tensor::of(a, {n}, type), Tensor::of(b, {n}, type)}), "");
  return checked.results()[0].toVector();
}

}  // namespace meshfuse
