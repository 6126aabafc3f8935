// Defines a fusion over given tensors, checks the definition, and interprets it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "inputs.h"
#include "interpret/interpret.h"
#include "ir/text.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/channel_norms.h"
#include "ops/contraction.h"
#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/scan_sort.h"
#include "ops/shape_ops.h"
#include "ops/statistics.h"

namespace meshfuse {

using Row = std::vector<double>;
using Views = std::vector<TensorView*>;
using Define = std::function<Views(const Views&)>;

enum class Extents { Symbolic, Concrete };

// The outputs of what `define` makes of inputs like `tensors`. Checks that the fusion obeys the rules of the IR and that its text
// reads back.
inline std::vector<Tensor> runAs(Extents extents, const std::vector<Tensor>& tensors, const Define& define) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  Views views;
  std::vector<Argument> arguments;
  for (const Tensor& tensor : tensors) {
    std::vector<int64_t> sizes(tensor.sizes().begin(), tensor.sizes().end());
    views.push_back(extents == Extents::Symbolic ? makeSymbolicTensor(sizes, tensor.dtype())
                                                 : makeConcreteTensor(sizes, tensor.dtype()));
    fusion.addInput(views.back());
    arguments.emplace_back(tensor);
  }
  for (TensorView* out : define(views)) {
    fusion.addOutput(out);
  }
  for (const std::string& violation : verify(fusion)) {
    ADD_FAILURE() << violation << "\n" << fusion.toString();
  }
  std::string text = fusion.toString();
  EXPECT_EQ(parseFusion(text)->toString(), text);
  return interpret(fusion, arguments);
}

// With symbolic and with constant extents, which must agree.
inline std::vector<Tensor> run(const std::vector<Tensor>& tensors, const Define& define) {
  std::vector<Tensor> symbolic = runAs(Extents::Symbolic, tensors, define);
  std::vector<Tensor> concrete = runAs(Extents::Concrete, tensors, define);
  EXPECT_EQ(symbolic.size(), concrete.size());
  for (size_t k = 0; k < symbolic.size(); k++) {
    EXPECT_EQ(symbolic[k].toString(), concrete[k].toString());
  }
  return concrete;
}

inline Tensor run1(const std::vector<Tensor>& tensors, const std::function<TensorView*(const Views&)>& define) {
  return run(tensors, [&](const Views& views) { return Views{define(views)}; }).at(0);
}

inline std::vector<int64_t> sizesOf(const Tensor& tensor) { return {tensor.sizes().begin(), tensor.sizes().end()}; }

// 0, 1, 2, .. in a shape.
inline Tensor counting(std::vector<int64_t> sizes, DataType dtype = DataType::Float) {
  std::vector<double> values;
  int64_t total = 1;
  for (int64_t size : sizes) {
    total *= size;
  }
  for (int64_t i = 0; i < total; i++) {
    values.push_back(static_cast<double>(i));
  }
  return Tensor::of(values, std::move(sizes), dtype);
}

inline Tensor doubles(const Row& values, std::vector<int64_t> sizes) {
  return Tensor::of(values, std::move(sizes), DataType::Double);
}

// Infinities are exact.
inline void expectNear(const Tensor& got, const Row& expected, double tolerance) {
  const Row values = got.toVector();
  ASSERT_EQ(values.size(), expected.size());
  for (size_t k = 0; k < expected.size(); k++) {
    if (std::isinf(expected[k])) {
      EXPECT_EQ(values[k], expected[k]) << "element " << k;
    } else {
      EXPECT_NEAR(values[k], expected[k], tolerance) << "element " << k;
    }
  }
}

// d sum(dy * f(x)) / dx by central differences.
inline Row slopes(const std::function<Row(const Row&)>& f, const Row& x, const Row& dy) {
  Row result;
  for (size_t k = 0; k < x.size(); k++) {
    double sum = 0;
    for (double sign : {1.0, -1.0}) {
      Row moved = x;
      moved[k] += sign * 1e-6;
      const Row y = f(moved);
      for (size_t j = 0; j < y.size(); j++) {
        sum += sign * dy[j] * y[j] / 2e-6;
      }
    }
    result.push_back(sum);
  }
  return result;
}

}  // namespace meshfuse
