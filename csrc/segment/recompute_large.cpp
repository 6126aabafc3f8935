#include "segment/recompute_large.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <ranges>
#include <set>
#include <vector>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "ir/op_rule.h"
#include "ir/point_work.h"
#include "schedule/extents.h"
#include "segment/local_context.h"

namespace meshfuse {

namespace {

bool isPointOrCast(const Expr& e) { return e.kind() == ExprKind::Point || e.kind() == ExprKind::Cast; }

// Ops that are looked at, and computed again: searches must not take longer in long programs.
constexpr int64_t kMostBetween = 64;
constexpr int64_t kMostAgain = 16;

// By id of an op, its place in topological order. Copies that the pass has made have none.
using Places = std::map<int64_t, int64_t>;

bool isOfKernel(const Expr* e) { return e->output()->isTensor() && ruleOf(*e).executor == Executor::Kernel; }

// The ops of kernels on the ways from `first` to `last`, both included, in topological order. Nothing if none of the ways is short and leads
// through a reduction.
std::vector<Expr*> between(Expr* first, const Expr* last, const Places& places) {
  const auto place = [&](const Expr* e) { return places.at(e->id()); };
  std::vector<Expr*> after = {first};  // ops that depend on the first
  for (int64_t i = 0; i < std::ssize(after); i++) {
    for (Expr* use : first->fusion().uses(after[i]->output())) {
      if (places.contains(use->id()) && isOfKernel(use) && place(use) <= place(last) && !contains(after, use)) {
        after.push_back(use);
      }
    }
    if (std::ssize(after) > kMostBetween) {
      return {};
    }
  }
  std::ranges::sort(after, {}, place);
  std::set<const Val*> needed = {last->output()};  // by the last
  for (const Expr* e : after | std::views::reverse) {
    if (needed.contains(e->output())) {
      needed.insert(e->inputs().begin(), e->inputs().end());
    }
  }
  std::erase_if(after, [&](const Expr* e) { return !needed.contains(e->output()); });
  const bool reduces =
      std::ranges::any_of(after, [&](const Expr* e) { return e != last && e->kind() == ExprKind::Reduce; });
  return reduces ? after : std::vector<Expr*>{};
}

// Whether a kernel reads it in place of a result that is as large: its elements lie side by side, and no kernel before overwrites it.
bool isReadAgain(const TensorView* in, const LocalContext& context) {
  const std::vector<IntExpr> strides = layoutOf(in, context.layouts).strides;
  const bool isOverwritten =
      std::ranges::any_of(in->fusion().aliases(), [&](const auto& alias) { return alias.second == in; });
  return in->definition() == nullptr && !isOverwritten && !strides.empty() && strides.back().isConst(1);
}

// The ops that compute a result from one input and from small tensors, the last one first; nothing if there are none.
std::vector<const Expr*> chainOf(const Expr& e, const LocalContext& context) {
  const TensorView* out = e.tensorOutput();
  const int64_t elements = usualElements(*out);
  std::vector<const Expr*> chain = {&e};
  std::set<const TensorView*> read;
  int64_t functions = 0;
  for (int64_t i = 0; i < std::ssize(chain) && i <= kMostAgain; i++) {
    if (chain[i]->kind() == ExprKind::Point) {
      const PointOp op = chain[i]->attributes().point;
      functions += info(op).scalarCall ? 2 : isFunction(op) ? 1 : 0;
    }
    for (const TensorView* in : chain[i]->tensorInputs()) {
      if (usualElements(*in) < elements) {
        continue;
      }
      if (isReadAgain(in, context)) {
        read.insert(in);
      } else if (in->definition() == nullptr || !isPointOrCast(*in->definition())) {
        return {};
      } else if (!contains(chain, in->definition())) {
        chain.push_back(in->definition());
      }
    }
  }
  if (std::ssize(chain) > kMostAgain || functions > 1 || read.size() != 1 ||
      dataTypeSize((*read.begin())->dtype()) > dataTypeSize(out->dtype())) {
    return {};
  }
  return chain;
}

// A copy of the result of a chain.
Val* copyOf(Fusion& fusion, const std::vector<const Expr*>& chain) {
  FusionCloner cloner(fusion, fusion);
  for (const Expr* e : chain) {
    for (Val* in : e->inputs()) {
      if (!contains(chain, in->definition())) {
        cloner.set(in, in);
      }
    }
  }
  for (const Expr* e : chain | std::views::reverse) {
    (void)cloner.clone(e);
  }
  return cloner.find(chain[0]->output());
}

}  // namespace

bool recomputeLarge(Fusion& fusion, LocalContext& context) {
  bool changed = false;
  const std::vector<Expr*> exprs = fusion.exprs();
  Places places;
  for (Expr* e : exprs) {
    places.emplace(e->id(), std::ssize(places));
  }
  for (Expr* e : exprs) {
    if (!isPointOrCast(*e) || !e->output()->isTensor() || e->output()->isFusionOutput() ||
        usualBytes(*e->tensorOutput()) <= context.device.lastCacheBytes) {
      continue;
    }
    const std::vector<Expr*> uses = fusion.uses(e->output());
    if (uses.size() < 2 || !std::ranges::all_of(uses, isOfKernel)) {
      continue;
    }
    const std::vector<const Expr*> chain = chainOf(*e, context);
    if (chain.empty()) {
      continue;
    }
    std::vector<Expr*> together = {e};  // with those that read it in its own kernel
    std::vector<Expr*> later;
    for (Expr* use : filtered(uses, [&](const Expr* u) { return places.contains(u->id()); })) {
      const std::vector<Expr*> group = between(e, use, places);
      const bool isLater = !group.empty() && context.judge(context.groupOf(fusion, group)).judgement == nullptr;
      (isLater ? later : together).push_back(use);
    }
    // else it is stored anyway
    const bool isSpared = !later.empty() && context.judge(context.groupOf(fusion, together)).judgement != nullptr;
    if (!isSpared) {
      continue;
    }
    Val* own = copyOf(fusion, chain);
    for (Expr* use : later) {
      for (const int64_t operand : use->positionsOf(e->output())) {
        fusion.replaceInput(use, operand, own);
      }
    }
    changed = true;
  }
  return changed;
}

}  // namespace meshfuse
