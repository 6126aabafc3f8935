#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <iterator>

#include "base/error.h"
#include "digits/int_expr.h"

namespace meshfuse {

namespace {

// Each level takes a few stack frames; texts of toString stay far below the limit.
constexpr int64_t kMostLevels = 256;

bool isDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool isOfName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

// sum := ['-'] product (('+' | '-') product)* ; product := factor ('*' factor)* ; factor := int | name | name(sum, sum) | (sum) | -factor
class Parser {
 public:
  Parser(std::string_view text, const std::function<SymbolFacts(std::string_view)>& factsOf)
      : text_(text), factsOf_(factsOf) {}

  IntExpr all() {
    IntExpr e = sum();
    skip();
    check(at_ == text_.size(), "[expression] unexpected '{}' at offset {} of \"{}\", expected +, -, * or the end",
          text_.substr(at_, 1), at_, text_);
    return e;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) {
      at_++;
    }
  }
  bool accept(char c) {
    skip();
    const bool found = at_ < text_.size() && text_[at_] == c;
    at_ += found ? 1 : 0;
    return found;
  }
  void expect(char c) { check(accept(c), "[expression] expected '{}' at offset {} of \"{}\"", c, at_, text_); }

  // The least integer: without its sign it is no integer of 64 bits.
  bool acceptLeast() {
    constexpr std::string_view kDigits = "9223372036854775808";
    const size_t before = at_;
    if (accept('-')) {
      skip();
      const size_t end = at_ + kDigits.size();
      if (text_.substr(at_).starts_with(kDigits) && (end == text_.size() || !isDigit(text_[end]))) {
        at_ = end;
        return true;
      }
    }
    at_ = before;
    return false;
  }

  IntExpr sum() {
    IntExpr e = acceptLeast() ? product(INT64_MIN) : accept('-') ? IntExpr(0) - product() : product();
    while (true) {
      if (accept('+')) {
        e = e + product();
      } else if (acceptLeast()) {
        e = e + product(INT64_MIN);
      } else if (accept('-')) {
        e = e - product();
      } else {
        return e;
      }
    }
  }
  IntExpr product() { return product(factor()); }
  IntExpr product(IntExpr e) {
    while (accept('*')) {
      e = e * factor();
    }
    return e;
  }
  IntExpr factor() {
    check(++levels_ <= kMostLevels,
          "[expression] parentheses and signs nest more than {} levels deep at offset {}; leave out those that are not "
          "needed",
          kMostLevels, at_);
    IntExpr e = innerFactor();
    levels_--;
    return e;
  }
  IntExpr innerFactor() {
    if (acceptLeast()) {
      return INT64_MIN;
    }
    if (accept('-')) {
      return IntExpr(0) - factor();
    }
    if (accept('(')) {
      IntExpr e = sum();
      expect(')');
      return e;
    }
    size_t start = at_;
    if (at_ < text_.size() && isDigit(text_[at_])) {
      int64_t value = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      check(error == std::errc(),
            "[expression] the number at offset {} of \"{}\" does not fit in 64 bits; expected at most "
            "9223372036854775807",
            start, text_);
      at_ = end - text_.data();
      return value;
    }
    at_ = std::ranges::find_if_not(text_.substr(at_), isOfName) - text_.begin();
    check(at_ > start, "[expression] expected a number, a name or '(' at offset {} of \"{}\"", at_, text_);
    std::string_view name = text_.substr(start, at_ - start);
    if (!accept('(')) {
      return IntExpr::symbol(std::string(name), factsOf_ ? factsOf_(name) : SymbolFacts{});
    }
    IntExpr a = sum();
    expect(',');
    IntExpr b = sum();
    expect(')');
    return call(name, a, b, start);
  }
  IntExpr call(std::string_view name, const IntExpr& a, const IntExpr& b, size_t start) {
    bool divides = name == "floorDiv" || name == "ceilDiv" || name == "mod";
    check(!divides || !b.isConst() || b.constValue() > 0,
          "[expression] {} at offset {} of \"{}\" divides by {}; divisors are positive", name, start, text_,
          b.toString());
    check(!divides || !b.upper() || *b.upper() >= 1,
          "[expression] {} divides by {} at offset {} of \"{}\"; divisors are positive", name, b.toString(), start,
          text_);
    const auto* function = std::ranges::find(kIntFunctions, name, &IntFunction::name);
    check(function != std::end(kIntFunctions),
          "[expression] unknown function '{}' at offset {} of \"{}\", expected floorDiv, ceilDiv, mod, min, max", name,
          start, text_);
    return function->of(a, b);
  }

  std::string_view text_;
  const std::function<SymbolFacts(std::string_view)>& factsOf_;
  size_t at_ = 0;
  int64_t levels_ = 0;  // of factors in factors
};

}  // namespace

IntExpr parseIntExpr(std::string_view text, const std::function<SymbolFacts(std::string_view)>& factsOf) {
  return Parser(text, factsOf).all();
}

}  // namespace meshfuse
