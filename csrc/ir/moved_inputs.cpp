#include "ir/moved_inputs.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <vector>

#include "base/ranges.h"
#include "ir/op_rule.h"
#include "ir/val.h"

namespace meshfuse {

namespace {

// Communications, casts, and ops whose result has all elements of their only tensor. The result of a part lives instead of the whole.
bool movesElements(const Expr& e) {
  const OpRule& rule = ruleOf(e);
  return e.output()->isTensor() && e.tensorInputs().size() == 1 && rule.form != OpForm::Window &&
         (rule.form == OpForm::Ranks || e.kind() == ExprKind::Cast || rule.elements == Elements::Moved);
}

}  // namespace

std::set<int64_t> movedInputs(std::span<Expr* const> exprs) {
  std::map<int64_t, std::vector<int64_t>> readers;
  std::set<int64_t> ofInputs;
  std::set<int64_t> result;
  for (const Expr* e : exprs) {
    const auto made = filtered(mapped(e->inputs(), [](const Val* in) { return in->definition(); }),
                               [](const Expr* definition) { return definition != nullptr; });
    std::ranges::for_each(made, [&](const Expr* from) { readers[from->id()].push_back(e->id()); });
    const auto isIn = [](const std::set<int64_t>& ids) {
      return [&ids](const Expr* from) { return ids.contains(from->id()); };
    };
    if (movesElements(*e) && std::ranges::all_of(made, isIn(ofInputs))) {
      ofInputs.insert(e->id());
      if (ruleOf(*e).form == OpForm::Ranks || std::ranges::any_of(made, isIn(result))) {
        result.insert(e->id());
      }
    }
  }
  for (const Expr* e : std::views::reverse(exprs)) {
    const std::vector<int64_t>& by = readers[e->id()];
    if (by.empty()) {
      result.erase(e->id());
    } else if (ofInputs.contains(e->id()) && std::ranges::all_of(by, [&](int64_t id) { return result.contains(id); })) {
      result.insert(e->id());
    }
  }
  return result;
}

}  // namespace meshfuse
