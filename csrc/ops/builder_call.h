// The name of a builder that is composed of others, for errors.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "ops/operand.h"

namespace meshfuse {

// Run-time errors name the ops that are added between construction and destruction `builder` (a string literal) instead of their own names.
// If calls nest, the outermost name is used.
class BuilderCall {
 public:
  BuilderCall(std::string_view builder, const TensorView* operand);  // a null operand: nothing is named
  // The same for the first tensor of these.
  BuilderCall(std::string_view builder, std::initializer_list<Operand> operands);
  ~BuilderCall();
  BuilderCall(const BuilderCall&) = delete;
  BuilderCall& operator=(const BuilderCall&) = delete;

 private:
  std::string_view builder_;
  Fusion* fusion_;
  int64_t first_;
};

}  // namespace meshfuse
