#include "tile/coarse_values.h"

#include <cstdint>
#include <utility>

#include "base/ranges.h"

namespace meshfuse::tile {

namespace {

// Marks the values that statements store as fine, and lists the values that loops carry.
void collect(const std::vector<Stmt>& block, std::vector<bool>& fine, std::vector<Carried>& carried) {
  for (const Stmt& s : block) {
    if (s.kind == StmtKind::Store) {
      fine[s.value] = true;
    }
    append(carried, s.carried);
    collect(s.body, fine, carried);
  }
}

}  // namespace

std::vector<bool> coarseValues(const Program& program) {
  std::vector<bool> fine(program.values.size());  // its exact bits show
  std::vector<Carried> carried;
  collect(program.body, fine, carried);
  for (bool changed = true; changed;) {
    changed = false;
    auto mark = [&](ValueId id) {
      if (id != kNone && !fine[id]) {
        fine[id] = changed = true;
      }
    };
    for (int64_t i = std::ssize(program.values) - 1; i >= 0; i--) {
      const Value& v = program.values[i];
      // Values that control a selection or an address, or are converted to another type, must be exact to the last digit.
      const bool rounds = v.kind == ValueKind::Cast && isHalfPrecision(v.dtype);
      // Errors of many elements may add up to more than the result of a scan. The total before a scan is as exact as its result.
      const bool rounded = v.kind == ValueKind::ScanTotal || v.dtype == DataType::Float;
      const bool exact = !rounds && (fine[i] || !rounded);
      for (int64_t k : indices(v.operands)) {
        exact || (v.kind == ValueKind::Scan && k == 0) ? mark(v.operands[k]) : void();
      }
      for (const Index& x : v.index) {
        mark(x.tile);
      }
      mark(v.mask);
    }
    for (const Carried& c : carried) {
      if (fine[c.result] || fine[c.carry]) {
        mark(c.next);
        mark(c.init);
        mark(c.carry);
      }
    }
  }
  std::vector<bool> coarse = std::move(fine);
  coarse.flip();
  for (int64_t i = 0; i < std::ssize(program.values); i++) {
    coarse[i] = coarse[i] && program.values[i].dtype == DataType::Float;
  }
  return coarse;
}

}  // namespace meshfuse::tile
