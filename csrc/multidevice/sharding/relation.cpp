#include "multidevice/sharding/relation.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "ir/fusion.h"
#include "multidevice/sharding/carry.h"
#include "multidevice/sharding/local_indices.h"
#include "multidevice/sharding/operand_dims.h"

namespace meshfuse {

namespace {

std::string describe(const Digit& d, int dim, const DeviceMesh& mesh) {
  return fmt::format("the digit of dim {} with stride {} and size {} on {}", dim, d.stride.toString(),
                     d.size.toString(), mesh.axisName(d.owner.axis));
}

// `needed` fixes at least what `held` fixes: the digit lies in one of the same axis, at the same place of the coordinate.
bool isFixedBy(const Digit& held, const DigitList& needed, const Prover& prover) {
  return std::any_of(needed.digits().begin(), needed.digits().end(), [&](const Digit& n) {
    if (!n.owner.isDevice() || n.owner.axis != held.owner.axis || n.parts != held.parts) {
      return false;
    }
    std::optional<IntExpr> q = prover.divide(held.stride, n.stride);
    return q && prover.equal(held.owner.below, prover.multiply(n.owner.below, *q)) &&
           prover.divide(n.size, prover.multiply(*q, held.size)).has_value();
  });
}

struct Need {
  std::optional<ShardState> state;
  std::string reason;  // where the state is absent
};

Need neededState(const Expr* expr, int operand, const TensorView* result, const Prover& prover) {
  const TensorView* producer = expr->input(operand)->asTensor();
  const std::vector<OperandDim> dims = operandDims(expr, operand, result);
  const std::vector<IterDomain*> stored = producer->noReductions();
  const int partial = partialDim(producer);
  // A window's digits stand on the window's own dims; all other ops may regroup dims between root and logical.
  const bool window = expr->kind() == ExprKind::Slice || expr->kind() == ExprKind::Pad;
  const std::vector<IterDomain*>& base = window ? result->getLogicalDomain() : result->getRootDomain();
  const std::vector<BoundLoop> loops = boundLoops(result, base, prover);

  ShardState needed{result->getDeviceMesh(), {}, {}};
  for (size_t k = 0; k < stored.size(); k++) {
    if (static_cast<int>(k) == partial) {
      // sums are added contribution by contribution
      const int of = partialDim(result);
      if (of >= 0 && dims[k].root != kUnmapped &&
          result->noReductions()[static_cast<size_t>(of)] ==
              result->getRootDomain()[static_cast<size_t>(dims[k].root)]) {
        needed.partial = shardState(result, prover).partial;
      }
      continue;
    }
    const int position = static_cast<int>(needed.dims.size());
    std::vector<Digit> owned;
    for (const BoundLoop& loop : loops) {
      if (loop.digits.isOpaque()) {
        return {
            std::nullopt,
            fmt::format("the index of {} bound to {} is opaque: its splits and merges do not nest in the dims of {}",
                        result->toString(), result->getDeviceMesh().axisName(loop.axis), producer->toString())};
      }
      for (Digit d : loop.digits.digits()) {
        if (d.dim != dims[k].root || stretches(stored[k], dims[k], base[d.dim])) {
          continue;
        }
        if (!survivesWindow(d, dims[k], prover)) {
          return {std::nullopt,
                  fmt::format("{} of {} does not fall on whole periods of the window of {}",
                              describe(d, d.dim, result->getDeviceMesh()), result->toString(), producer->toString())};
        }
        d.dim = position;
        owned.push_back(std::move(d));
      }
    }
    DigitList list = fillLocal(position, stored[k]->extent(), owned, prover);
    if (list.isOpaque()) {
      return {std::nullopt, fmt::format("the digits of dim {} of {} that {} needs do not nest", k, producer->toString(),
                                        result->toString())};
    }
    needed.dims.push_back(std::move(list));
  }
  return {std::move(needed), ""};
}

}  // namespace

std::string_view name(EdgeRelation relation) {
  switch (relation) {
    case EdgeRelation::Aligned:
      return "aligned";
    case EdgeRelation::Local:
      return "local";
    case EdgeRelation::Comm:
      return "comm";
  }
  return "";
}

namespace {

bool isConstant(const ShardState& state) {
  return !state.mesh.devices().empty() && std::all_of(state.dims.begin(), state.dims.end(), [](const DigitList& dim) {
    return !dim.isOpaque() && dim.extent().isConst() &&
           std::all_of(dim.digits().begin(), dim.digits().end(), [](const Digit& d) {
             return d.size.isConst() && d.stride.isConst() && d.owner.below.isConst();
           });
  });
}

// On two meshes what axes are called says nothing, and of uneven parts that hold the same indices digits may differ: every rank's
// indices are compared.
EdgeRelation compareRanks(const ShardState& held, const ShardState& needed) {
  bool aligned = true;
  for (const int64_t device : needed.mesh.devices()) {
    if (!held.mesh.contains(device)) {
      return EdgeRelation::Comm;
    }
    const IndexBlock there = localIndices(held, device);
    const IndexBlock wanted = localIndices(needed, device);
    for (size_t k = 0; k < wanted.size(); k++) {
      if (intersection(there[k], wanted[k]) != wanted[k]) {
        return EdgeRelation::Comm;
      }
      aligned = aligned && there[k] == wanted[k];
    }
  }
  return aligned ? EdgeRelation::Aligned : EdgeRelation::Local;
}

}  // namespace

EdgeRelation compare(const ShardState& held, const ShardState& needed, std::string& reason, const Prover& prover) {
  if (held.mesh.empty()) {
    reason = needed.isSharded() ? "the producer is on every rank" : "";
    return needed.isSharded() ? EdgeRelation::Local : EdgeRelation::Aligned;
  }
  if (held.partial != needed.partial) {
    std::vector<std::string> axes;
    for (int axis : held.partial) {
      axes.push_back(held.mesh.axisName(axis));
    }
    reason = fmt::format("the producer is a partial sum over {}", fmt::join(axes, ", "));
    return EdgeRelation::Comm;
  }
  for (const DigitList& dim : held.dims) {
    if (dim.isOpaque()) {
      reason = fmt::format("the sharding of the producer is opaque: {}", held.toString());
      return EdgeRelation::Comm;
    }
  }
  if (!needed.mesh.empty() && !(held.mesh == needed.mesh)) {
    if (!held.isSharded() && !needed.isSharded() &&
        std::all_of(needed.mesh.devices().begin(), needed.mesh.devices().end(),
                    [&](int64_t device) { return held.mesh.contains(device); })) {
      return EdgeRelation::Aligned;
    }
    reason = fmt::format("the meshes differ: {} and {}", held.mesh.toString(), needed.mesh.toString());
    return isConstant(held) && isConstant(needed) ? compareRanks(held, needed) : EdgeRelation::Comm;
  }
  bool aligned = true;
  for (size_t k = 0; k < held.dims.size(); k++) {
    for (const Digit& d : held.dims[k].digits()) {
      if (d.owner.isDevice() && (needed.mesh.empty() || !isFixedBy(d, needed.dims[k], prover))) {
        const bool whole = needed.mesh.empty() || !needed.dims[k].hasOwned();
        if (!whole && (isRagged(held) || isRagged(needed)) && isConstant(held) && isConstant(needed)) {
          if (const EdgeRelation exact = compareRanks(held, needed); exact != EdgeRelation::Comm) {
            reason = exact == EdgeRelation::Local ? "of uneven parts a rank holds more than it needs" : "";
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
      reason = fmt::format("of dim {} a rank holds more than it needs", k);
    }
  }
  return aligned ? EdgeRelation::Aligned : EdgeRelation::Local;
}

Edge edgeRelation(const Expr* expr, int operand, const TensorView* result, const Prover& prover) {
  Edge edge;
  edge.held = shardState(expr->input(operand)->asTensor(), prover);
  Need need = neededState(expr, operand, result, prover);
  edge.needed = std::move(need.state);
  if (!edge.needed) {
    edge.reason = std::move(need.reason);
    // Whoever holds everything lacks nothing, however it is read.
    const bool whole = !edge.held.isSharded() && (edge.held.mesh.empty() || edge.held.mesh == result->getDeviceMesh());
    edge.relation = whole ? EdgeRelation::Local : EdgeRelation::Comm;
    return edge;
  }
  edge.relation = compare(edge.held, *edge.needed, edge.reason, prover);
  if (edge.relation == EdgeRelation::Comm) {
    const std::string why = opaqueInReshape(expr, edge.held, result, prover);
    edge.reason += why.empty() ? "" : "; " + why;
  }
  return edge;
}

bool isResharding(const Expr* expr) {
  for (const Val* out : expr->outputs()) {
    for (size_t k = 0; out->isTensor() && k < expr->inputs().size(); k++) {
      if (expr->input(static_cast<int>(k))->isTensor() &&
          edgeRelation(expr, static_cast<int>(k), out->asTensor()).relation == EdgeRelation::Comm) {
        return true;
      }
    }
  }
  return false;
}

bool haveDifferentShardings(const TensorView* producer, const TensorView* consumer) {
  const Expr* definition = consumer->definition();
  for (size_t k = 0; definition != nullptr && k < definition->inputs().size(); k++) {
    if (definition->input(static_cast<int>(k)) == producer) {
      return edgeRelation(definition, static_cast<int>(k), consumer).relation == EdgeRelation::Comm;
    }
  }
  const ShardState held = shardState(producer);
  const ShardState needed = shardState(consumer);
  std::string reason;
  return held.dims.size() != needed.dims.size() || compare(held, needed, reason) == EdgeRelation::Comm;
}

std::vector<TensorView*> getTvsWithDifferentSharding(const TensorView* ref, const std::vector<TensorView*>& tvs) {
  const ShardState state = shardState(ref);
  std::vector<TensorView*> different;
  for (TensorView* tv : tvs) {
    const ShardState other = shardState(tv);
    if (!provenEqual(state, other) && (state.isSharded() || other.isSharded() || !(state.mesh == other.mesh))) {
      different.push_back(tv);
    }
  }
  return different;
}

}  // namespace meshfuse
