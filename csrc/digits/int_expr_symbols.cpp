// The symbols of an expression: their names, values in place of them, the text.
#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "base/exact.h"
#include "base/ranges.h"
#include "digits/int_expr.h"

namespace meshfuse {

namespace {

uint64_t magnitudeOf(int64_t a) { return a < 0 ? 0 - static_cast<uint64_t>(a) : static_cast<uint64_t>(a); }

bool argsContain(const IntAtom& atom, std::string_view symbol) {
  return std::ranges::any_of(atom.args, [&](const IntExpr& arg) { return arg.contains(symbol); });
}

}  // namespace

std::vector<std::string> IntExpr::symbols() const {
  std::vector<std::string> names;
  for (const IntTerm& t : terms()) {
    for (const IntAtomPtr& f : t.factors) {
      if (f->kind == AtomKind::Symbol) {
        names.push_back(f->key);
      }
      for (const IntExpr& arg : f->args) {
        append(names, arg.symbols());
      }
    }
  }
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  return names;
}

bool IntExpr::contains(std::string_view symbol) const {
  return std::ranges::any_of(terms(), [&](const IntTerm& t) {
    return std::ranges::any_of(t.factors, [&](const IntAtomPtr& f) {
      return f->kind == AtomKind::Symbol ? f->key == symbol : argsContain(*f, symbol);
    });
  });
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
      const std::optional<int64_t> value =
          f->kind == AtomKind::Symbol
              ? valueOf(f->key)
              : functionOf(f->kind).of(f->args[0].evaluate(valueOf), f->args[1].evaluate(valueOf)).constValue();
      if (!value) {  // a description is costly: only now
        throwInternalError(fmt::format("[int_expr] no value for symbol {} in {}", f->key, toString()));
      }
      product = mulExact(product, *value);
    }
    sum = addExact(sum, product);
  }
  return sum;
}

std::optional<LinearForm> IntExpr::linearIn(std::string_view symbol) const {
  LinearForm form{0, constant_};
  for (const IntTerm& t : terms()) {
    IntTerm s = t;
    const auto isIt = [&](const IntAtomPtr& f) { return f->kind == AtomKind::Symbol && f->key == symbol; };
    const size_t count = std::erase_if(s.factors, isIt);
    if (count > 1 || std::ranges::any_of(s.factors, [&](const IntAtomPtr& f) { return argsContain(*f, symbol); })) {
      return std::nullopt;
    }
    (count == 1 ? form.slope : form.rest) += s.factors.empty() ? IntExpr(s.coefficient) : IntExpr(0, {std::move(s)});
  }
  return form;
}

std::string IntExpr::toString() const {
  if (terms().empty()) {
    return fmt::format("{}", constant_);
  }
  std::string text;
  for (const IntTerm& t : terms()) {
    const uint64_t c = magnitudeOf(t.coefficient);
    const bool isFirst = text.empty();
    text += t.coefficient < 0 ? (isFirst ? "-" : " - ") : (isFirst ? "" : " + ");
    text += joined(t.factors, "*", [](const IntAtomPtr& f) -> const std::string& { return f->key; });
    if (c != 1) {
      text += fmt::format("*{}", c);
    }
  }
  if (constant_ != 0) {
    text += constant_ < 0 ? fmt::format(" - {}", magnitudeOf(constant_)) : fmt::format(" + {}", constant_);
  }
  return text;
}

}  // namespace meshfuse
