#include "multidevice/sharding/halo_exchange.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ir/plan_text.h"
#include "multidevice/sharding/halo_plan.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/operand_dims.h"
#include "multidevice/sharding/plan_options.h"
#include "multidevice/sharding/row_broadcast.h"
#include "multidevice/sharding/tile_messages.h"

namespace meshfuse {

namespace {

bool areConstant(const std::vector<IntExpr>& values) {
  return std::ranges::all_of(values, [](const IntExpr& e) { return e.isConst(); });
}

// The position, equal in every team, of the one rank that holds everything its team needs.
std::optional<int64_t> rootAlong(const std::vector<int64_t>& axes, const ShardState& held,
                                 const HaloExchange& exchange) {
  const DeviceMesh& mesh = exchange.to;
  const std::vector<Part>& needs = exchange.needs;
  std::optional<int64_t> root;
  for (int64_t r = 0; r < std::ssize(needs); r++) {
    const std::vector<int64_t> team = mesh.team(mesh.devices()[r], axes);
    for (const int64_t place : indices(team)) {
      const bool has = heldPart(held, team[place]).contains(needs[r]);
      if (needs[mesh.indexOf(team[place])] != needs[r] || (has && root.value_or(place) != place)) {
        return std::nullopt;
      }
      root = has ? place : root;
    }
  }
  // every rank that lacks it receives all of it from its own team
  const auto bringsAll = [&](const PartMessage& m) {
    return m.part.count() == needs[mesh.indexOf(m.to)].count() && mesh.team(m.to, axes)[*root] == m.from;
  };
  return root && std::ranges::all_of(exchange.messages, bringsAll) ? root : std::nullopt;
}

// `alike`: the parts of the result have the same positions in all teams.
HaloExchange exchangeOf(const ShardState& held, const DeviceMesh& to, std::vector<Part> needs, bool alike,
                        const PlannerSettings& prices) {
  std::vector<Part> parts;
  std::vector<std::vector<int64_t>> holders;  // of each part, as positions in the mesh
  for (const int64_t position : indices(held.mesh.devices())) {
    Part mine = heldPart(held, held.mesh.devices()[position]);
    const int64_t part = positionIn(parts, mine);
    if (part == std::ssize(parts)) {
      parts.push_back(std::move(mine));
      holders.emplace_back();
    }
    holders[part].push_back(position);
  }
  const TileMessages found = tileMessages(held.mesh, to, holders, [&](int64_t part, int64_t reader) {
    return intersection(parts[part], needs[reader]).count();
  });
  const auto withPart = [&](const TileMessage& m) {
    return PartMessage{m.from, m.to, intersection(parts[m.tile], needs[to.indexOf(m.to)])};
  };
  HaloExchange out;
  out.to = to;
  out.messages = mapped(found.messages, withPart);
  out.kept = mapped(found.kept, withPart);
  out.needs = std::move(needs);
  out.received = found.received;
  out.total = sumOf(found.messages, &TileMessage::elements);
  if (out.messages.empty()) {
    return out;
  }
  const auto peers = static_cast<double>(found.peers);
  const auto busiest = static_cast<double>(std::max(found.received, found.sent));
  out.step.kind = Collective::Transfer;
  if (!(held.mesh == to)) {
    out.cost = peers + (haveSameDevices(held.mesh, to) ? 1 : prices.betaBetween) * busiest;
    return out;
  }
  out.step.axes = mapped(found.crossed, [&](int64_t axis) { return to.axisName(axis); });
  const double perElement = costAlong(out.step.axes, prices.beta);
  out.cost = costAlong(out.step.axes, prices.alpha) * peers + perElement * busiest;
  if (const std::optional<int64_t> root = alike ? rootAlong(found.crossed, held, out) : std::nullopt) {
    out.broadcastAxes = found.crossed;
    out.root = *root;
    out.step.kind = Collective::Broadcast;
    out.cost = costAlong(out.step.axes, prices.alpha) + perElement * static_cast<double>(out.received);
  }
  return out;
}

// The union of the indices as contiguous runs; nothing if a run has a step other than 1.
std::optional<IndexRuns> joined(const IndexRuns& a, const IndexRuns& b) {
  IndexRuns all = a;
  append(all, b);
  std::ranges::sort(all, {}, &IndexRun::start);
  IndexRuns out;
  for (IndexRun& r : all) {
    if (r.count > 1 && r.step != 1) {
      return std::nullopt;
    }
    r.step = 1;
    if (out.empty() || r.start > out.back().start + out.back().count) {
      out.push_back(r);
    } else {
      out.back().count = std::max(out.back().count, r.start + r.count - out.back().start);
    }
  }
  return out;
}

std::optional<Part> joined(const Part& a, const Part& b) {
  if (a.count() == 0 || b.count() == 0) {
    return a.count() == 0 ? b : a;
  }
  Part out;
  for (int64_t k = 0; k < std::ssize(a.dims); k++) {
    std::optional<IndexRuns> runs = joined(a.dims[k], b.dims[k]);
    if (!runs) {
      return std::nullopt;
    }
    out.dims.push_back(*std::move(runs));
  }
  return out;
}

ShardState heldOf(const TensorView* from, const DeviceMesh& to) {
  return from->hasDeviceMesh() ? shardState(from) : ShardState::replicated(to, from->shape());
}

}  // namespace

bool isWindowOp(const Expr* expr) {
  return isWindow(*expr) || expr->kind() == ExprKind::Cat || rowNumber(expr).has_value();
}

bool exchangesHalo(const Expr* expr) { return isWindowOp(expr) && expr->attributes().haloSteps.has_value(); }

Part windowNeeds(const Expr* expr, int64_t operand, const ShardState& result, int64_t device) {
  return windowReads(operandDimsOfState(expr, operand), expr->input(operand)->asTensor()->constantShape(),
                     heldPart(result, device));
}

std::optional<HaloExchange> haloExchange(const Expr* expr, int64_t operand) {
  if (expr->kind() == ExprKind::IndexSelect) {
    std::optional<HaloExchange> row = rowBroadcast(expr);
    if (row && operand != 0) {
      return HaloExchange{.to = row->to};  // every rank has the number of the row
    }
    return row;
  }
  const TensorView* from = expr->input(operand)->asTensor();
  const TensorView* result = expr->tensorOutput();
  const ExprAttributes& a = expr->attributes();
  const ShardState made = shardState(result);
  const ShardState held = heldOf(from, made.mesh);
  if (!areConstant(a.starts) || !areConstant(a.stops) || !areConstant(a.steps) || !held.isConstant() ||
      !made.isConstant() || from->isPartial() || !held.partial.empty() || !made.partial.empty()) {
    return std::nullopt;
  }
  std::vector<Part> needs =
      mapped(made.mesh.devices(), [&](int64_t device) { return windowNeeds(expr, operand, made, device); });
  const bool alike = !isRagged(held) && !isRagged(made);
  return exchangeOf(held, made.mesh, std::move(needs), alike, expr->fusion().planner());
}

std::optional<HaloExchange> together(const TensorView* operand, const HaloExchange& a, const HaloExchange& b) {
  if (!(a.to == b.to)) {
    return std::nullopt;
  }
  std::vector<Part> needs;
  for (const int64_t r : indices(a.needs)) {
    std::optional<Part> both = joined(a.needs[r], b.needs[r]);
    if (!both) {
      return std::nullopt;
    }
    needs.push_back(*std::move(both));
  }
  return exchangeOf(heldOf(operand, a.to), a.to, std::move(needs), false, operand->fusion().planner());
}

HaloExchanges::HaloExchanges(const Fusion& fusion) {
  for (const Expr* e : fusion.exprs()) {
    if (!exchangesHalo(e)) {
      continue;
    }
    const std::vector<HaloStep>& steps = *e->attributes().haloSteps;
    const int64_t expected = std::ssize(e->tensorPositions());
    check(
        std::ssize(steps) == expected,
        "[plan] the plan of {} has {} steps in the text{}; expected {}; leave out plan=", e->tensorOutput()->toString(),
        steps.size(), steps.empty() ? "" : fmt::format(", the last one {}", toString(steps.back())), expected);
    for (const int64_t k : indices(steps)) {
      add(e, k);
    }
  }
}

void HaloExchanges::add(const Expr* expr, int64_t k) {
  const HaloStep& step = expr->attributes().haloSteps->at(k);
  const int64_t operand = expr->tensorPositions()[k];
  const TensorView* input = expr->input(operand)->asTensor();
  const auto refuse = [&](std::string_view mistake) {
    throwUserError(fmt::format("[plan] step {} of the plan of {}, {} of {}, {}; leave out plan=", k,
                               expr->tensorOutput()->toString(), toString(step), input->toString(), mistake));
  };
  std::optional<HaloExchange> exchange = haloExchange(expr, operand);
  if (!exchange) {
    refuse("needs constant sizes and offsets, and an operand that is no partial sum");
  }
  HaloStep alone = step;
  alone.shared.reset();
  if (!(alone == exchange->step)) {
    refuse(fmt::format("does not fit the shardings: expected {}", toString(exchange->step)));
  }
  Place place{std::ssize(exchanges_), step, true};
  if (step.shared) {
    const auto [at, isFirst] = shared_.try_emplace(*step.shared, place.number, input);
    place.isFirst = isFirst;
    place.number = at->second.first;
    if (at->second.second != input) {
      refuse(fmt::format("has the number of an exchange of {}: give it a number of its own",
                         at->second.second->toString()));
    }
  }
  if (!place.isFirst) {
    exchange = together(input, exchanges_[place.number], *exchange);
    if (!exchange) {
      refuse("cannot share the exchange of the steps before it: give it a number of its own");
    }
    exchanges_[place.number] = *std::move(exchange);
  } else {
    exchanges_.push_back(*std::move(exchange));
  }
  places_[{expr->id(), operand}] = std::move(place);
}

const HaloExchanges::Place* HaloExchanges::find(const Expr* expr, int64_t operand) const {
  const auto at = places_.find({expr->id(), operand});
  return at == places_.end() ? nullptr : &at->second;
}

}  // namespace meshfuse
