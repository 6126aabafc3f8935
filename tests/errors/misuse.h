// Programs that are wrong: the type of the error and the phrases that say what, got and expected.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/activation.h"
#include "ops/channel_norms.h"
#include "ops/contraction.h"
#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/scan_sort.h"
#include "ops/shape_ops.h"
#include "ops/statistics.h"
#include "ops/tensors.h"

namespace meshfuse {

inline void expectUserError(const std::function<void()>& program, const std::vector<std::string>& phrases) {
  try {
    program();
  } catch (const UserError& error) {
    std::string text = error.what();
    for (const std::string& phrase : phrases) {
      EXPECT_NE(text.find(phrase), std::string::npos) << "'" << phrase << "' is missing in: " << text;
    }
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected a UserError, got: " << error.what();
    return;
  }
  ADD_FAILURE() << "expected a UserError with '" << phrases.at(0) << "', got none";
}

// With a fusion to write into.
class Misuse : public testing::Test {
 protected:
  Fusion fusion;
  FusionGuard guard{&fusion};
  TensorView* x = makeConcreteTensor({2, 3});
  TensorView* y = makeConcreteTensor({4, 3});
  TensorView* n = makeConcreteTensor({2, 3}, DataType::Int);
  TensorView* zeroD = makeConcreteTensor({});
  TensorView* none = nullptr;
};

}  // namespace meshfuse
