#include "schedule/elementwise.h"

#include "ir/expr.h"

namespace meshfuse {

bool isElementwise(const Expr& e) {
  switch (e.kind()) {
    case ExprKind::Point:
    case ExprKind::Cast:
    case ExprKind::Set:
    case ExprKind::Broadcast:
    case ExprKind::Squeeze:
    case ExprKind::Full:
    case ExprKind::Random:
      return true;
    default:
      return false;
  }
}

}  // namespace meshfuse
