#include "analysis/transform_replay.h"

#include <algorithm>
#include <map>

#include "analysis/id_graph.h"
#include "base/error.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

bool sameParameters(const IdExpr& a, const IdExpr& b) {
  return a.kind == b.kind && a.factor == b.factor && a.innerSplit == b.innerSplit && a.left == b.left &&
         a.right == b.right && a.sizes == b.sizes;
}

// The transforms among `ids`, in the order of their results.
std::vector<const IdExpr*> transformsAmong(const std::vector<IterDomain*>& ids) {
  std::vector<const IdExpr*> order;
  for (const IterDomain* id : ids) {
    if (id->definition() != nullptr && id->definition()->out[0] == id) {
      order.push_back(id->definition());
    }
  }
  return order;
}

class Replay {
 public:
  Replay(const TensorView& from, TensorView& to) : from_(from), to_(to) {}

  void map(const IterDomain* from, IterDomain* to) {
    if (to->isBroadcast() == from->isBroadcast()) {
      map_.emplace(from->id(), to);
    }
  }
  bool isMapped(const IterDomain* from) const { return map_.count(from->id()) != 0; }

  ReplayResult run(ReplayBindings bindings) {
    std::vector<const IdExpr*> existing = transformsAmong(allIds(to_));
    for (const IdExpr* e : transformsAmong(allIds(from_))) {
      follow(*e, existing);
    }
    ReplayResult result;
    for (IterDomain* id : from_.getLoopDomain()) {
      IterDomain* image = find(id);
      if (image != nullptr && position(image) >= 0) {
        result.loop.emplace_back(id, image);
      } else if (id->parallelType() != ParallelType::Serial) {
        result.complete = false;
      }
    }
    order(result);
    if (bindings == ReplayBindings::Copy) {
      bind(result);
    }
    return result;
  }

 private:
  IterDomain* find(const IterDomain* id) const {
    auto it = map_.find(id->id());
    return it == map_.end() ? nullptr : it->second;
  }
  int position(const IterDomain* id) const {
    const std::vector<IterDomain*>& loop = to_.getLoopDomain();
    auto it = std::find(loop.begin(), loop.end(), id);
    return it == loop.end() ? -1 : static_cast<int>(it - loop.begin());
  }

  void mapOutputs(const IdExpr& e, const std::vector<IterDomain*>& outs) {
    for (size_t k = 0; k < outs.size(); k++) {
      map_.emplace(e.out[k]->id(), outs[k]);
    }
  }

  // Maps the results of one transform of `from`: `to` has the same one already, or gets it.
  void follow(const IdExpr& e, const std::vector<const IdExpr*>& existing) {
    std::vector<IterDomain*> in;
    for (const IterDomain* id : e.in) {
      in.push_back(find(id));
      if (in.back() == nullptr) {
        return;
      }
    }
    for (const IdExpr* other : existing) {
      if (sameParameters(e, *other) && other->in == in) {
        mapOutputs(e, other->out);
        return;
      }
    }
    std::vector<int> at;
    for (const IterDomain* id : in) {
      at.push_back(position(id));
      if (at.back() < 0 || id->parallelType() != ParallelType::Serial) {
        return;
      }
    }
    if (e.kind == IdExprKind::Split) {
      to_.split(at[0], e.factor, e.innerSplit);
      mapOutputs(e, {to_.axis(at[0]), to_.axis(at[0] + 1)});
    } else if (e.kind == IdExprKind::Partition && to_.axis(at[0])->definition() == nullptr) {
      to_.partition(at[0], e.sizes);
      mapOutputs(e, {to_.axis(at[0]), to_.axis(at[0] + 1)});
    } else if (e.kind == IdExprKind::Merge && in[0]->isReduction() == in[1]->isReduction()) {
      to_.merge(at[0], at[1]);
      mapOutputs(e, {to_.axis(at[1] < at[0] ? at[0] - 1 : at[0])});
    }
  }

  void order(const ReplayResult& result) {
    std::vector<int> places;
    for (const auto& [from, to] : result.loop) {
      places.push_back(position(to));
    }
    std::vector<int> sorted = places;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::pair<int, int>> oldToNew;
    for (size_t k = 0; k < places.size(); k++) {
      oldToNew.emplace_back(places[k], sorted[k]);
    }
    to_.reorder(oldToNew);
  }

  void bind(ReplayResult& result) {
    for (const auto& [from, to] : result.loop) {
      ParallelType type = from->parallelType();
      if (type == ParallelType::Serial || to->parallelType() == type) {
        continue;
      }
      // an axis owns one dim of a tensor, and one reduction dim
      bool taken =
          std::any_of(to_.getLoopDomain().begin(), to_.getLoopDomain().end(), [&, image = to](const IterDomain* d) {
            return d->parallelType() == type && d->isReduction() == image->isReduction();
          });
      if (taken || to->parallelType() != ParallelType::Serial) {
        result.complete = false;
      } else {
        to->parallelize(type);
      }
    }
  }

  const TensorView& from_;
  TensorView& to_;
  std::map<int, IterDomain*> map_;  // by id of from's dim
};

// The operand number of `operand` in the definition of `result`, or -1.
int operandNumber(const TensorView& operand, const TensorView& result) {
  const Expr* e = result.definition();
  if (e == nullptr || e->tensorOutput() != &result) {
    return -1;
  }
  auto it = std::find(e->inputs().begin(), e->inputs().end(), &operand);
  return it == e->inputs().end() ? -1 : static_cast<int>(it - e->inputs().begin());
}

}  // namespace

ReplayResult replayLoop(const TensorView& from, TensorView& to, ReplayBindings bindings) {
  int down = operandNumber(from, to);
  int up = down < 0 ? operandNumber(to, from) : -1;
  check(down >= 0 || up >= 0, "[replayLoop] {} and {} are not operand and result of one op; use an IdGraph",
        from.toString(), to.toString());
  Replay replay(from, to);
  for (const IdLink& link : idLinks(down >= 0 ? *to.definition() : *from.definition(), down >= 0 ? down : up)) {
    if (link.how == DimRead::Same || link.how == DimRead::Reduced) {
      down >= 0 ? replay.map(link.producer, link.consumer) : replay.map(link.consumer, link.producer);
    }
  }
  return replay.run(bindings);
}

ReplayResult replayLoop(const TensorView& from, TensorView& to, const IdGraph& ids, ReplayBindings bindings) {
  Replay replay(from, to);
  std::vector<IterDomain*> candidates = allIds(from);
  for (IterDomain* id : to.getLogicalDomain()) {
    auto it = std::find_if(candidates.begin(), candidates.end(),
                           [&](const IterDomain* c) { return ids.same(c, id) && !replay.isMapped(c); });
    if (it != candidates.end()) {
      replay.map(*it, id);
    }
  }
  return replay.run(bindings);
}

}  // namespace meshfuse
