#include "analysis/dependencies.h"

#include <algorithm>

#include "ir/fusion.h"

namespace meshfuse {

Dependencies::Dependencies(const Fusion& fusion) : fusion_(fusion), order_(fusion.exprs(ExprSet::All)) {
  position_.assign(static_cast<size_t>(fusion.numExprs()), -1);
  for (size_t k = 0; k < order_.size(); k++) {
    position_[static_cast<size_t>(order_[k]->id())] = static_cast<int>(k);
  }
}

int Dependencies::position(const Expr* expr) const {
  return static_cast<size_t>(expr->id()) < position_.size() ? position_[static_cast<size_t>(expr->id())] : -1;
}

bool Dependencies::dependsOn(const Val* later, const Val* earlier) const {
  if (later == earlier) {
    return true;
  }
  int first = earlier->definition() == nullptr ? -1 : position(earlier->definition());
  std::vector<const Expr*> open;
  std::vector<bool> seen(position_.size(), false);
  auto visit = [&](const Val* v) {
    const Expr* e = v->definition();
    if (e != nullptr && position(e) > first &&
        !seen[static_cast<size_t>(e->id())]) {  // what stands before cannot need it
      seen[static_cast<size_t>(e->id())] = true;
      open.push_back(e);
    }
  };
  visit(later);
  while (!open.empty()) {
    const Expr* e = open.back();
    open.pop_back();
    for (const Val* in : e->inputs()) {
      if (in == earlier) {
        return true;
      }
      visit(in);
    }
  }
  return false;
}

std::vector<Expr*> Dependencies::upstream(std::span<Val* const> to) const {
  std::vector<bool> needed(static_cast<size_t>(fusion_.numVals()), false);
  for (const Val* v : to) {
    needed[static_cast<size_t>(v->id())] = true;
  }
  std::vector<Expr*> found;
  for (size_t k = order_.size(); k-- > 0;) {
    Expr* e = order_[k];
    if (std::any_of(e->outputs().begin(), e->outputs().end(),
                    [&](const Val* v) { return needed[static_cast<size_t>(v->id())]; })) {
      found.push_back(e);
      for (const Val* in : e->inputs()) {
        needed[static_cast<size_t>(in->id())] = true;
      }
    }
  }
  std::reverse(found.begin(), found.end());
  return found;
}

std::vector<Expr*> Dependencies::downstream(std::span<Val* const> from) const {
  std::vector<bool> reached(static_cast<size_t>(fusion_.numVals()), false);
  for (const Val* v : from) {
    reached[static_cast<size_t>(v->id())] = true;
  }
  std::vector<Expr*> found;
  for (Expr* e : order_) {
    if (std::any_of(e->inputs().begin(), e->inputs().end(),
                    [&](const Val* v) { return reached[static_cast<size_t>(v->id())]; })) {
      found.push_back(e);
      for (const Val* out : e->outputs()) {
        reached[static_cast<size_t>(out->id())] = true;
      }
    }
  }
  return found;
}

std::vector<Expr*> Dependencies::between(std::span<Val* const> from, std::span<Val* const> to) const {
  std::vector<Expr*> up = upstream(to);
  std::vector<Expr*> down = downstream(from);
  std::vector<bool> both(position_.size(), false);
  for (const Expr* e : down) {
    both[static_cast<size_t>(e->id())] = true;
  }
  std::erase_if(up, [&](const Expr* e) { return !both[static_cast<size_t>(e->id())]; });
  return up;
}

}  // namespace meshfuse
