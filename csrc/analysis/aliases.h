// Aliases: which results are views of their operand. No kernel has to compute a view.
//
// A view has the operand's elements in the operand's memory, under strides:
//   set, permute, broadcast, squeeze, expand (stride 0), slice (offset and stride)   always
//   reshape   if the dims that it merges are contiguous in the operand's memory; splits are always possible
//   cast to the same type, bit_cast
// Never a view: a pad, a cat, arithmetic, segment_set, a change of sharding.
#pragma once

#include <string_view>
#include <vector>

namespace meshfuse {

class Expr;
class Fusion;
class TensorView;

// True if the result is a view, provided that the operand's memory has the order of its allocation domain.
[[nodiscard]] bool isView(const Expr& expr);

class Aliases {
 public:
  static constexpr std::string_view kName = "aliases";
  explicit Aliases(const Fusion& fusion);

  // The tensor whose memory `tensor` is a view of, through any number of views; `tensor` itself if it is no view.
  [[nodiscard]] TensorView* base(const TensorView* tensor) const;
  // Fusion outputs that are views of a fusion input, in order of outputs.
  [[nodiscard]] std::vector<TensorView*> outputsThatViewInputs() const;

 private:
  const Fusion& fusion_;
  std::vector<TensorView*> base_;  // by id of value
};

}  // namespace meshfuse
