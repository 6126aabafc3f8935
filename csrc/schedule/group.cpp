#include "schedule/group.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

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
