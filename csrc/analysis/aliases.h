// Aliases: which results are views of their operand, so that no kernel need compute them.
//
// A view has the operand's elements in the operand's memory, under strides:
//   set, permute, broadcast, squeeze, expand (stride 0), slice (offset and stride)   always
//   reshape   if each dim it merges lies contiguous in the operand's memory: a split needs nothing
//   cast to the same type, bit_cast
// What lies in the way of a view is a later matter: a pad, a cat, arithmetic, segment_set, a change of sharding.
#pragma once

#include <string_view>
#include <vector>

namespace meshfuse {

class Expr;
class Fusion;
class TensorView;

// For a result that is a view if the operand lies in memory as its allocation domain says.
[[nodiscard]] bool isView(const Expr& expr);

class Aliases {
 public:
  static constexpr std::string_view kName = "aliases";
  explicit Aliases(const Fusion& fusion);

  // The tensor whose memory `tensor` is a view of, through any number of views; itself if it is none.
  [[nodiscard]] TensorView* base(const TensorView* tensor) const;
  // Fusion outputs that are views of a fusion input, in order of outputs.
  [[nodiscard]] std::vector<TensorView*> outputsThatViewInputs() const;

 private:
  const Fusion& fusion_;
  std::vector<TensorView*> base_;  // by id of value
};

}  // namespace meshfuse
