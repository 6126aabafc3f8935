#include "tile/tile.h"

#include <algorithm>

#include "base/error.h"

namespace meshfuse::tile {

namespace {

// Product of the sizes of a space's digits on a level.
int64_t extentOn(const Space& space, Level level) {
  int64_t n = 1;
  for (const Axis& axis : space.axes) {
    for (const Digit& digit : axis.digits) {
      if (digit.level == level) {
        n *= digit.size.constValue();
      }
    }
  }
  return n;
}

}  // namespace

int Program::threads() const {
  if (target == Target::Cpu) {
    return 1;
  }
  int64_t warps = 1;
  for (const Space& space : spaces) {
    warps = std::max(warps, extentOn(space, Level::Warp));
  }
  return static_cast<int>(32 * warps);
}

int Program::cluster() const {
  int64_t blocks = 1;
  for (const Space& space : spaces) {
    blocks = std::max(blocks, extentOn(space, Level::Cluster));
  }
  return static_cast<int>(blocks);
}

std::vector<DigitRef> digitsOf(const Space& space) {
  std::vector<DigitRef> refs;
  for (int a = 0; a < std::ssize(space.axes); a++) {
    const std::vector<Digit>& digits = space.axes[a].digits;
    for (int d = 0; d < std::ssize(digits); d++) {
      Level level = digits[d].level;
      if (isThread(level) || isRegister(level)) {
        refs.push_back({a, d});
      }
    }
  }
  invariant(refs.size() <= 64, "[tile] space {} has {} thread and register digits, at most 64 are supported",
            space.name, refs.size());
  return refs;
}

uint64_t digitsNamed(const Space& space, const std::vector<Index>& index, const std::vector<Pred>& where) {
  std::vector<DigitRef> refs = digitsOf(space);
  uint64_t set = 0;
  for (size_t i = 0; i < refs.size(); i++) {
    const Axis& axis = space.axes[refs[i].axis];
    const std::string& digit = axis.digits[refs[i].digit].symbol;
    auto names = [&](const IntExpr& e) { return e.contains(axis.name) || e.contains(digit); };
    if (std::any_of(index.begin(), index.end(), [&](const Index& x) { return names(x.expr); }) ||
        std::any_of(where.begin(), where.end(), [&](const Pred& p) { return names(p.lhs) || names(p.rhs); })) {
      set |= uint64_t{1} << i;
    }
  }
  return set;
}

std::string digitNames(const Space& space, uint64_t digits) {
  std::vector<DigitRef> refs = digitsOf(space);
  std::string text;
  for (size_t i = 0; i < 64; i++) {
    if ((digits >> i & 1) != 0) {
      text += text.empty() ? "" : " ";
      text += i < refs.size() ? space.axes[refs[i].axis].digits[refs[i].digit].symbol : fmt::format("?{}", i);
    }
  }
  return text;
}

char letterOf(Level level) { return "pcwlsrv"[static_cast<size_t>(level)]; }

std::string usualSymbol(const std::string& axis, Level level, int nth) {
  return fmt::format("{}_{}{}", axis, letterOf(level), nth == 0 ? "" : std::to_string(nth));
}

IntExpr arrivals(const Program& program, const Stmt& lastArriver) {
  IntExpr workers = 1;
  for (const GridDim& g : program.grid) {
    bool selects = std::any_of(lastArriver.index.begin(), lastArriver.index.end(),
                               [&](const Index& i) { return i.expr.contains(g.symbol); });
    workers *= selects ? IntExpr(1) : g.count;
  }
  return workers;
}

uint64_t axisDigits(const Space& space, int axis) {
  uint64_t set = 0;
  std::vector<DigitRef> refs = digitsOf(space);
  for (size_t i = 0; i < refs.size(); i++) {
    if (refs[i].axis == axis) {
      set |= uint64_t{1} << i;
    }
  }
  return set;
}

}  // namespace meshfuse::tile
