#include "ir/iter_domain.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace meshfuse {

std::string_view markOf(IterType type) {
  switch (type) {
    case IterType::Iteration:
      break;
    case IterType::Reduction:
      return "r";
    case IterType::Broadcast:
      return "b";
    case IterType::Symbolic:
      return "s";
  }
  return "";
}

void IterDomain::parallelize(ParallelType type) {
  check(!replaced_ || type == ParallelType::Serial,
        "[parallelize] dim {} has been split, merged or resized; bind the loop dims that came of it", toString());
  parallelType_ = type;
}

std::string IterDomain::toString() const {
  const std::string_view mark = markOf(iterType_);
  bool bound = parallelType_ != ParallelType::Serial;
  if (mark.empty() && !bound) {
    return extent_.toString();
  }
  return fmt::format("{}{}{{{}}}", mark, bound ? parallelType_.toString() : "", extent_.toString());
}

std::vector<const IdExpr*> transformsBetween(const std::vector<IterDomain*>& from, const std::vector<IterDomain*>& to) {
  std::map<int, const IdExpr*> found;
  std::vector<IterDomain*> open = to;
  while (!open.empty()) {
    IterDomain* id = open.back();
    open.pop_back();
    if (id->definition() == nullptr || std::find(from.begin(), from.end(), id) != from.end()) {
      continue;
    }
    if (found.emplace(id->definition()->out[0]->id(), id->definition()).second) {
      open.insert(open.end(), id->definition()->in.begin(), id->definition()->in.end());
    }
  }
  std::vector<const IdExpr*> order;
  for (const auto& [id, e] : found) {
    order.push_back(e);
  }
  return order;
}

}  // namespace meshfuse
