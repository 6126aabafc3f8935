#include "autoplan/roles.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "autoplan/strategies.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

// Whether the result has elements of the operand only: a cast, a copy, a view, a row of a table.
bool passesThrough(const Expr& e) {
  using enum ExprKind;
  return isView(e) || e.kind() == Set || e.kind() == Cast || e.kind() == Slice;
}

}  // namespace

Roles::Roles(const Fusion& fusion) {
  std::map<int64_t, int64_t> origin;  // of a tensor that has elements of an input only
  std::set<int64_t> stretched;        // a broadcast dim was added
  std::set<int64_t> overRows;         // stretched operands of elementwise ops
  std::set<int64_t> second;           // operands of products, but the first
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
          (form == OpForm::Index ? parameters_ : second).insert(from->second);
        } else {
          data.insert(from->second);
        }
      } else if (form == OpForm::Pointwise && stretched.contains(from->second)) {
        overRows.insert(from->second);
      }
    }
  }
  // tokens that choose rows of a table are data, although their mask stretches, and so are rows from which a backward pass makes the
  // gradient of a weight
  for (const std::set<int64_t>& read : {overRows, second}) {
    std::ranges::set_difference(read, data, std::inserter(parameters_, parameters_.end()));
  }
  for (const auto& [output, input] : fusion.aliases()) {
    const bool isRead = parameters_.contains(input->id()) || data.contains(input->id());
    (isRead ? parameters_ : state_).insert(input->id());
  }
}

}  // namespace meshfuse
