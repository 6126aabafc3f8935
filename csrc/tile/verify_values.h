// The part of the verifier that looks at one value or one access: types, digits, symbols, operands in scope.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tile/tile.h"

namespace meshfuse::tile {

struct Findings {
  std::vector<std::string> list;

  template <class... Args>
  void add(fmt::format_string<Args...> message, Args&&... args) {
    list.push_back(fmt::format(message, std::forward<Args>(args)...));
  }
  template <class... Args>
  void expect(bool cond, fmt::format_string<Args...> message, Args&&... args) {
    if (!cond) {
      add(message, std::forward<Args>(args)...);
    }
  }
};

// The values and symbols that a statement may use.
struct Scope {
  std::set<ValueId> defined;
  std::set<ValueId> outside;         // defined before the last arriver the statement is in
  std::set<std::string> open;        // serial symbols of the loops around it
  std::set<std::string> restricted;  // symbols a condition or a last arriver restricts
  std::set<std::string> hidden;      // grid symbols that a last arriver's body may not use
  std::set<int64_t> overwritten;     // InOut tensors that a statement before in this body has stored
};

[[nodiscard]] bool isSize(const Program& program, std::string_view symbol);
[[nodiscard]] bool isGridDim(const Program& program, std::string_view symbol);

class ValueVerifier {
 public:
  ValueVerifier(const Program& program, const Scope& scope, Findings& findings)
      : p_(program), scope_(scope), f_(findings) {}

  void verify(ValueId id);
  // True if the operand exists; reports it if it is not in scope.
  bool operand(ValueId id, const std::string& what);
  // The operand's digits in `space`; reports digits of another one.
  uint64_t digitsOfOperand(ValueId id, int64_t space, const std::string& what);
  void access(int64_t tensor, const std::vector<Index>& index, const std::vector<Pred>& where, int64_t space,
              const std::string& what);
  // The digits of the mask of a load or store, if it has one.
  uint64_t mask(ValueId id, int64_t space, const std::string& what);
  // `space` is -1 for the condition of an If, which belongs to no space; every symbol that differs between threads or registers is then
  // reported.
  void predicates(const std::vector<Pred>& where, int64_t space, const std::string& what);

  bool exists(ValueId id) const { return elementAt(p_.values, id) != nullptr; }
  const Axis* axisNamed(std::string_view name) const;
  // The digits that expressions of an access name, and those of its index tiles.
  uint64_t digitsNamed(const std::vector<Index>& index, const std::vector<Pred>& where, int64_t space) const;
  std::string digitNames(int64_t space, uint64_t digits) const;
  // Over the digits on some levels.
  int64_t elements(const Value& v, bool (*counts)(Level)) const;

 private:
  void expression(const IntExpr& e, int64_t space, const std::string& what);
  void symbol(const std::string& name, int64_t space, const std::string& what);
  void factsHold(const IntExpr& e, const std::string& what);
  bool sameSpace(int64_t space) const { return elementAt(p_.spaces, space) != nullptr; }

  void verifyLoad(const Value& v, const std::string& what);
  void verifyPoint(const Value& v, const std::string& what);
  void verifyReduce(const Value& v, const std::string& what);
  void verifyConvert(const Value& v, const std::string& what);
  void verifyScan(const Value& v, const std::string& what);
  void verifyScanTotal(const Value& v, const std::string& what);
  void verifyShift(const Value& v, const std::string& what);
  void expectDigits(const Value& v, uint64_t expected, const std::string& what);
  uint64_t unionOfOperands(const Value& v, const std::string& what);

  const Program& p_;
  const Scope& scope_;
  Findings& f_;
};

}  // namespace meshfuse::tile
