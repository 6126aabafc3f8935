#include "autoplan/work.h"

#include <algorithm>
#include <string>

#include "autoplan/strategies.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ir/point_work.h"

namespace meshfuse {

Work workOf(const Expr& expr) {
  if (isView(expr)) {
    return {};
  }
  const TensorView* out = expr.tensorOutput();
  // The elements that a sum adds (its root domain has the summed dims too), or that a window copies (its logical domain).
  const bool isWindow = ruleOf(expr).form == OpForm::Window;
  const double elements =
      productOf(isWindow ? out->getLogicalDomain() : out->getRootDomain(),
                [](const IterDomain* id) { return static_cast<double>(id->extent().constValue()); });
  if (isContraction(expr)) {
    const double result = productOf(out->constantShape(), [](int64_t n) { return static_cast<double>(n); });
    return {
        .flops = 2 * elements,
        .product = {std::string(expr.opName()), out->dtype(), static_cast<int64_t>(elements / std::max(1.0, result))}};
  }
  const bool isSlow = expr.kind() == ExprKind::Point && isFunction(expr.attributes().point);
  return isSlow ? Work{.functions = elements} : Work{.points = elements};
}

}  // namespace meshfuse
