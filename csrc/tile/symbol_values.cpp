#include "tile/symbol_values.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"

namespace meshfuse::tile {

namespace {

int64_t apply(AtomKind kind, int64_t a, int64_t b) {
  if (kind == AtomKind::Min) {
    return std::min(a, b);
  }
  if (kind == AtomKind::Max) {
    return std::max(a, b);
  }
  invariant(b > 0, "[tile interpreter] division of {} by {}", a, b);
  int64_t floor = a / b - (a % b < 0 ? 1 : 0);
  return kind == AtomKind::FloorDiv ? floor : kind == AtomKind::Mod ? a - floor * b : floor + (a % b != 0 ? 1 : 0);
}

}  // namespace

int64_t SymbolValues::slot(std::string_view name) {
  auto [it, added] = slots_.try_emplace(std::string(name), std::ssize(names_));
  if (added) {
    names_.emplace_back(name);
    values_.push_back(0);
    defined_.push_back(false);
  }
  return it->second;
}

Polynomial SymbolValues::compile(const IntExpr& e) {
  auto factor = [&](const IntAtomPtr& f) {
    return Polynomial::Factor{f->kind, f->kind == AtomKind::Symbol ? slot(f->key) : -1,
                              mapped(f->args, [&](const IntExpr& arg) { return compile(arg); })};
  };
  auto term = [&](const IntTerm& t) { return Polynomial::Term{t.coefficient, mapped(t.factors, factor)}; };
  return {e.constantTerm(), mapped(e.terms(), term)};
}

int64_t SymbolValues::evaluate(const Polynomial& p) const {
  int64_t sum = p.constant;
  for (const Polynomial::Term& t : p.terms) {
    int64_t product = t.coefficient;
    for (const Polynomial::Factor& f : t.factors) {
      product *= f.kind == AtomKind::Symbol ? get(f.slot) : apply(f.kind, evaluate(f.args[0]), evaluate(f.args[1]));
    }
    sum += product;
  }
  return sum;
}

}  // namespace meshfuse::tile
