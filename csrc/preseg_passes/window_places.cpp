#include "preseg_passes/window_places.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/halo_plan.h"
#include "multidevice/sharding/plan_memo.h"
#include "multidevice/sharding/relation.h"
#include "preseg_passes/reshard_cost.h"

namespace meshfuse {

namespace {

bool onlyChangesShape(const Expr* e) {
  const OpRule& rule = ruleOf(*e);
  return rule.elements == Elements::Moved &&
         (rule.view == View::InOrder || rule.view == View::Reordered || rule.view == View::Contiguous);
}

// The cost of a window's halo exchange with its present sharding.
std::optional<double> costOfWindow(const Expr* e) {
  double cost = 0;
  for (const int64_t operand : e->tensorPositions()) {
    const std::optional<HaloExchange> exchange = haloExchange(e, operand);
    if (!exchange) {
      return std::nullopt;
    }
    cost += exchange->messages.empty() ? 0 : exchange->cost;
  }
  return cost;
}

bool place(Expr* window, PlanMemo& plans) {
  // the window, then ops that change its shape; each has one reader, the next op, and the last one's reader is on another mesh
  std::vector<TensorView*> chain{window->tensorOutput()};
  const Expr* reader = nullptr;
  while (reader == nullptr) {
    TensorView* at = chain.back();
    const std::vector<Expr*> uses = at->fusion().uses(at);
    if (!isMovable(at) || uses.size() != 1 || uses[0]->kind() == ExprKind::Redistribute ||
        uses[0]->outputs().size() != 1 || !uses[0]->output()->isTensor() || !uses[0]->tensorOutput()->hasDeviceMesh()) {
      return false;
    }
    if (!(uses[0]->tensorOutput()->getDeviceMesh() == at->getDeviceMesh())) {
      reader = uses[0];
    } else if (onlyChangesShape(uses[0])) {
      chain.push_back(uses[0]->tensorOutput());
    } else {
      return false;
    }
  }
  const std::optional<double> before = costOfWindow(window);
  const Edge last = edgeRelation(reader, reader->positionsOf(chain.back())[0], reader->tensorOutput());
  if (!before || !last.needed || last.held.mesh.empty()) {
    return false;
  }
  const double moved =
      last.relation == EdgeRelation::Comm ? plans.plan(reader->fusion(), last.held, *last.needed).cost : 0;
  const auto was = mapped(chain, [](const TensorView* tv) { return shardState(tv); });
  std::optional<ShardState> needed = last.needed;
  for (int64_t k = std::ssize(chain); k-- > 0 && needed;) {
    setShardState(chain[k], *needed);
    if (k > 0) {
      const Expr* op = chain[k]->definition();
      needed = edgeRelation(op, op->positionsOf(chain[k - 1])[0], chain[k]).needed;
    }
  }
  const std::optional<double> after = needed ? costOfWindow(window) : std::nullopt;
  if (after && *after < *before + moved) {
    return true;
  }
  for (int64_t k = 0; k < std::ssize(chain); k++) {
    setShardState(chain[k], was[k]);
  }
  return false;
}

}  // namespace

bool placeWindowsWithReaders(Fusion& fusion, PlanMemo& plans) {
  bool changed = false;
  for (Expr* e : fusion.exprs()) {
    changed |= isWindowOp(e) && !exchangesHalo(e) && e->tensorOutput()->hasDeviceMesh() && place(e, plans);
  }
  return changed;
}

}  // namespace meshfuse
