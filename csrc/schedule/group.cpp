#include "schedule/group.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "tensor/tensor.h"

namespace meshfuse {

Layout layoutOf(const TensorView* tensor, const std::map<int64_t, Layout>& layouts) {
  const auto known = layouts.find(tensor->id());
  return known != layouts.end() ? known->second : Layout{contiguousStrides(tensor->constantShape())};
}

std::vector<const Expr*> reductionsOf(const Group& group) {
  std::vector<const Expr*> reductions;
  std::ranges::copy_if(group.exprs, std::back_inserter(reductions),
                       [](const Expr* e) { return e->kind() == ExprKind::Reduce; });
  return reductions;
}

std::vector<TensorView*> tensorsOf(const Group& group) {
  std::vector<TensorView*> tensors = group.inputs;
  append(tensors, group.outputs);
  return tensors;
}

}  // namespace meshfuse
