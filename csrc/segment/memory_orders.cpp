#include "segment/memory_orders.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <ranges>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ops/shape_ops.h"
#include "segment/local_context.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

// The layout of `tv` in its memory order; none if that is row-major, dims of one element aside.
std::optional<Layout> layoutInOrder(const TensorView* tv) {
  const std::vector<int64_t> sizes = tv->constantShape();
  const std::vector<int64_t> strides = contiguousStrides(sizes, tv->memoryOrder());
  const std::vector<int64_t> rowMajor = mapped<int64_t>(indices(sizes), std::identity());
  return liesInOrder(sizes, strides, rowMajor) ? std::nullopt : std::optional(Layout{{strides.begin(), strides.end()}});
}

// Stores `tv` in its order, or returns the reason why that is impossible.
std::string layOut(const Fusion& fusion, LocalContext& context, const TensorView* tv, const Layout& layout) {
  const Expr* made = tv->definition();
  if (ruleOf(*made).executor != Executor::Kernel) {  // the tensor is row-major
    return fmt::format("{} makes it", made->opName());
  }
  std::vector<Expr*> calls;
  for (Expr* use : fusion.uses(tv)) {
    if (readsOnePiece(*use)) {
      return fmt::format("T{} = {} reads it", use->output()->id(), use->opName());
    }
    if (isContraction(*use) && context.judge(context.groupOf(fusion, {use})).judgement != nullptr) {
      calls.push_back(use);
    }
  }
  context.layouts[tv->id()] = layout;
  for (Expr* call : calls) {
    if (const Verdict verdict = context.judge(context.groupOf(fusion, {call})); verdict.judgement == nullptr) {
      context.layouts.erase(tv->id());
      return fmt::format("no library would accept T{} = {}: {}", call->output()->id(), call->opName(), verdict.refusal);
    }
  }
  return "";
}

// A copy of `tv` in its order becomes the output; all other ops still read `tv`, which becomes row-major.
TensorView* orderedCopy(Fusion& fusion, TensorView* tv) {
  const std::vector<Expr*> readers = fusion.uses(tv);
  TensorView* copy = set(tv);
  copy->copyAllocation(*tv);
  fusion.replaceUses(tv, copy);
  for (Expr* reader : readers) {
    for (const int64_t operand : reader->positionsOf(copy)) {
      fusion.replaceInput(reader, operand, tv);
    }
  }
  return copy;
}

}  // namespace

bool memoryOrders(Fusion& fusion, LocalContext& context) {
  bool changed = false;
  for (TensorView* tv : fusion.tensors()) {
    if (tv->definition() == nullptr || !tv->hasAllocation() || contains(std::views::keys(fusion.aliases()), tv) ||
        context.layouts.contains(tv->id())) {
      continue;
    }
    const std::optional<Layout> layout = layoutInOrder(tv);
    if (!layout) {
      continue;
    }
    changed = true;
    const std::string obstacle = layOut(fusion, context, tv, *layout);
    if (obstacle.empty()) {
      continue;
    }
    std::string instead = "it stays row-major";
    if (tv->isFusionOutput()) {
      TensorView* copy = orderedCopy(fusion, tv);
      context.layouts[copy->id()] = *layout;
      instead = fmt::format("T{} is a copy in that order", copy->id());
    }
    context.remarks.push_back(fmt::format("T{} is not stored in the order [{}], because {}: {}", tv->id(),
                                          fmt::join(tv->memoryOrder(), ", "), obstacle, instead));
    tv->setAllocationDomain(tv->noReductions(), std::vector<bool>(layout->strides.size(), true));
  }
  return changed;
}

}  // namespace meshfuse
