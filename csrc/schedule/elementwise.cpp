#include "schedule/elementwise.h"

#include "base/ranges.h"
#include "ir/expr.h"

namespace meshfuse {

bool isElementwise(const Expr& e) {
  using enum ExprKind;
  constexpr ExprKind kKinds[] = {Point, Cast, Set, Broadcast, Squeeze, Full, Random};
  return contains(kKinds, e.kind());
}

}  // namespace meshfuse
