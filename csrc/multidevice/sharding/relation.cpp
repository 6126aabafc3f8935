#include "multidevice/sharding/relation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/operand_dims.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "multidevice/sharding/size_facts.h"

namespace meshfuse {

namespace {

std::string describe(const Digit& d, int64_t dim, const DeviceMesh& mesh) {
  return fmt::format("the digit of dim {} with stride {} and size {} on {}", dim, d.stride.toString(),
                     d.size.toString(), mesh.axisName(d.owner.axis));
}

// `needed` fixes at least the digits that `held` fixes: each lies in a digit of the same axis, at the same position of the coordinate.
bool isFixedBy(const Digit& held, const DigitList& needed, const Prover& prover) {
  return std::ranges::any_of(needed.digits(), [&](const Digit& n) {
    if (!n.owner.isDevice() || n.owner.axis != held.owner.axis || n.parts != held.parts) {
      return false;
    }
    std::optional<IntExpr> q = prover.divide(held.stride, n.stride);
    return q && prover.equal(held.owner.below, prover.multiply(n.owner.below, *q)) &&
           prover.divide(n.size, prover.multiply(*q, held.size)).has_value();
  });
}

bool holdsRanksOf(const DeviceMesh& held, const DeviceMesh& needed) {
  return held == needed || (!held.isSymbolic() && !needed.isSymbolic() &&
                            std::ranges::all_of(needed.devices(), [&](int64_t rank) { return held.contains(rank); }));
}

// Two meshes: the digits of `list` show `digit`, and on each of these ranks, which are in both meshes, they have its value there. One digit
// may be several on the other side: x of 4 is (a, b) of 2 x 2.
bool isShownBy(const DigitList& list, const DeviceMesh& mesh, const Digit& digit, const DeviceMesh& meshOfDigit,
               const std::vector<int64_t>& ranks, const Prover& prover) {
  const auto isConstant = [](const Digit& d) { return d.size.isConst() && d.owner.below.isConst(); };
  const auto valueOn = [](int64_t rank, const DeviceMesh& of, const Digit& d) {
    return of.coordinates(rank)[d.owner.axis] / d.owner.below.constValue() % d.size.constValue();
  };
  if (!isConstant(digit)) {
    return false;
  }
  const int64_t size = digit.size.constValue();
  std::vector<int64_t> values(ranks.size(), 0);
  for (int64_t shown = 1; shown < size;) {  // from the minor end
    const IntExpr stride = prover.multiply(digit.stride, shown);
    int64_t taken = 1;
    for (const Digit& d : list.digits()) {
      const std::optional<IntExpr> below = prover.divide(stride, d.stride);
      if (!d.owner.isDevice() || d.parts != digit.parts || !isConstant(d) || !below || !below->isConst() ||
          below->isConst(0) || d.size.constValue() % below->constValue() != 0) {
        continue;
      }
      taken = std::gcd(d.size.constValue() / below->constValue(), size / shown);
      if (taken > 1) {
        for (const int64_t k : indices(ranks)) {
          values[k] += valueOn(ranks[k], mesh, d) / below->constValue() % taken * shown;
        }
        break;
      }
    }
    if (taken == 1) {
      return false;
    }
    shown *= taken;
  }
  return std::ranges::all_of(indices(ranks),
                             [&](int64_t k) { return values[k] == valueOn(ranks[k], meshOfDigit, digit); });
}

struct Need {
  ShardState state;
  // Why a digit of the result is none of the operand: without it ranks need less than the state says.
  std::string unknown;
  // An operand dim that is needed whole may have one element or the extent of the result's dim.
  bool mayStretch = false;
};

Need neededState(const Expr* expr, int64_t operand, const TensorView* result, const Prover& prover) {
  const TensorView* producer = expr->input(operand)->asTensor();
  const std::vector<OperandDim> dims = operandDims(expr, operand);
  const std::vector<IterDomain*> stored = producer->noReductions();
  const int64_t partial = producer->partialDim();
  // A window's digits stand on the window's own dims; all other ops may regroup dims between root and logical.
  const bool window = isWindow(*expr);
  const std::vector<IterDomain*>& base = window ? result->getLogicalDomain() : result->getRootDomain();
  const std::vector<BoundLoop> loops = boundLoops(result, base, prover);

  Need need{.state = {result->getDeviceMesh(), {}, {}}, .unknown = {}};
  ShardState& needed = need.state;
  const auto noteUnknown = [&](const std::string& why) {
    if (need.unknown.empty()) {
      need.unknown = why;
    }
  };
  for (const BoundLoop& loop : loops) {
    if (loop.digits.isOpaque()) {
      noteUnknown(
          fmt::format("the index of {} bound to {} is opaque: its splits and merges do not nest in the dims of {}",
                      result->toString(), result->getDeviceMesh().axisName(loop.axis), producer->toString()));
    }
  }
  for (int64_t k = 0; k < std::ssize(stored); k++) {
    if (k == partial) {
      // sums are added contribution by contribution
      if (dims[k].root != kUnmapped && result->getRootDomain()[dims[k].root] == result->partialDomain()) {
        needed.partial = shardState(result, prover).partial;
      }
      continue;
    }
    const int64_t position = std::ssize(needed.dims);
    std::vector<Digit> owned;
    for (const BoundLoop& loop : loops) {
      for (Digit d : loop.digits.digits()) {
        if (d.dim != dims[k].root || stretches(stored[k], dims[k], base[d.dim])) {
          continue;
        }
        if (mayStretch(*expr, stored[k], dims[k], base[d.dim], prover)) {
          need.mayStretch = true;
          continue;
        }
        if (!survivesWindow(d, dims[k], prover)) {
          noteUnknown(fmt::format("{} of {} does not fall on whole periods of the window of {}",
                                  describe(d, d.dim, result->getDeviceMesh()), result->toString(),
                                  producer->toString()));
          continue;
        }
        d.dim = position;
        owned.push_back(std::move(d));
      }
    }
    DigitList list = fillLocal(position, stored[k]->extent(), owned, prover);
    if (list.isOpaque()) {
      noteUnknown(fmt::format("the digits of dim {} of {} that {} needs do not nest", k, producer->toString(),
                              result->toString()));
      list = DigitList::whole(position, prover.canonical(stored[k]->extent()));
    }
    needed.dims.push_back(std::move(list));
  }
  return need;
}

// The position of an element along a loop, as a function of its positions along the given dims, each a symbol; nullopt if the loop
// depends on another dim.
std::optional<IntExpr> placeAlong(const IterDomain* id, const std::map<const IterDomain*, IntExpr>& dims,
                                  const Prover& prover) {
  if (const auto at = dims.find(id); at != dims.end()) {
    return at->second;
  }
  const IdExpr* e = id->definition();
  const std::optional<IntExpr> in = e == nullptr ? std::nullopt : placeAlong(e->in[0], dims, prover);
  if (!in) {
    return std::nullopt;
  }
  switch (e->kind) {
    case IdExprKind::Merge: {
      const std::optional<IntExpr> inner = placeAlong(e->in[1], dims, prover);
      return inner ? std::optional(*in * prover.canonical(e->in[1]->extent()) + *inner) : std::nullopt;
    }
    case IdExprKind::Split: {
      const IntExpr inner = prover.canonical(e->out[1]->extent());
      if (inner.isConst(0)) {
        return std::nullopt;  // there are no elements
      }
      return id == e->out[0] ? floorDiv(*in, inner) : mod(*in, inner);
    }
    case IdExprKind::Resize:
    case IdExprKind::Partition:
      break;
  }
  return std::nullopt;
}

IntExpr placeSymbol(const std::string& name, const IterDomain* dim, const Prover& prover) {
  const std::optional<int64_t> extent = prover.canonical(dim->extent()).upper();
  return IntExpr::symbol(name, {.lower = 0, .upper = extent && *extent > 0 ? *extent - 1 : INT64_MAX});
}

// Loops that axes own, with the position along each.
struct PlacedLoop {
  ParallelType type;
  IntExpr place;
};
std::optional<std::vector<PlacedLoop>> placedLoops(const TensorView* tv,
                                                   const std::map<const IterDomain*, IntExpr>& dims,
                                                   const Prover& prover) {
  std::vector<PlacedLoop> loops;
  for (const IterDomain* id : tv->getLoopDomain()) {
    if (id->isDeviceDim() && !prover.canonical(tv->getDeviceMesh().size(id->parallelType())).isConst(1)) {
      const std::optional<IntExpr> place = placeAlong(id, dims, prover);
      if (!place) {
        return std::nullopt;
      }
      loops.push_back({id->parallelType(), *place});
    }
  }
  return loops;
}

// On every rank of `b`, which `a` contains, one type has the same position on `a` as the other on `b`.
bool sameOnRanks(const DeviceMesh& a, ParallelType onA, const DeviceMesh& b, ParallelType onB) {
  const auto position = [](const DeviceMesh& mesh, ParallelType type, int64_t rank) {
    return mesh.coordinates(rank)[mesh.axisOf(type)] / mesh.below(type).constValue() % mesh.size(type).constValue();
  };
  return a == b ? onA == onB : std::ranges::all_of(b.devices(), [&](int64_t rank) {
    return position(a, onA, rank) == position(b, onB, rank);
  });
}

// Of sizes that are symbols, where splits that are not known to divide leave no digits: the axes that own loops of the operand own
// loops of the result along which every element has the same place. Of constants such shardings are refused.
EdgeRelation compareLoops(const Expr* expr, int64_t operand, const TensorView* result, const Prover& prover) {
  const TensorView* producer = expr->input(operand)->asTensor();
  const DeviceMesh& there = producer->getDeviceMesh();
  const DeviceMesh& here = result->getDeviceMesh();
  if (!holdsRanksOf(there, here) || producer->isPartial()) {
    return EdgeRelation::Comm;
  }
  const std::vector<OperandDim> dims = operandDims(expr, operand);
  const std::vector<IterDomain*> stored = producer->noReductions();
  const std::vector<IterDomain*>& root = result->getRootDomain();
  std::map<const IterDomain*, IntExpr> placesThere;
  std::map<const IterDomain*, IntExpr> placesHere;
  for (int64_t k = 0; k < std::ssize(stored); k++) {
    const IntExpr place = placeSymbol(fmt::format("operand{}", k), stored[k], prover);
    placesThere.emplace(stored[k], place);
    const bool reads = dims[k].root != kUnmapped && !dims[k].window && dims[k].step.isConst(1);
    const IterDomain* at = reads ? root[dims[k].root] : nullptr;
    if (reads && !stretches(stored[k], dims[k], at) && !mayStretch(*expr, stored[k], dims[k], at, prover)) {
      placesHere.emplace(at, place);
    }
  }
  for (int64_t k = 0; k < std::ssize(root); k++) {
    placesHere.emplace(root[k], placeSymbol(fmt::format("result{}", k), root[k], prover));
  }
  const auto held = placedLoops(producer, placesThere, prover);
  const auto needed = placedLoops(result, placesHere, prover);
  if (!held || !needed) {
    return EdgeRelation::Comm;
  }
  const auto same = [&](const PlacedLoop& h, const PlacedLoop& n) {
    return n.place == h.place && sameOnRanks(there, h.type, here, n.type);
  };
  const bool contained = std::ranges::all_of(
      *held, [&](const PlacedLoop& h) { return std::ranges::any_of(*needed, std::bind_front(same, h)); });
  const bool aligned = std::ranges::all_of(*needed, [&](const PlacedLoop& n) {
    return std::ranges::any_of(*held, [&](const PlacedLoop& h) { return same(h, n); });
  });
  return !contained ? EdgeRelation::Comm : aligned ? EdgeRelation::Aligned : EdgeRelation::Local;
}

bool hasSymbols(const TensorView* tv) {
  return std::ranges::any_of(tv->getLoopDomain(), [](const IterDomain* id) { return !id->extent().isConst(); });
}

// Compares the indices of every rank: uneven parts with equal indices may have different digits.
EdgeRelation compareRanks(const ShardState& held, const ShardState& needed) {
  bool aligned = true;
  for (const int64_t device : needed.mesh.devices()) {
    const Part there = heldPart(held, device);
    const Part wanted = heldPart(needed, device);
    if (!there.contains(wanted)) {
      return EdgeRelation::Comm;
    }
    aligned = aligned && there == wanted;
  }
  return aligned ? EdgeRelation::Aligned : EdgeRelation::Local;
}

// Of states on two meshes: names of axes are unrelated, so the coordinates of every rank are compared.
EdgeRelation compareOnTwoMeshes(const ShardState& held, const ShardState& needed, const Prover& prover) {
  if (!holdsRanksOf(held.mesh, needed.mesh) || !held.partial.empty()) {
    return EdgeRelation::Comm;
  }
  if (held.isConstant() && needed.isConstant()) {
    return compareRanks(held, needed);
  }
  // every owned digit of `from` is known in `to`
  const auto shown = [&](const ShardState& from, const ShardState& to) {
    return std::ranges::all_of(indices(from.dims), [&](int64_t k) {
      return !from.dims[k].isOpaque() && std::ranges::all_of(from.dims[k].digits(), [&](const Digit& d) {
        return !d.owner.isDevice() || isShownBy(to.dims[k], to.mesh, d, from.mesh, needed.mesh.devices(), prover);
      });
    });
  };
  return !shown(held, needed) ? EdgeRelation::Comm : shown(needed, held) ? EdgeRelation::Aligned : EdgeRelation::Local;
}

Edge edgeFrom(ShardState held, const Expr* expr, int64_t operand, const TensorView* result, const Prover& prover) {
  Edge edge;
  edge.held = std::move(held);
  Need need = neededState(expr, operand, result, prover);
  const bool isKnown = need.unknown.empty();
  // A rank that holds the whole tensor lacks nothing. For symbolic sizes the same holds for each dim.
  const bool whole =
      !edge.held.isSharded() && (edge.held.mesh.empty() || holdsRanksOf(edge.held.mesh, result->getDeviceMesh()));
  if (isKnown || whole || hasSymbols(result)) {
    edge.relation = compare(edge.held, need.state, edge.reason, prover);
  }
  if (edge.relation == EdgeRelation::Aligned && (!isKnown || need.mayStretch)) {
    edge.relation = EdgeRelation::Local;
    edge.reason = "a rank may hold more than it needs";
  }
  if (edge.relation != EdgeRelation::Aligned && (!isKnown || edge.held.hasOpaqueDim()) && hasSymbols(result)) {
    if (const EdgeRelation byLoops = compareLoops(expr, operand, result, prover); byLoops < edge.relation) {
      edge.relation = byLoops;
      edge.reason = "";
    }
  }
  if (isKnown) {
    edge.needed = std::move(need.state);
  } else if (edge.relation != EdgeRelation::Aligned) {
    edge.reason = std::move(need.unknown);
  }
  if (edge.relation == EdgeRelation::Comm && isKnown) {
    const std::string why = opaqueInReshape(expr, edge.held, result, prover);
    edge.reason += why.empty() ? "" : "; " + why;
  }
  return edge;
}

// Whether an elementwise op reads, for each element of its result, the element of an operand with equal dims.
bool readsInPlace(const Expr& e, const TensorView* producer, const TensorView* result) {
  const auto alike = [](const IterDomain* a, const IterDomain* b) {
    return a->iterType() == IterType::Iteration && b->iterType() == IterType::Iteration && a->extent() == b->extent();
  };
  return ruleOf(e).form == OpForm::Pointwise && !result->hasRoot() && producer->hasDeviceMesh() &&
         std::ranges::equal(producer->noReductions(), result->getLogicalDomain(), alike);
}

// Equal digits on one mesh, without partial sums.
bool arePlacedAlike(const ShardState& a, const ShardState& b) {
  const auto same = [](const DigitList& x, const DigitList& y) {
    return !x.isOpaque() && !y.isOpaque() && std::ranges::equal(x.digits(), y.digits());
  };
  return a.mesh == b.mesh && a.partial.empty() && b.partial.empty() && std::ranges::equal(a.dims, b.dims, same);
}

}  // namespace

std::string_view name(EdgeRelation relation) {
  constexpr std::string_view kNames[] = {"aligned", "local", "comm"};
  return kNames[static_cast<size_t>(relation)];
}

EdgeRelation compare(const ShardState& held, const ShardState& needed, std::string& reason, const Prover& prover) {
  if (held.mesh.empty()) {
    reason = needed.isSharded() ? "the producer is on every rank" : "";
    return needed.isSharded() ? EdgeRelation::Local : EdgeRelation::Aligned;
  }
  if (held.partial != needed.partial) {
    reason = "the producer is a partial sum over " +
             joined(held.partial, ", ", [&](int64_t axis) { return held.mesh.axisName(axis); });
    return EdgeRelation::Comm;
  }
  if (held.hasOpaqueDim()) {
    reason = fmt::format("the sharding of the producer is opaque: {}", held.toString());
    return EdgeRelation::Comm;
  }
  if (!needed.mesh.empty() && !(held.mesh == needed.mesh)) {
    const EdgeRelation relation = compareOnTwoMeshes(held, needed, prover);
    if (held.isSharded() || relation != EdgeRelation::Aligned) {
      reason = fmt::format("the meshes differ: {} and {}", held.mesh.toString(), needed.mesh.toString());
    }
    return relation;
  }
  bool aligned = true;
  for (int64_t k = 0; k < std::ssize(held.dims); k++) {
    for (const Digit& d : held.dims[k].digits()) {
      if (d.owner.isDevice() && (needed.mesh.empty() || !isFixedBy(d, needed.dims[k], prover))) {
        const bool whole = needed.mesh.empty() || !needed.dims[k].hasOwned();
        if (!whole && (isRagged(held) || isRagged(needed)) && held.isConstant() && needed.isConstant()) {
          if (const EdgeRelation exact = compareRanks(held, needed); exact != EdgeRelation::Comm) {
            reason = exact == EdgeRelation::Local ? "parts are uneven: a rank holds more than it needs" : "";
            return exact;
          }
        }
        reason = fmt::format("dim {} is held as {}, needed {}", k, held.dimText(k),
                             whole ? "whole" : "as " + needed.dimText(k));
        return EdgeRelation::Comm;
      }
    }
    aligned = aligned && (needed.mesh.empty() || provenEqual(held.dims[k], needed.dims[k], prover));
    if (!aligned && reason.empty()) {
      reason = fmt::format("a rank holds more of dim {} than it needs", k);
    }
  }
  return aligned ? EdgeRelation::Aligned : EdgeRelation::Local;
}

Edge edgeRelation(const Expr* expr, int64_t operand, const TensorView* result) {
  auto edges =
      mapped(casesOfSizes(*expr), [&](const Prover& facts) { return edgeRelation(expr, operand, result, facts); });
  return std::move(*std::ranges::max_element(edges, {}, &Edge::relation));  // the first of the weakest
}

Edge edgeRelation(const Expr* expr, int64_t operand, const TensorView* result, ShardStateMemo& states) {
  if (!hasConstantExtents(*expr)) {
    return edgeRelation(expr, operand, result);
  }
  const TensorView* producer = expr->input(operand)->asTensor();
  ShardState held = states.state(producer);
  if (readsInPlace(*expr, producer, result)) {
    if (ShardState made = states.state(result); arePlacedAlike(held, made)) {
      return {.relation = EdgeRelation::Aligned, .reason = "", .held = std::move(held), .needed = std::move(made)};
    }
  }
  return edgeFrom(std::move(held), expr, operand, result, {});
}

Edge edgeRelation(const Expr* expr, int64_t operand, const TensorView* result, const Prover& prover) {
  return edgeFrom(shardState(expr->input(operand)->asTensor(), prover), expr, operand, result, prover);
}

bool isResharding(const Expr* expr) {
  return std::ranges::any_of(expr->outputs(), [&](const Val* out) {
    return out->isTensor() && std::ranges::any_of(indices(expr->inputs()), [&](int64_t k) {
             return expr->input(k)->isTensor() && edgeRelation(expr, k, out->asTensor()).relation == EdgeRelation::Comm;
           });
  });
}

bool haveDifferentShardings(const TensorView* producer, const TensorView* consumer) {
  if (const Expr* e = consumer->definition(); e != nullptr && contains(e->inputs(), producer)) {
    const auto operand = positionIn(e->inputs(), producer);
    return edgeRelation(e, operand, consumer).relation == EdgeRelation::Comm;
  }
  Prover prover = factsOfSizes(producer->fusion());
  const std::vector<IntExpr> there = producer->shape();
  const std::vector<IntExpr> here = consumer->shape();
  for (int64_t k = 0; k < std::ssize(here) && here.size() == there.size(); k++) {
    prover.assumeEqual(there[k], here[k]);
  }
  const ShardState held = shardState(producer, prover);
  const ShardState needed = shardState(consumer, prover);
  std::string reason;
  return held.dims.size() != needed.dims.size() || compare(held, needed, reason, prover) == EdgeRelation::Comm;
}

std::vector<TensorView*> getTvsWithDifferentSharding(const TensorView* ref, const std::vector<TensorView*>& tvs) {
  const Prover prover = factsOfSizes(ref->fusion());
  const ShardState state = shardState(ref, prover);
  return filtered(tvs, [&](const TensorView* tv) {
    const ShardState other = shardState(tv, prover);
    return !provenEqual(state, other, prover) &&
           (state.isSharded() || other.isSharded() || !(state.mesh == other.mesh));
  });
}

}  // namespace meshfuse
