#include "codegen/cuda/c_text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/ranges.h"
#include "tensor/half.h"

namespace meshfuse::cuda {

using tile::Combiner;

namespace {

struct Spelling {
  DataType type;
  std::string_view storage;
  std::string_view inRegister;
};
constexpr Spelling kSpellings[] = {
    {DataType::Double, "double", "double"},
    {DataType::Float, "float", "float"},
    {DataType::Half, "u16", "u32"},
    {DataType::BFloat16, "u16", "u32"},
    {DataType::Int, "i64", "i64"},
    {DataType::Int32, "int", "int"},
    {DataType::Short, "short", "short"},
    {DataType::Char, "signed char", "signed char"},
    {DataType::UInt16, "u16", "u16"},
    {DataType::Byte, "unsigned char", "unsigned char"},
    {DataType::Bool, "unsigned char", "bool"},
};

const Spelling& spellingOf(DataType t) {
  const Spelling* row = std::ranges::find(kSpellings, t, &Spelling::type);
  invariant(row != std::end(kSpellings), "[codegen cuda] {} has no row in kSpellings", name(t));
  return *row;
}

// C++ computes in int where an integer type is narrower.
bool isNarrow(DataType t) { return isIntegral(t) && dataTypeSize(t) < 4; }

}  // namespace

std::string_view storageType(DataType t) { return spellingOf(t).storage; }
std::string_view registerType(DataType t) { return spellingOf(t).inRegister; }

std::string_view counterType(const IntExpr& count) {
  return count.isConst() && count.constValue() <= INT32_MAX ? "int" : "i64";
}

DataType accumulatorType(DataType t) {
  return isNarrow(t) || t == DataType::Bool ? DataType::Int32 : accumulateType(t);
}

std::string wordsSection(DataType t) {
  return isHalfPrecision(t) ? "words_16" : fmt::format("words_{}", info(t).token);
}

std::string capitalToken(DataType t) {
  std::string token(info(t).token);
  token[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(token[0])));
  return token;
}

namespace {

// The shortest decimal that reads back as the same value, always with a point or an exponent.
template <class T>
std::string decimal(T value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return text[0] == '-' ? "(" + text + ")" : text;
}

std::string floatText(float value) {
  if (!std::isfinite(value)) {
    return std::isnan(value) ? "__int_as_float(0x7fc00000)"
           : value > 0       ? "__int_as_float(0x7f800000)"
                             : "__int_as_float(0xff800000)";
  }
  std::string text = decimal(value);
  return text.insert(text.back() == ')' ? text.size() - 1 : text.size(), "f");
}

std::string doubleText(double value) {
  return std::isfinite(value) ? decimal(value)
         : std::isnan(value)  ? "__longlong_as_double(0x7ff8000000000000ll)"
         : value > 0          ? "__longlong_as_double(0x7ff0000000000000ll)"
                              : "__longlong_as_double(0xfff0000000000000ll)";
}

}  // namespace

std::string floatLiteral(double value, DataType t, Sections& uses) {
  if (!isFloatingPoint(t)) {
    return integerLiteral(static_cast<int64_t>(value), t, uses);
  }
  if (isHalfPrecision(t)) {
    return fmt::format("0x{:04x}u", floatToFloat16(t, static_cast<float>(value)));
  }
  return t == DataType::Double ? doubleText(value) : floatText(static_cast<float>(value));
}

std::string integerLiteral(int64_t value, DataType t, Sections& uses) {
  if (isFloatingPoint(t)) {
    return floatLiteral(static_cast<double>(value), t, uses);
  }
  if (t == DataType::Bool) {
    return value != 0 ? "true" : "false";
  }
  if (t == DataType::Int) {
    uses.insert("types");
    return value == INT64_MIN ? "(-9223372036854775807ll - 1)"
           : value < 0        ? fmt::format("i64({})", value)
                              : fmt::format("{}ll", value);
  }
  if (isNarrow(t)) {
    return narrowed(fmt::format("{}", value), t);
  }
  return value == INT32_MIN ? "(-2147483647 - 1)" : value < 0 ? fmt::format("({})", value) : fmt::format("{}", value);
}

std::string narrowed(std::string text, DataType t) {
  return isNarrow(t) ? fmt::format("({}){}", registerType(t), text) : text;
}

std::string castText(const std::string& text, DataType from, DataType to, Sections& uses) {
  if (from == to) {
    return text;
  }
  if (isHalfPrecision(from)) {
    uses.insert(fmt::format("{}_to_float", info(from).token));
    std::string wide = fmt::format("{}ToFloat({})", info(from).token, unwrapped(text));
    return castText(wide, DataType::Float, to, uses);
  }
  if (isHalfPrecision(to)) {
    uses.insert(fmt::format("float_to_{}", info(to).token));
    return fmt::format("floatTo{}({})", capitalToken(to), unwrapped(castText(text, from, DataType::Float, uses)));
  }
  if (isFloatingPoint(from) && isUnsigned(to)) {
    uses.insert("types");
    return castText(castText(text, from, truncationType(to), uses), truncationType(to), to, uses);
  }
  return to == DataType::Bool ? fmt::format("({} != 0)", text) : fmt::format("({}){}", registerType(to), text);
}

std::string identityText(Combiner combiner, DataType t) {
  Sections uses;
  DataType acc = accumulatorType(t);
  return isFloatingPoint(t) ? floatLiteral(floatingIdentity(combiner), acc, uses)
                            : integerLiteral(integerIdentity(combiner, t), acc, uses);
}

namespace {

std::string atomText(const IntAtom& atom, Sections& uses) {
  if (atom.kind == AtomKind::Symbol) {
    return atom.key;
  }
  const IntExpr& a = atom.args[0];
  const IntExpr& b = atom.args[1];
  auto call = [&](std::string_view function, std::string_view section) {
    uses.emplace(section);
    return fmt::format("{}({}, {})", function, exprText(a, uses), exprText(b, uses));
  };
  // C++ rounds towards zero.
  auto division = [&](char sign, std::string_view function) {
    return a.lower().value_or(-1) >= 0 ? fmt::format("({} {} {})", parenthesized(a, uses), sign, parenthesized(b, uses))
                                       : call(function, "index_division");
  };
  switch (atom.kind) {
    case AtomKind::Symbol:
      break;
    case AtomKind::FloorDiv:
      return division('/', "floorDiv");
    case AtomKind::CeilDiv:
      return call("ceilDiv", "index_division");
    case AtomKind::Mod:
      return division('%', "floorMod");
    case AtomKind::Min:
      return call("least", "index_bounds");
    case AtomKind::Max:
      return call("greatest", "index_bounds");
  }
  throwInternalError("[codegen cuda] unknown atom " + atom.key);
}

bool isInt(int64_t size) { return size <= INT32_MAX; }

std::string literalText(int64_t c) { return isInt(c) ? fmt::format("{}", c) : fmt::format("{}ll", c); }

// The largest size that the term can have, if int holds it.
std::optional<int64_t> magnitude(const IntTerm& t) {
  int64_t size = std::abs(t.coefficient);
  for (const IntAtomPtr& a : t.factors) {
    if (a->facts.lower < 0 || !isInt(a->facts.upper) || !isInt(size)) {
      return std::nullopt;
    }
    size *= a->facts.upper;
  }
  return isInt(size) ? std::optional(size) : std::nullopt;
}

bool fitsInt(const IntExpr& e) {
  int64_t sum = std::abs(e.constantTerm());
  for (const IntTerm& t : e.terms()) {
    const std::optional<int64_t> size = magnitude(t);
    if (!size || !isInt(sum)) {
      return false;
    }
    sum += *size;
  }
  return isInt(sum);
}

bool isWide(const IntExpr& e);

// Whether C++ computes the atom in 64 bits: symbols of bounded size are int, divisions are as wide as their operands, functions are wide.
bool isWide(const IntAtom& a) {
  const bool isOperator =
      (a.kind == AtomKind::FloorDiv || a.kind == AtomKind::Mod) && a.args[0].lower().value_or(-1) >= 0;
  return a.kind == AtomKind::Symbol ? !isInt(a.facts.upper) : !isOperator || isWide(a.args[0]) || isWide(a.args[1]);
}

bool isWide(const IntExpr& e) {
  return !fitsInt(e) || std::ranges::any_of(e.terms(), [](const IntTerm& t) {
    return std::ranges::any_of(t.factors, [](const IntAtomPtr& a) { return isWide(*a); });
  });
}

}  // namespace

std::string exprText(const IntExpr& e, Sections& uses) {
  std::string text;
  auto add = [&](int64_t signedAs, const std::string& term) {
    text += signedAs < 0 ? (text.empty() ? "-" : " - ") : (text.empty() ? "" : " + ");
    text += term;
  };
  int64_t most = 0;   // of the int sum so far
  bool wide = false;  // so far
  for (const IntTerm& t : e.terms()) {
    std::string term = joined(t.factors, "*", [&](const IntAtomPtr& a) { return atomText(*a, uses); });
    const std::optional<int64_t> size = magnitude(t);
    if (!isWide(*t.factors[0]) && (!size || (!wide && !isInt(most + *size)))) {
      uses.insert("types");
      term = "(i64)" + term;
      wide = true;
    }
    wide = wide || std::ranges::any_of(t.factors, [](const IntAtomPtr& a) { return isWide(*a); });
    most += wide ? 0 : *size;
    int64_t c = std::abs(t.coefficient);
    add(t.coefficient, c == 1 ? term : term + "*" + literalText(c));
  }
  int64_t c = e.constantTerm();
  if (text.empty()) {
    return literalText(c);
  }
  if (c != 0) {
    add(c, isInt(most + std::abs(c)) ? literalText(std::abs(c)) : fmt::format("{}ll", std::abs(c)));
  }
  return text;
}

std::string parenthesized(const IntExpr& e, Sections& uses) {
  std::string text = exprText(e, uses);
  bool isAtom = e.terms().size() == 1 && e.constantTerm() == 0 && e.terms()[0].coefficient == 1 &&
                e.terms()[0].factors.size() == 1 &&
                !text.starts_with("(i64)");  // a name, a call, or parenthesized already
  bool isNumber = e.isConst() && e.constantTerm() >= 0;
  return isAtom || isNumber ? text : "(" + text + ")";
}

std::string unwrapped(std::string text) {
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') {
    return text;
  }
  int64_t depth = 0;
  for (int64_t i = 0; i < std::ssize(text); i++) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0 && i + 1 < std::ssize(text)) {
      return text;
    }
  }
  return text.substr(1, text.size() - 2);
}

}  // namespace meshfuse::cuda
