// The symbols of an expression: their names, values in place of them, the text.
#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/exact.h"
#include "digits/int_expr.h"

namespace meshfuse {

std::vector<std::string> IntExpr::symbols() const {
  std::vector<std::string> names;
  for (const IntTerm& t : terms()) {
    for (const IntAtomPtr& f : t.factors) {
      if (f->kind == AtomKind::Symbol) {
        names.push_back(f->key);
      }
      for (const IntExpr& arg : f->args) {
        std::vector<std::string> inner = arg.symbols();
        names.insert(names.end(), inner.begin(), inner.end());
      }
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool IntExpr::contains(std::string_view symbol) const {
  for (const IntTerm& t : terms()) {
    for (const IntAtomPtr& f : t.factors) {
      if (f->kind == AtomKind::Symbol
              ? f->key == symbol
              : std::any_of(f->args.begin(), f->args.end(), [&](const IntExpr& a) { return a.contains(symbol); })) {
        return true;
      }
    }
  }
  return false;
}

IntExpr IntExpr::substitute(const std::function<std::optional<IntExpr>(std::string_view)>& replacement) const {
  IntExpr result(constant_);
  for (const IntTerm& t : terms()) {
    IntExpr product(t.coefficient);
    for (const IntAtomPtr& f : t.factors) {
      if (f->kind == AtomKind::Symbol) {
        std::optional<IntExpr> by = replacement(f->key);
        product *= by ? *by : IntExpr(0, {{1, {f}}});
      } else {
        product *= functionOf(f->kind).of(f->args[0].substitute(replacement), f->args[1].substitute(replacement));
      }
    }
    result += product;
  }
  return result;
}

int64_t IntExpr::evaluate(const std::function<std::optional<int64_t>(std::string_view)>& valueOf) const {
  int64_t sum = constant_;
  for (const IntTerm& t : terms()) {
    int64_t product = t.coefficient;
    for (const IntAtomPtr& f : t.factors) {
      int64_t value = 0;
      if (f->kind == AtomKind::Symbol) {
        std::optional<int64_t> v = valueOf(f->key);
        if (!v) {  // a description is costly: only now
          throwInternalError(fmt::format("[int_expr] no value for symbol {} in {}", f->key, toString()));
        }
        value = *v;
      } else {
        value = functionOf(f->kind).of(f->args[0].evaluate(valueOf), f->args[1].evaluate(valueOf)).constValue();
      }
      product = mulExact(product, value);
    }
    sum = addExact(sum, product);
  }
  return sum;
}

std::optional<LinearForm> IntExpr::linearIn(std::string_view symbol) const {
  LinearForm form{0, constant_};
  for (const IntTerm& t : terms()) {
    int count = 0;
    for (const IntAtomPtr& f : t.factors) {
      if (f->kind == AtomKind::Symbol) {
        count += f->key == symbol ? 1 : 0;
      } else if (std::any_of(f->args.begin(), f->args.end(), [&](const IntExpr& a) { return a.contains(symbol); })) {
        return std::nullopt;
      }
    }
    if (count > 1) {
      return std::nullopt;
    }
    if (count == 0) {
      form.rest += IntExpr(0, {t});
      continue;
    }
    IntTerm s = t;
    std::erase_if(s.factors, [&](const IntAtomPtr& f) { return f->kind == AtomKind::Symbol && f->key == symbol; });
    form.slope += s.factors.empty() ? IntExpr(s.coefficient) : IntExpr(0, {std::move(s)});
  }
  return form;
}

std::string IntExpr::toString() const {
  if (terms().empty()) {
    return fmt::format("{}", constant_);
  }
  std::string text;
  for (const IntTerm& t : terms()) {
    int64_t c = t.coefficient;
    if (!text.empty()) {
      text += c < 0 ? " - " : " + ";
      c = c < 0 ? -c : c;
    } else if (c < 0) {
      text += "-";
      c = -c;
    }
    std::string product;
    for (const IntAtomPtr& f : t.factors) {
      product += (product.empty() ? "" : "*") + f->key;
    }
    text += product;
    if (c != 1) {
      text += fmt::format("*{}", c);
    }
  }
  if (constant_ != 0) {
    text += constant_ < 0 ? fmt::format(" - {}", -constant_) : fmt::format(" + {}", constant_);
  }
  return text;
}

}  // namespace meshfuse
