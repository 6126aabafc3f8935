#include "multidevice/sharding/halo_exchange.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/operand_dims.h"
#include "multidevice/sharding/plan_options.h"
#include "multidevice/sharding/row_broadcast.h"

namespace meshfuse {

namespace {

bool areConstant(const std::vector<IntExpr>& values) {
  return std::all_of(values.begin(), values.end(), [](const IntExpr& e) { return e.isConst(); });
}

// Indices shifted by `offset`, without those outside of 0 .. extent - 1.
IndexRuns movedInto(const IndexRuns& runs, int64_t offset, int64_t extent) {
  IndexRuns out;
  for (const IndexRun& r : runs) {
    IndexRun moved = r;
    moved.start += offset;
    const int64_t skipped = moved.start < 0 ? (-moved.start + r.step - 1) / r.step : 0;
    moved.start += skipped * r.step;
    moved.count = std::min(r.count - skipped, (extent - moved.start + r.step - 1) / r.step);
    if (moved.count > 0 && moved.start < extent) {
      out.push_back(moved);
    }
  }
  return out;
}

// Devices that hold the same part.
struct SharedPart {
  Part part;
  std::vector<size_t> holders;  // positions in the mesh
};

class ExchangePlanner {
 public:
  // `alike`: the parts of the result have the same positions in all teams.
  ExchangePlanner(const ShardState& held, const DeviceMesh& to, std::vector<Part> needs, bool alike)
      : held_(held), to_(to), needs_(std::move(needs)), alike_(alike), sent_(held.mesh.devices().size()) {
    const std::vector<int64_t>& holders = held.mesh.devices();
    for (size_t q = 0; q < holders.size(); q++) {
      Part mine = heldPart(held, holders[q]);
      auto shared = std::ranges::find(parts_, mine, &SharedPart::part);
      if (shared == parts_.end()) {
        shared = parts_.insert(shared, {std::move(mine), {}});
      }
      shared->holders.push_back(q);
    }
  }

  HaloExchange run(const PlanOptions& options) {
    const std::vector<int64_t>& readers = to_.devices();
    std::vector<std::pair<size_t, const SharedPart*>> wanted;  // (reader, part) pairs that need a message
    for (size_t r = 0; r < readers.size(); r++) {
      const int64_t here = held_.mesh.indexOf(readers[r]);
      for (const SharedPart& shared : parts_) {
        Part part = intersection(shared.part, needs_[r]);
        if (part.count() == 0) {
          continue;
        }
        if (here >= 0 && std::ranges::count(shared.holders, here) > 0) {
          out_.kept.push_back({readers[r], readers[r], std::move(part)});
        } else {
          wanted.emplace_back(r, &shared);
        }
      }
    }
    std::vector<int64_t> received(readers.size());
    std::vector<int64_t> in(readers.size());
    std::vector<int64_t> outgoing(sent_.size());
    int64_t peers = 0;
    for (const auto& [r, shared] : wanted) {
      Part part = intersection(shared->part, needs_[r]);
      const size_t q = sender(*shared, readers[r]);
      const int64_t n = part.count();
      sent_[q] += n;
      received[r] += n;
      peers = std::max({peers, ++outgoing[q], ++in[r]});
      out_.messages.push_back({held_.mesh.devices()[q], readers[r], std::move(part)});
    }
    out_.total = std::accumulate(received.begin(), received.end(), int64_t{0});
    out_.received = received.empty() ? 0 : *std::max_element(received.begin(), received.end());
    const int64_t most = sent_.empty() ? 0 : *std::max_element(sent_.begin(), sent_.end());
    describe(options, peers, std::max(out_.received, most));
    out_.to = to_;
    out_.needs = std::move(needs_);
    return std::move(out_);
  }

 private:
  int64_t apart(int64_t a, int64_t b) const {
    if (!(held_.mesh == to_)) {
      return 0;
    }
    const std::vector<int64_t> x = held_.mesh.coordinates(a);
    const std::vector<int64_t> y = held_.mesh.coordinates(b);
    int64_t n = 0;
    for (size_t axis = 0; axis < x.size(); axis++) {
      n += x[axis] != y[axis] ? 1 : 0;
    }
    return n;
  }

  // Chooses the holder that has sent the fewest elements, then the nearest, then the first.
  size_t sender(const SharedPart& shared, int64_t reader) const {
    const auto rank = [&](size_t q) { return std::tuple(sent_[q], apart(held_.mesh.devices()[q], reader), q); };
    return *std::min_element(shared.holders.begin(), shared.holders.end(),
                             [&](size_t a, size_t b) { return rank(a) < rank(b); });
  }

  double costliest(const std::map<std::string, double>& costs, const std::vector<int>& axes, double plain) const {
    double most = costs.empty() || axes.empty() ? plain : 0;
    for (const int axis : axes) {
      most = costs.empty() ? most : std::max(most, costAlong(held_.mesh.axisName(axis), costs));
    }
    return most;
  }

  void describe(const PlanOptions& options, int64_t peers, int64_t busiest) {
    const bool sameRanks = std::ranges::is_permutation(held_.mesh.devices(), to_.devices());
    out_.cost = options.alphaPeer * static_cast<double>(peers) +
                (sameRanks ? 1 : options.betaBetween) * static_cast<double>(busiest);
    if (out_.messages.empty()) {
      return;
    }
    out_.step.kind = Collective::Transfer;
    if (!(held_.mesh == to_)) {
      return;
    }
    std::vector<int> axes;
    for (int axis = 0; axis < held_.mesh.numAxes(); axis++) {
      const bool crossed = std::any_of(out_.messages.begin(), out_.messages.end(), [&](const PartMessage& m) {
        return held_.mesh.coordinates(m.from)[axis] != held_.mesh.coordinates(m.to)[axis];
      });
      if (crossed) {
        axes.push_back(axis);
        out_.step.axes.push_back(held_.mesh.axisName(axis));
      }
    }
    const double perElement = costliest(options.beta, axes, 1);
    out_.cost = costliest(options.alphas, axes, options.alphaPeer) * static_cast<double>(peers) +
                perElement * static_cast<double>(busiest);
    const std::optional<int64_t> root = rootAlong(axes);
    if (root) {
      out_.broadcastAxes = axes;
      out_.root = *root;
      out_.step.kind = Collective::Broadcast;
      out_.cost = costliest(options.alphas, axes, options.alpha) + perElement * static_cast<double>(out_.received);
    }
  }

  // The position, equal in every team, of the one rank that holds everything its team needs.
  std::optional<int64_t> rootAlong(const std::vector<int>& axes) const {
    if (!alike_) {
      return std::nullopt;
    }
    std::optional<int64_t> root;
    for (size_t r = 0; r < needs_.size(); r++) {
      const std::vector<int64_t> team = to_.team(to_.devices()[r], axes);
      for (size_t place = 0; place < team.size(); place++) {
        const auto position = static_cast<size_t>(to_.indexOf(team[place]));
        if (needs_[position] != needs_[r]) {
          return std::nullopt;
        }
        const bool has = heldPart(held_, team[place]).contains(needs_[r]);
        if (has && root && *root != static_cast<int64_t>(place)) {
          return std::nullopt;
        }
        root = has ? static_cast<int64_t>(place) : root;
      }
    }
    if (!root) {
      return std::nullopt;
    }
    // every rank that lacks it receives all of it from its own team
    for (const PartMessage& m : out_.messages) {
      const std::vector<int64_t> team = to_.team(m.to, axes);
      if (m.part.count() != needs_[to_.indexOf(m.to)].count() || team[*root] != m.from) {
        return std::nullopt;
      }
    }
    return root;
  }

  const ShardState& held_;
  const DeviceMesh& to_;
  std::vector<Part> needs_;  // by position in to_
  const bool alike_;
  std::vector<SharedPart> parts_;
  std::vector<int64_t> sent_;  // elements, by position in the mesh of the operand
  HaloExchange out_;
};

// The union of the indices as contiguous runs; nothing if a run has a step other than 1.
std::optional<IndexRuns> joined(const IndexRuns& a, const IndexRuns& b) {
  IndexRuns all = a;
  all.insert(all.end(), b.begin(), b.end());
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
  for (size_t k = 0; k < a.dims.size(); k++) {
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

bool exchangesHalo(const Expr* expr) { return isWindowOp(expr) && !expr->attributes().haloSteps.empty(); }

Part windowReads(ExprKind kind, const ExprAttributes& attributes, const std::vector<int64_t>& sizes, const Part& made) {
  Part read;
  for (size_t k = 0; k < sizes.size(); k++) {
    const int64_t start = attributes.starts[k].constValue();
    if (kind == ExprKind::Pad) {
      read.dims.push_back(movedInto(made.dims[k], -start, sizes[k]));
      continue;
    }
    const int64_t step = attributes.steps[k].constValue();
    read.dims.emplace_back();
    for (const IndexRun& r : made.dims[k]) {
      read.dims.back().push_back({start + r.start * step, r.count, r.count == 1 ? 1 : r.step * step});
    }
  }
  return read;
}

Part windowNeeds(const Expr* expr, int operand, const ShardState& result, int64_t device) {
  const Part made = heldPart(result, device);
  const std::vector<int64_t> sizes = expr->input(operand)->asTensor()->constantShape();
  if (expr->kind() != ExprKind::Cat) {
    return windowReads(expr->kind(), expr->attributes(), sizes, made);
  }
  const std::vector<OperandDim> dims = operandDims(expr, operand);
  Part read;
  for (size_t k = 0; k < sizes.size(); k++) {
    read.dims.push_back(movedInto(made.dims[k], dims[k].window ? dims[k].offset.constValue() : 0, sizes[k]));
  }
  return read;
}

namespace {

// A row whose number is known only at run time, or that number, which every rank has.
std::optional<HaloExchange> rowAsWindow(const Expr* expr, int operand) {
  const std::optional<RowBroadcast> row = rowBroadcast(expr);
  if (!row) {
    return std::nullopt;
  }
  HaloExchange exchange;
  exchange.to = expr->tensorOutput()->getDeviceMesh();
  if (operand == 0) {
    const DeviceMesh& mesh = expr->tensorOutput()->getDeviceMesh();
    exchange.step.kind = Collective::Broadcast;
    const int64_t team = mesh.teamSize(row->axes);
    for (int axis : row->axes) {
      exchange.step.axes.push_back(mesh.axisName(axis));
    }
    exchange.broadcastAxes = row->axes;
    exchange.root = row->root;
    exchange.received = row->elements;
    exchange.total = row->elements * (mesh.numDevices() / team) * (team - 1);
    exchange.cost = row->cost;
  }
  return exchange;
}

}  // namespace

std::optional<HaloExchange> haloExchange(const Expr* expr, int operand) {
  if (expr->kind() == ExprKind::IndexSelect) {
    return rowAsWindow(expr, operand);
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
  std::vector<Part> needs;
  for (const int64_t device : made.mesh.devices()) {
    needs.push_back(windowNeeds(expr, operand, made, device));
  }
  return ExchangePlanner(held, made.mesh, std::move(needs), !isRagged(held) && !isRagged(made))
      .run(planOptions(expr->fusion().planner(), held.mesh, made.mesh));
}

namespace {

bool isTransfer(const HaloExchange& exchange) { return !exchange.messages.empty() && exchange.broadcastAxes.empty(); }

// Replaces two exchanges by one if that costs no more.
std::optional<HaloExchange> together(const TensorView* from, const HaloExchange& a, const HaloExchange& b) {
  if (!(a.to == b.to)) {
    return std::nullopt;
  }
  std::vector<Part> needs;
  for (size_t r = 0; r < a.needs.size(); r++) {
    std::optional<Part> both = joined(a.needs[r], b.needs[r]);
    if (!both) {
      return std::nullopt;
    }
    needs.push_back(*std::move(both));
  }
  const ShardState held = heldOf(from, a.to);
  HaloExchange exchange =
      ExchangePlanner(held, a.to, std::move(needs), false).run(planOptions(from->fusion().planner(), held.mesh, a.to));
  return exchange.cost <= a.cost + b.cost ? std::optional(std::move(exchange)) : std::nullopt;
}

}  // namespace

HaloExchanges::HaloExchanges(const Fusion& fusion) {
  std::map<int, std::vector<size_t>> open;  // by operand: exchanges that later windows may join
  for (const Expr* e : fusion.exprs()) {
    for (size_t k = 0; exchangesHalo(e) && k < e->inputs().size(); k++) {
      const auto operand = static_cast<int>(k);
      if (!e->input(operand)->isTensor()) {
        continue;
      }
      std::optional<HaloExchange> exchange = haloExchange(e, operand);
      if (!exchange) {
        continue;
      }
      Place place{exchanges_.size(), exchange->step};
      if (isTransfer(*exchange)) {
        for (size_t n : open[e->input(operand)->id()]) {
          if (std::optional<HaloExchange> both = together(e->input(operand)->asTensor(), exchanges_[n], *exchange)) {
            place = {n, exchange->step};
            place.step.isShared = true;
            exchanges_[n] = *std::move(both);
            break;
          }
        }
      }
      if (!place.step.isShared) {
        if (isTransfer(*exchange)) {
          open[e->input(operand)->id()].push_back(exchanges_.size());
        }
        exchanges_.push_back(*std::move(exchange));
      }
      places_[{e->id(), operand}] = std::move(place);
    }
  }
}

const HaloExchanges::Place* HaloExchanges::find(const Expr* expr, int operand) const {
  const auto at = places_.find({expr->id(), operand});
  return at == places_.end() ? nullptr : &at->second;
}

void HaloExchanges::keepAmounts() {
  for (HaloExchange& exchange : exchanges_) {
    exchange.needs = {};
    exchange.messages = {};
    exchange.kept = {};
  }
}

std::vector<HaloStep> HaloExchanges::steps(const Expr* expr) const {
  std::vector<HaloStep> steps;
  for (size_t k = 0; k < expr->inputs().size(); k++) {
    if (const Place* place = find(expr, static_cast<int>(k))) {
      steps.push_back(place->step);
    }
  }
  return steps;
}

}  // namespace meshfuse
