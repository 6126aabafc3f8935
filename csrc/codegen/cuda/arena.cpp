#include "codegen/cuda/arena.h"

#include <algorithm>

namespace meshfuse::cuda {

void Arena::reserve(const std::string& name, const IntExpr& bytes) {
  auto it = std::ranges::find(slots_, name, &Slot::name);
  if (it == slots_.end()) {
    slots_.push_back({name, bytes});
  } else {
    it->bytes = max(it->bytes, bytes);
  }
}

std::string Arena::alternate(const std::string& family, const IntExpr& bytes) {
  std::string first = family + "0";
  std::string second = family + "1";
  auto touched = [&](const std::string& s) { return beforeWrite(s) != Wait::None; };
  std::string name = touched(first) && !touched(second) ? second : first;
  reserve(name, bytes);
  return name;
}

Arena::Wait Arena::beforeWrite(const std::string& slot) const {
  if (open.remote.contains(slot)) {
    return Wait::Cluster;
  }
  return open.read.contains(slot) || open.written.contains(slot) ? Wait::Block : Wait::None;
}

void Arena::passed(Wait barrier) {
  if (barrier != Wait::None) {
    open.read.clear();
    open.written.clear();
  }
  if (barrier == Wait::Cluster) {
    open.remote.clear();
  }
}

}  // namespace meshfuse::cuda
