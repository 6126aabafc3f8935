#include "preseg_passes/rank_simulator.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "interpret/interpret.h"
#include "ir/fusion_cloner.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

namespace {

using Values = std::map<int, Tensor>;  // by id of the local tensor

// All positions of an array of the given sizes.
std::vector<std::vector<int64_t>> positions(std::span<const int64_t> sizes) {
  std::vector<std::vector<int64_t>> all{{}};
  for (int64_t n : sizes) {
    std::vector<std::vector<int64_t>> next;
    for (const auto& prefix : all) {
      for (int64_t i = 0; i < n; i++) {
        next.push_back(prefix);
        next.back().push_back(i);
      }
    }
    all = std::move(next);
  }
  return all;
}

Tensor runOp(const Fusion& fusion, const Expr* e, const Values& values, const DeviceMesh& mesh,
             const std::vector<int64_t>& at) {
  Fusion one;
  FusionCloner cloner(fusion, one, [&](const IntExpr& expr) {
    return expr.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
      for (int axis = 0; axis < mesh.numAxes(); axis++) {
        if (symbol == "coord." + mesh.axisName(axis)) {
          return IntExpr(at[axis]);
        }
      }
      return std::nullopt;
    });
  });
  std::vector<Argument> arguments;
  std::vector<Val*> seen;
  for (Val* in : e->inputs()) {
    if (in->isTensor() && std::find(seen.begin(), seen.end(), in) == seen.end()) {
      seen.push_back(in);
      one.addInput(cloner.clone(in));
      arguments.emplace_back(values.at(in->id()));
    }
  }
  one.addOutput(cloner.clone(e)->output());
  return interpret(one, arguments)[0];
}

Tensor combine(const std::vector<Tensor>& parts, ReduceOp op) {
  Tensor out = parts[0].contiguous().clone();
  for (const auto& position : positions(out.sizes())) {
    double value = parts[0].at(position);
    for (size_t k = 1; k < parts.size(); k++) {
      const double other = parts[k].at(position);
      switch (op) {
        case ReduceOp::Sum:
          value += other;
          break;
        case ReduceOp::Prod:
          value *= other;
          break;
        case ReduceOp::Max:
          value = std::max(value, other);
          break;
        case ReduceOp::Min:
          value = std::min(value, other);
          break;
        case ReduceOp::And:
          value = static_cast<double>(static_cast<int64_t>(value) & static_cast<int64_t>(other));
          break;
        case ReduceOp::Or:
          value = static_cast<double>(static_cast<int64_t>(value) | static_cast<int64_t>(other));
          break;
        case ReduceOp::Xor:
          value = static_cast<double>(static_cast<int64_t>(value) ^ static_cast<int64_t>(other));
          break;
      }
    }
    out.set(position, value);
  }
  return out;
}

// [n, s..]: piece k of the outermost dim, as [s..].
Tensor piece(const Tensor& t, int64_t k) {
  std::vector<int64_t> sizes(t.sizes().begin() + 1, t.sizes().end());
  return t.slice(0, k, k + 1).contiguous().view(sizes);
}

Tensor stack(const std::vector<Tensor>& parts) {
  std::vector<int64_t> sizes{std::ssize(parts)};
  sizes.insert(sizes.end(), parts[0].sizes().begin(), parts[0].sizes().end());
  Tensor out = Tensor::empty(sizes, parts[0].dtype());
  for (size_t k = 0; k < parts.size(); k++) {
    std::vector<int64_t> one = sizes;
    one[0] = 1;
    const auto at = static_cast<int64_t>(k);
    out.slice(0, at, at + 1).copyFrom(parts[k].contiguous().view(one));
  }
  return out;
}

// Positions of the elements of a block, in row-major order.
std::vector<std::vector<int64_t>> positionsOf(const Part& part) {
  std::vector<std::vector<int64_t>> all{{}};
  for (const IndexRuns& dim : part.dims) {
    std::vector<std::vector<int64_t>> next;
    for (const auto& prefix : all) {
      for (const IndexRun& r : dim) {
        for (int64_t i = 0; i < r.count; i++) {
          next.push_back(prefix);
          next.back().push_back(r.start + i * r.step);
        }
      }
    }
    all = std::move(next);
  }
  return all;
}

std::vector<double> elementsAt(const Tensor& t, const Part& part) {
  std::vector<double> values;
  for (const auto& position : positionsOf(part)) {
    values.push_back(t.at(position));
  }
  return values;
}

struct Rank {
  const Fusion* program = nullptr;
  Values values;
  std::vector<const Expr*> collectives;  // by id: the order that ranks agree on
  const Expr* at = nullptr;              // the next

  const Tensor& operand() const { return values.at(at->input(0)->id()); }
};

// What member `own` of the team gets.
Tensor unevenResult(const std::vector<const Rank*>& team, size_t own, const std::vector<int64_t>& sizes) {
  const CommAttributes& mine = team[own]->at->attributes().comm;
  Tensor out = Tensor::empty(sizes, team[own]->operand().dtype());
  if (mine.kind == Collective::ReduceScatter) {
    std::vector<Tensor> parts;
    for (const Rank* member : team) {
      const std::vector<double> sent = elementsAt(member->operand(), member->at->attributes().comm.sends[own]);
      parts.push_back(Tensor::of(sent, sizes, out.dtype()));
    }
    return combine(parts, mine.reduce);
  }
  for (size_t k = 0; k < team.size(); k++) {
    const CommAttributes& theirs = team[k]->at->attributes().comm;
    const std::vector<double> sent = mine.kind == Collective::AllGather
                                         ? team[k]->operand().toVector()
                                         : elementsAt(team[k]->operand(), theirs.sends[own]);
    const auto places = positionsOf(mine.receives[k]);
    invariant(places.size() == sent.size(), "[test] {} expects {} elements of member {}, which sends {}",
              team[own]->at->tensorOutput()->toString(), places.size(), k, sent.size());
    for (size_t i = 0; i < sent.size(); i++) {
      out.set(places[i], sent[i]);
    }
  }
  return out;
}

// What `own` receives: the blocks that others send it, and what it keeps.
Tensor transferred(const std::vector<Rank>& ranks, const DeviceMesh& mesh, int64_t own,
                   const std::vector<int64_t>& sizes) {
  const Rank& receiver = ranks[mesh.indexOf(own)];
  const CommAttributes& mine = receiver.at->attributes().comm;
  Tensor out = Tensor::empty(sizes, receiver.operand().dtype());
  for (size_t k = 0; k < mine.from.size(); k++) {
    const Rank& sender = ranks[mesh.indexOf(mine.from[k])];
    const CommAttributes& theirs = sender.at->attributes().comm;
    const size_t message = std::find(theirs.to.begin(), theirs.to.end(), own) - theirs.to.begin();
    const std::vector<double> sent = elementsAt(sender.operand(), theirs.sends.at(message));
    const auto places = positionsOf(mine.receives[k]);
    invariant(places.size() == sent.size(), "[test] rank {} expects {} elements of rank {}, which sends {}", own,
              places.size(), mine.from[k], sent.size());
    for (size_t i = 0; i < sent.size(); i++) {
      out.set(places[i], sent[i]);
    }
  }
  return out;
}

Tensor resultOn(const std::vector<Rank>& ranks, size_t device, const DeviceMesh& mesh) {
  const Expr* e = ranks[device].at;
  const CommAttributes& a = e->attributes().comm;
  const DeviceMesh& axes = e->fusion().meshes().at(a.mesh);
  const int64_t rank = mesh.devices()[device];
  std::vector<int64_t> sizes;
  for (const IntExpr& extent : e->tensorOutput()->shape()) {
    sizes.push_back(extent.constValue());
  }
  if (a.kind == Collective::Transfer && a.sources.empty()) {
    return transferred(ranks, mesh, rank, sizes);
  }
  std::vector<const Rank*> team;
  std::vector<Tensor> members;
  size_t own = 0;
  for (int64_t member : axes.team(rank, a.axes)) {
    own = member == rank ? team.size() : own;
    team.push_back(&ranks[mesh.indexOf(member)]);
    members.push_back(team.back()->operand());
  }
  Tensor result;
  std::vector<Tensor> mine;
  if (a.isUneven()) {
    return unevenResult(team, own, sizes);
  }
  switch (a.kind) {
    case Collective::AllGather:
      result = stack(members);
      break;
    case Collective::AllReduce:
      result = combine(members, a.reduce);
      break;
    case Collective::ReduceScatter:
    case Collective::AllToAll:
      for (const Tensor& m : members) {
        mine.push_back(piece(m, static_cast<int64_t>(own)));
      }
      result = a.kind == Collective::AllToAll ? stack(mine) : combine(mine, a.reduce);
      break;
    case Collective::Transfer:
      result = ranks[mesh.indexOf(axes.devices()[a.sources.at(axes.indexOf(rank))])].operand();
      break;
    case Collective::Broadcast:
      result = members[a.root.constValue()];
      break;
    default:
      break;
  }
  invariant(std::equal(sizes.begin(), sizes.end(), result.sizes().begin(), result.sizes().end()),
            "[test] {} gives another shape than declared", e->tensorOutput()->toString());
  return result;
}

// All ops of a rank whose operands are there.
void runUpToCollectives(Rank& rank, const DeviceMesh& mesh, const std::vector<int64_t>& at) {
  for (const Expr* e : rank.program->exprs()) {
    const bool ready = std::all_of(e->inputs().begin(), e->inputs().end(),
                                   [&](const Val* in) { return !in->isTensor() || rank.values.count(in->id()) > 0; });
    if (e->kind() != ExprKind::Communicate && ready && rank.values.count(e->output()->id()) == 0) {
      rank.values[e->output()->id()] = runOp(*rank.program, e, rank.values, mesh, at);
    }
  }
}

}  // namespace

Tensor localPart(const Tensor& global, const TensorView* tv, int64_t device) {
  const ShardState state = shardState(tv);
  if (state.mesh.empty()) {
    return global;
  }
  const std::vector<int64_t> at = state.mesh.coordinates(state.mesh.devices()[device]);
  // Element by element: which global position is local position `p`.
  std::vector<int64_t> sizes;
  std::vector<std::vector<int64_t>> globals;
  for (size_t k = 0; k < state.dims.size(); k++) {
    std::vector<int64_t> mine;
    for (int64_t i = 0; i < global.size(static_cast<int>(k)); i++) {
      const auto digits = state.dims[k].digits();
      if (std::all_of(digits.begin(), digits.end(), [&](const Digit& d) {
            return !d.owner.isDevice() || i / d.stride.constValue() % d.size.constValue() ==
                                              at[d.owner.axis] / d.owner.below.constValue() % d.size.constValue();
          })) {
        mine.push_back(i);
      }
    }
    sizes.push_back(std::ssize(mine));
    globals.push_back(std::move(mine));
  }
  Tensor out = Tensor::empty(sizes, global.dtype());
  for (const auto& p : positions(sizes)) {
    std::vector<int64_t> from;
    for (size_t k = 0; k < p.size(); k++) {
      from.push_back(globals[k][p[k]]);
    }
    out.set(p, global.at(from));
  }
  return out;
}

std::vector<std::vector<Tensor>> simulateRanks(const std::vector<const Fusion*>& programs, const DeviceMesh& mesh,
                                               const std::vector<std::vector<Tensor>>& inputs) {
  std::vector<Rank> ranks(inputs.size());
  int64_t last = -1;  // number of a communication
  for (size_t device = 0; device < inputs.size(); device++) {
    Rank& rank = ranks[device];
    rank.program = programs[device];
    for (size_t k = 0; k < inputs[device].size(); k++) {
      rank.values[rank.program->inputs()[k]->id()] = inputs[device][k];
    }
    for (const Expr* e : rank.program->exprs()) {
      if (e->kind() == ExprKind::Communicate) {
        rank.collectives.push_back(e);
      }
    }
    std::sort(rank.collectives.begin(), rank.collectives.end(),
              [](const Expr* a, const Expr* b) { return a->id() < b->id(); });
    last = std::max(last, rank.collectives.empty() ? -1 : rank.collectives.back()->attributes().comm.number);
  }
  for (int64_t step = 0; step <= last + 1; step++) {
    for (size_t device = 0; device < ranks.size(); device++) {
      runUpToCollectives(ranks[device], mesh, mesh.coordinates(mesh.devices()[device]));
    }
    if (step > last) {
      break;
    }
    for (Rank& rank : ranks) {
      const auto own = std::find_if(rank.collectives.begin(), rank.collectives.end(),
                                    [&](const Expr* e) { return e->attributes().comm.number == step; });
      rank.at = own == rank.collectives.end() ? nullptr : *own;
    }
    std::vector<Tensor> results(ranks.size());
    for (size_t device = 0; device < ranks.size(); device++) {
      if (ranks[device].at != nullptr) {
        results[device] = resultOn(ranks, device, mesh);
      }
    }
    for (size_t device = 0; device < ranks.size(); device++) {
      if (ranks[device].at != nullptr) {
        ranks[device].values[ranks[device].at->output()->id()] = results[device];
      }
    }
  }
  std::vector<std::vector<Tensor>> outputs(ranks.size());
  for (size_t device = 0; device < ranks.size(); device++) {
    for (const Val* out : programs[device]->outputs()) {
      outputs[device].push_back(ranks[device].values.at(out->id()));
    }
  }
  return outputs;
}

std::vector<std::string> communications(const Fusion& local) {
  std::vector<std::string> steps;
  for (const Expr* e : local.exprs()) {
    if (e->kind() != ExprKind::Communicate) {
      continue;
    }
    const CommAttributes& a = e->attributes().comm;
    std::string axes;
    for (int axis : a.axes) {
      axes += (axes.empty() ? "" : ", ") + local.meshes().at(a.mesh).axisName(axis);
    }
    steps.push_back(fmt::format("{}({})", a.sources.empty() ? identifier(a.kind) : "permute", axes));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace meshfuse
