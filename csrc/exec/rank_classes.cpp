#include "exec/rank_classes.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "multidevice/sharding/halo_exchange.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "multidevice/sharding/tile_transfer.h"

namespace meshfuse {

namespace {

// Calls visit(step, extents) for the steps of all redistributions that communicate.
template <class Visit>
void forEachStep(const Fusion& planned, const Visit& visit) {
  for (const Expr* e : planned.exprs()) {
    if (e->kind() != ExprKind::Redistribute || !e->attributes().plan) {
      continue;
    }
    const std::vector<int64_t> extents = shardState(e->tensorOutput()).constantShape();
    for (const CommStep& step : *e->attributes().plan) {
      if (step.communicates() && !contains(extents, 0)) {
        visit(step, extents);
      }
    }
  }
}

// Calls visit(exchange) once for each halo exchange in which ranks send to each other.
template <class Visit>
void forEachHaloTransfer(const Fusion& planned, const Visit& visit) {
  const HaloExchanges halos(planned);
  for (const Expr* e : planned.exprs()) {
    for (const int64_t operand : indices(e->inputs())) {
      const HaloExchanges::Place* const place = halos.find(e, operand);
      if (place != nullptr && place->isFirst && halos.exchange(*place).broadcastAxes.empty()) {
        visit(halos.exchange(*place));
      }
    }
  }
}

// By direct exchange: the ranks that send or receive. A rank of its meshes that only keeps its part has no step for it.
std::vector<std::set<int64_t>> exchangingRanks(const Fusion& planned) {
  std::vector<std::set<int64_t>> all;
  const auto add = [&](const auto& messages) {
    std::set<int64_t>& ranks = all.emplace_back();
    for (const auto& m : messages) {
      if (m.from != m.to) {
        ranks.insert({m.from, m.to});
      }
    }
  };
  forEachStep(planned, [&](const CommStep& step, const std::vector<int64_t>& extents) {
    if (step.to) {
      add(tileTransfer(step, extents).messages);
    }
  });
  forEachHaloTransfer(planned, [&](const HaloExchange& exchange) { add(exchange.messages); });
  return all;
}

}  // namespace

RankClasses rankClasses(const Fusion& planned, int64_t ranks) {
  ShardStateMemo states;
  std::vector<ShardState> unlike;  // ranks hold parts of different sizes, or none
  for (const TensorView* tv : planned.tensors()) {
    if (tv->hasDeviceMesh()) {
      ShardState state = states.state(tv);
      if (state.mesh.numDevices() < ranks || isRagged(state)) {
        unlike.push_back(std::move(state));
      }
    }
  }
  const std::vector<std::set<int64_t>> exchanges = exchangingRanks(planned);
  RankClasses result;
  std::map<std::pair<std::vector<std::vector<int64_t>>, std::vector<bool>>, int64_t> known;
  for (int64_t rank = 0; rank < ranks; rank++) {
    const auto sizes = mapped(unlike, [&](const ShardState& s) { return heldPart(s, rank).sizes(); });
    const auto takesPart = mapped(exchanges, [&](const std::set<int64_t>& of) { return of.contains(rank); });
    const auto [place, isNew] = known.try_emplace({sizes, takesPart}, std::ssize(result.firstRanks));
    if (isNew) {
      result.firstRanks.push_back(rank);
    }
    result.classOf.push_back(place->second);
  }
  return result;
}

bool mayExchangeUnlikeBlocks(const Fusion& planned) {
  bool may = false;
  forEachStep(planned, [&](const CommStep& step, const std::vector<int64_t>& extents) {
    may |= step.kind == Collective::Transfer || (step.kind != Collective::AllReduce && !isEven(step, extents));
  });
  forEachHaloTransfer(planned, [&](const HaloExchange& exchange) { may |= !exchange.messages.empty(); });
  return may;
}

}  // namespace meshfuse
