// Values of symbols while a tile program is interpreted, and expressions resolved to them, so that evaluating one for many
// positions is a walk over arrays.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "digits/int_expr.h"

namespace meshfuse::tile {

struct Polynomial {
  struct Factor {
    AtomKind kind;
    int64_t slot = -1;                  // Symbol
    std::vector<Polynomial> args = {};  // others
  };
  struct Term {
    int64_t coefficient;
    std::vector<Factor> factors;
  };
  int64_t constant = 0;
  std::vector<Term> terms;
};

// Sizes always have a value, grid dims while a part runs, loops while they are open; tile digits, and coordinates with such digits, only
// while the interpreter is at one position of their space.
class SymbolValues {
 public:
  int64_t slot(std::string_view name);
  void set(int64_t slot, int64_t value) {
    values_[slot] = value;
    defined_[slot] = true;
  }
  void clear(int64_t slot) { defined_[slot] = false; }
  bool defined(int64_t slot) const { return defined_[slot]; }
  int64_t get(int64_t slot) const {
    invariant(defined_[slot], "[tile interpreter] {} has no value here: its loop is not open", names_[slot]);
    return values_[slot];
  }
  Polynomial compile(const IntExpr& e);
  int64_t evaluate(const Polynomial& p) const;
  int64_t evaluate(const IntExpr& e) { return evaluate(compile(e)); }

 private:
  std::map<std::string, int64_t, std::less<>> slots_;
  std::vector<std::string> names_;
  std::vector<int64_t> values_;
  std::vector<bool> defined_;
};

}  // namespace meshfuse::tile
