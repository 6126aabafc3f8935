#include "autoplan/roles.h"

#include <map>

#include "autoplan/strategies.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

// Whether the result is the operand in other words: a cast, a copy, a view.
bool passesThrough(const Expr& e) { return isView(e) || e.kind() == ExprKind::Set || e.kind() == ExprKind::Cast; }

}  // namespace

Roles::Roles(const Fusion& fusion) {
  std::map<int64_t, int64_t> origin;  // of a tensor that is an input in other words
  std::set<int64_t> stretched;        // a broadcast dim was added
  std::set<int64_t> data;             // first operands of products, and indices
  for (const Val* in : fusion.inputs()) {
    origin[in->id()] = in->id();
  }
  for (const Expr* e : fusion.exprs()) {
    for (const int64_t operand : e->tensorPositions()) {
      const auto from = origin.find(e->input(operand)->id());
      if (from == origin.end()) {
        continue;
      }
      const OpForm form = ruleOf(*e).form;
      if (passesThrough(*e)) {
        origin[e->output()->id()] = from->second;
        if (form == OpForm::Broadcast) {
          stretched.insert(from->second);
        }
      } else if (form == OpForm::Contract || form == OpForm::Index) {
        const int64_t parameter = form == OpForm::Index ? tableOf(*e) : 1;
        if (operand >= parameter && operand != indexOf(*e)) {
          parameters_.insert(from->second);
        } else {
          data.insert(from->second);
        }
      } else if (form == OpForm::Pointwise && stretched.contains(from->second)) {
        parameters_.insert(from->second);
      }
    }
  }
  for (const auto& [output, input] : fusion.aliases()) {
    const bool isRead = parameters_.contains(input->id()) || data.contains(input->id());
    (isRead ? parameters_ : state_).insert(input->id());
  }
}

}  // namespace meshfuse
