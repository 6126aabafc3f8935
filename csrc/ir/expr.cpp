#include "ir/expr.h"

#include "base/error.h"
#include "ir/tensor_view.h"
#include "ir/val.h"

namespace meshfuse {

namespace {

const std::array<ExprKindInfo, 28>& kinds() {
  using enum Attribute;
  static const std::array<ExprKindInfo, 28> kExprKinds = {{
      {ExprKind::Set, "set", {}},
      {ExprKind::SegmentSet, "segment_set", {}},
      {ExprKind::Point, "point", {}},  // the op is its name in the text
      {ExprKind::Cast, "cast", {}},
      {ExprKind::BitCast, "bit_cast", {}},
      {ExprKind::Broadcast, "broadcast", {Flags}},
      {ExprKind::Squeeze, "squeeze", {Flags}},
      {ExprKind::Expand, "expand", {}},
      {ExprKind::Permute, "permute", {Order}},
      {ExprKind::Reshape, "reshape", {}},
      {ExprKind::Slice, "slice", {Starts, Stops, Steps, Plan}},
      {ExprKind::Pad, "pad", {Starts, Stops, Plan}},
      {ExprKind::Cat, "cat", {Dim, Plan}},
      {ExprKind::Reduce, "reduce", {Reduce}},
      {ExprKind::Matmul, "matmul", {}},
      {ExprKind::Linear, "linear", {}},
      {ExprKind::Full, "full", {}},
      {ExprKind::Iota, "iota", {Starts}},
      {ExprKind::Eye, "eye", {Starts}},
      {ExprKind::Random, "random", {Random, Ordinal, Starts, Stops}},
      {ExprKind::TakeAlongAxis, "take_along_axis", {Dim}},
      {ExprKind::Gather, "gather", {Dim}},
      {ExprKind::IndexSelect, "index_select", {Dim}},
      {ExprKind::Embedding, "embedding", {Starts, Flags}},
      {ExprKind::Scan, "scan", {Reduce, Dim}},
      {ExprKind::ArgSort, "argsort", {Dim, Flags}},
      {ExprKind::Redistribute, "redistribute", {Reduce, Dim, Plan, Pack}},
      {ExprKind::Communicate, "communicate", {Comm}},
  }};
  return kExprKinds;
}

}  // namespace

const ExprKindInfo& info(ExprKind kind) {
  const ExprKindInfo& row = kinds().at(static_cast<size_t>(kind));
  invariant(row.kind == kind, "[ir] the rows of expr kinds do not stand in the order of the enumeration at {}",
            row.name);
  return row;
}

std::optional<ExprKind> parseExprKind(std::string_view name) {
  for (const ExprKindInfo& row : kinds()) {
    if (row.name == name) {
      return row.kind;
    }
  }
  return std::nullopt;
}

std::vector<TensorView*> Expr::tensorInputs() const {
  std::vector<TensorView*> tensors;
  for (Val* v : inputs_) {
    if (v->isTensor()) {
      tensors.push_back(v->asTensor());
    }
  }
  return tensors;
}

TensorView* Expr::tensorOutput(int k) const { return outputs_.at(static_cast<size_t>(k))->asTensor(); }

std::string_view Expr::opName() const {
  return kind_ == ExprKind::Point ? info(attributes_.point).name : info(kind_).name;
}

}  // namespace meshfuse
