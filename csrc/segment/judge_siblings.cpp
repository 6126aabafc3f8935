#include "segment/judge_siblings.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "schedule/elementwise.h"
#include "schedule/extents.h"

namespace meshfuse {

namespace {

// Whether both loop over the same extents, in any order: the reference of one may be a transposed result.
bool loopAlike(const Judgement& a, const Judgement& b) {
  const auto extents = [](const Judgement& j) {
    return filtered(j.loops, [](const IntExpr& e) { return !e.isConst(1); });
  };
  return std::ranges::is_permutation(extents(a), extents(b));
}

// The largest input that both read, if it has as many elements as one of their loops.
const TensorView* sharedInput(const Judgement& a, const Judgement& b) {
  const TensorView* best = nullptr;
  for (const TensorView* in : a.group.inputs) {
    if (contains(b.group.inputs, in) && usualElements(*in) >= std::min(a.positions, b.positions) &&
        (best == nullptr || usualBytes(*in) > usualBytes(*best))) {
      best = in;
    }
  }
  return best;
}

// An update in place needs a kernel that is elementwise and last of all, and reads the input nowhere else.
std::optional<std::string> losesPlace(const Group& updates, const Group& other) {
  for (const auto& [output, input] : updates.fusion->aliases()) {
    if (!contains(updates.outputs, output)) {
      continue;
    }
    const bool leaf =
        std::ranges::all_of(other.outputs, [&](const Val* out) { return updates.fusion->uses(out).empty(); });
    const bool elementwise = std::ranges::all_of(other.exprs, [](const Expr* e) { return isElementwise(*e); });
    if (!leaf || !elementwise || contains(other.inputs, input)) {
      return fmt::format("{} could not be updated in place any more", input->toString());
    }
  }
  return std::nullopt;
}

}  // namespace

SiblingJudgement judgeSiblings(const Judgement& a, const Judgement& b, const Judgement& joint) {
  const TensorView* shared = sharedInput(a, b);
  if (shared == nullptr && (!loopAlike(a, joint) || !loopAlike(b, joint))) {
    return {"their loops have different extents, and they share no large input", {}};
  }
  if (shared == nullptr && joint.cost.bytes > joint.cost.launch) {
    return {"they share no large input, and their memory traffic costs more than the launch that joining them saves",
            {}};
  }
  std::optional<std::string> refusal = joint.refuseParts(a, b);
  refusal = refusal ? refusal : losesPlace(a.group, b.group);
  refusal = refusal ? refusal : losesPlace(b.group, a.group);
  return {refusal, shared != nullptr ? fmt::format("both read {}", shared->toString()) : "same loop, one launch less"};
}

}  // namespace meshfuse
