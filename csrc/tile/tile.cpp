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
