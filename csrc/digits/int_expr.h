// IntExpr: an integer expression over named symbols, kept as a polynomial in normal form.
//
//   N*4 + 3        floorDiv(N, 4)        mod(i, 32) + 32*p
//
// Extents of dims, strides, indices inside kernels and sizes of meshes are all of this one type. A term is a coefficient
// times a sorted product of atoms; an atom is a symbol or a floorDiv, ceilDiv, mod, min, max of expressions that could not be
// simplified away. Two expressions count as equal iff their normal forms are equal; otherwise their relation is unknown.
//
//   IntExpr n = IntExpr::symbol("N");
//   floorDiv(n * 4, 4) == n, exactly                 mod(n * 4 + 3, 4) == 3
//   IntExpr i = IntExpr::symbol("i", {.lower = 0, .upper = 31});
//   floorDiv(n * 32 + i, 32) == n                    mod(n * 32 + i, 32) == i
//   IntExpr m = IntExpr::symbol("M", {.divisor = 8});
//   floorDiv(m, 8) * 8 == m                          m + floorDiv(m, 8) == floorDiv(m, 8) * 9: fractions of M are one term
//
// Divisors are positive, and division rounds down. Arithmetic on constants never wraps: a result that does not fit in 64 bits is a UserError
// (base/exact.h), because the constants are sizes of the user.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace meshfuse {

class IntExpr;
struct LinearForm;

// Facts about the value of a symbol: lower <= value <= upper, value % divisor == 0.
struct SymbolFacts {
  int64_t lower = 0;
  int64_t upper = INT64_MAX;  // INT64_MAX: unbounded
  int64_t divisor = 1;
};

enum class AtomKind : uint8_t { Symbol, FloorDiv, CeilDiv, Mod, Min, Max };

struct IntAtom {
  AtomKind kind;
  std::string key;            // canonical text; identity and order of atoms
  SymbolFacts facts;          // given for a symbol, else derived
  std::vector<IntExpr> args;  // of a function: two
  int64_t size = 1;           // number of atoms in its text, itself included
};
using IntAtomPtr = std::shared_ptr<const IntAtom>;

struct IntTerm {
  int64_t coefficient;
  std::vector<IntAtomPtr> factors;  // sorted by key, never empty
};

class IntExpr {
 public:
  IntExpr(int64_t value = 0) : constant_(value) {}  // NOLINT: an integer is an expression
  static IntExpr symbol(std::string name, SymbolFacts facts = {});

  bool isConst() const { return terms_ == nullptr; }
  bool isConst(int64_t value) const { return terms_ == nullptr && constant_ == value; }
  int64_t constValue() const;  // InternalError unless isConst
  // The symbol or function that is the whole expression; nullptr if none is.
  const IntAtomPtr* atom() const;
  bool isSymbol() const;
  std::string_view symbolName() const;  // InternalError unless isSymbol

  int64_t constantTerm() const { return constant_; }
  // Number of symbols and functions in the text, which is the cost of computing it. Substitution multiplies this number if the result
  // does not simplify, so code that substitutes repeatedly must check it.
  int64_t size() const;
  std::span<const IntTerm> terms() const {
    return terms_ ? std::span<const IntTerm>(*terms_) : std::span<const IntTerm>();
  }

  friend IntExpr operator+(const IntExpr& a, const IntExpr& b);
  friend IntExpr operator-(const IntExpr& a, const IntExpr& b);
  friend IntExpr operator*(const IntExpr& a, const IntExpr& b);
  IntExpr& operator+=(const IntExpr& b) { return *this = *this + b; }
  IntExpr& operator*=(const IntExpr& b) { return *this = *this * b; }
  friend bool operator==(const IntExpr& a, const IntExpr& b);

  // Greatest known divisor of the value (0 for the constant 0, which everything divides).
  int64_t divisor() const;
  bool divisibleBy(int64_t k) const;
  // Proven bounds, inclusive; nullopt where unbounded.
  std::optional<int64_t> lower() const;
  std::optional<int64_t> upper() const;

  // Names of all symbols, also inside functions; sorted, each once.
  std::vector<std::string> symbols() const;
  bool contains(std::string_view symbol) const;
  // Replaces symbols for which `replacement` returns a value, then simplifies.
  IntExpr substitute(const std::function<std::optional<IntExpr>(std::string_view)>& replacement) const;
  // Value under the given symbol values; InternalError if `valueOf` lacks one (returns nullopt).
  int64_t evaluate(const std::function<std::optional<int64_t>(std::string_view)>& valueOf) const;

  // If this = slope * symbol + rest with slope and rest free of the symbol; nullopt if the symbol occurs in a function or squared.
  std::optional<LinearForm> linearIn(std::string_view symbol) const;

  std::string toString() const;

 private:
  friend struct IntExprBuilder;
  IntExpr(int64_t constant, std::vector<IntTerm> terms);

  int64_t constant_ = 0;
  std::shared_ptr<const std::vector<IntTerm>> terms_;  // null for a constant; copies share them
};

struct LinearForm {
  IntExpr slope;
  IntExpr rest;
};

// For substitute and evaluate: the values of the symbols in a map, which must outlive the result; nothing for all other symbols.
template <class Map>
auto valuesIn(const Map& map) {
  return [&map](std::string_view symbol) -> std::optional<int64_t> {
    const auto known = map.find(std::string(symbol));
    return known == map.end() ? std::nullopt : std::optional<int64_t>(known->second);
  };
}

// Facts of a symbol that counts 0 <= value < count.
[[nodiscard]] SymbolFacts factsBelow(const IntExpr& count);

[[nodiscard]] IntExpr floorDiv(const IntExpr& a, const IntExpr& b);
[[nodiscard]] IntExpr ceilDiv(const IntExpr& a, const IntExpr& b);
[[nodiscard]] IntExpr mod(const IntExpr& a, const IntExpr& b);
[[nodiscard]] IntExpr min(const IntExpr& a, const IntExpr& b);
[[nodiscard]] IntExpr max(const IntExpr& a, const IntExpr& b);
[[nodiscard]] IntExpr product(std::span<const IntExpr> factors);  // 1 without factors

struct IntFunction {
  std::string_view name;  // in the text
  IntExpr (*of)(const IntExpr& a, const IntExpr& b);
};
// By AtomKind; a symbol is no function.
inline constexpr IntFunction kIntFunctions[] = {{"", nullptr}, {"floorDiv", floorDiv}, {"ceilDiv", ceilDiv},
                                                {"mod", mod},  {"min", min},           {"max", max}};
constexpr const IntFunction& functionOf(AtomKind kind) { return kIntFunctions[static_cast<size_t>(kind)]; }

// a / b if b is a monomial that divides every term of a; else nullopt.
[[nodiscard]] std::optional<IntExpr> divideExactly(const IntExpr& a, const IntExpr& b);
// True only if proven.
[[nodiscard]] bool provenLess(const IntExpr& a, const IntExpr& b);       // a < b
[[nodiscard]] bool provenLessEqual(const IntExpr& a, const IntExpr& b);  // a <= b
[[nodiscard]] bool provenUnequal(const IntExpr& a, const IntExpr& b);    // a < b or b < a

// Reads what toString prints. UserError with the offset of the first wrong character. Facts come from `factsOf` if given.
[[nodiscard]] IntExpr parseIntExpr(std::string_view text,
                                   const std::function<SymbolFacts(std::string_view)>& factsOf = {});

}  // namespace meshfuse
