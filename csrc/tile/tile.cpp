#include "tile/tile.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace meshfuse::tile {

namespace {

// The largest product of the sizes of one space's digits on a level.
int64_t extentOn(const Program& program, Level level) {
  int64_t largest = 1;
  for (const Space& space : program.spaces) {
    int64_t n = 1;
    for (const Axis& axis : space.axes) {
      for (const Digit& digit : axis.digits) {
        n *= digit.level == level ? digit.size.constValue() : 1;
      }
    }
    largest = std::max(largest, n);
  }
  return largest;
}

// The bit set of the digits of a space for which `holds` is true.
template <class F>
uint64_t digitsWhere(const Space& space, const F& holds) {
  std::vector<DigitRef> refs = digitsOf(space);
  uint64_t set = 0;
  for (int64_t i = 0; i < std::ssize(refs); i++) {
    set |= uint64_t{holds(refs[i])} << i;
  }
  return set;
}

}  // namespace

int64_t Program::threads() const { return target == Target::Cpu ? 1 : 32 * extentOn(*this, Level::Warp); }

int64_t Program::cluster() const { return extentOn(*this, Level::Cluster); }

bool Program::checksIndices() const {
  return std::ranges::any_of(
      values, [](const Value& v) { return v.kind == ValueKind::Point && v.op == PointOp::CheckedIndex; });
}

std::vector<DigitRef> digitsOf(const Space& space) {
  std::vector<DigitRef> refs;
  for (int64_t a = 0; a < std::ssize(space.axes); a++) {
    const std::vector<Digit>& digits = space.axes[a].digits;
    for (int64_t d = 0; d < std::ssize(digits); d++) {
      if (isInTile(digits[d].level)) {
        refs.push_back({a, d});
      }
    }
  }
  invariant(refs.size() <= 64, "[tile] space {} has {} thread and register digits, at most 64 are supported",
            space.name, refs.size());
  return refs;
}

uint64_t axisDigits(const Space& space, int64_t axis) {
  return digitsWhere(space, [&](DigitRef ref) { return ref.axis == axis; });
}

bool isNamed(std::string_view symbol, const std::vector<Index>& index, const std::vector<Pred>& where) {
  return std::ranges::any_of(index, [&](const Index& i) { return i.expr.contains(symbol); }) ||
         std::ranges::any_of(where, [&](const Pred& p) { return p.lhs.contains(symbol) || p.rhs.contains(symbol); });
}

uint64_t digitsNamed(const Space& space, const std::vector<Index>& index, const std::vector<Pred>& where) {
  return digitsWhere(space, [&](DigitRef ref) {
    const Axis& axis = space.axes[ref.axis];
    return isNamed(axis.name, index, where) || isNamed(axis.digits[ref.digit].symbol, index, where);
  });
}

std::string digitNames(const Space& space, uint64_t digits) {
  std::vector<DigitRef> refs = digitsOf(space);
  std::string text;
  for (int64_t i = 0; i < 64; i++) {
    if ((digits >> i & 1) != 0) {
      text += text.empty() ? "" : " ";
      text += i < std::ssize(refs) ? space.axes[refs[i].axis].digits[refs[i].digit].symbol : fmt::format("?{}", i);
    }
  }
  return text;
}

char letterOf(Level level) { return "pcwlsrv"[static_cast<size_t>(level)]; }

std::string usualSymbol(const std::string& axis, Level level, int64_t nth) {
  return fmt::format("{}_{}{}", axis, letterOf(level), nth == 0 ? "" : std::to_string(nth));
}

IntExpr arrivals(const Program& program, const Stmt& lastArriver) {
  IntExpr workers = 1;
  for (const GridDim& g : program.grid) {
    workers *= isNamed(g.symbol, lastArriver.index, {}) ? IntExpr(1) : g.count;
  }
  return workers;
}

const Axis* axisAt(const Program& program, int64_t space, int64_t axis) {
  const Space* s = elementAt(program.spaces, space);
  return s == nullptr ? nullptr : elementAt(s->axes, axis);
}

}  // namespace meshfuse::tile
