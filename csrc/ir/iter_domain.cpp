#include "ir/iter_domain.h"

#include <cstdint>
#include <map>

#include "base/error.h"
#include "base/limits.h"
#include "base/ranges.h"

namespace meshfuse {

std::string_view markOf(IterType type) {
  constexpr std::string_view kMarks[] = {"", "r", "b", "p", "s"};
  return kMarks[static_cast<size_t>(type)];
}

namespace {

std::string markedText(const IterDomain& id, std::string_view binding, std::string_view extent) {
  const bool namesOp = id.isPartial() && id.combine() != ReduceOp::Sum;
  return fmt::format("{}{}{{{}{}{}}}", markOf(id.iterType()), binding, extent, namesOp ? ", " : "",
                     namesOp ? name(id.combine()) : "");
}

}  // namespace

void IterDomain::parallelize(ParallelType type) {
  check(!replaced_ || type == ParallelType::Serial,
        "[parallelize] dim {} has been split, merged or resized; bind the loop dims that it became", toString());
  // so that products of the numbers fit in 64 bits, and none is 0
  const auto isCount = [](int64_t n) { return n >= 1 && n <= kMostDevices; };
  const bool isAxis = type.axisFromLast() >= 0 && type.axisFromLast() < kMostDevices;
  check(isAxis && (!type.isPart() || (isCount(type.pre()) && isCount(type.size()))),
        "[parallelize] dim {} is bound to {}; expected an axis from 0, and parts of 1 to {} devices", toString(),
        type.toString(), kMostDevices);
  parallelType_ = type;
}

std::string IterDomain::toString() const {
  return parallelType_ == ParallelType::Serial ? textOf(extent_.toString())
                                               : markedText(*this, parallelType_.toString(), extent_.toString());
}

std::string IterDomain::textOf(std::string_view extent) const {
  return iterType_ == IterType::Iteration ? std::string(extent) : markedText(*this, "", extent);
}

std::vector<const IdExpr*> transformsBetween(const std::vector<IterDomain*>& from, const std::vector<IterDomain*>& to) {
  std::map<int64_t, const IdExpr*> found;
  std::vector<IterDomain*> open = to;
  while (!open.empty()) {
    IterDomain* id = open.back();
    open.pop_back();
    const IdExpr* e = id->definition();
    if (e != nullptr && !contains(from, id) && found.emplace(e->out[0]->id(), e).second) {
      append(open, e->in);
    }
  }
  return mapped(found, [](const auto& entry) { return entry.second; });
}

}  // namespace meshfuse
