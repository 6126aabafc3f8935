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
  std::vector<int64_t> sizes{static_cast<int64_t>(parts.size())};
  sizes.insert(sizes.end(), parts[0].sizes().begin(), parts[0].sizes().end());
  Tensor out = Tensor::empty(sizes, parts[0].dtype());
  for (size_t k = 0; k < parts.size(); k++) {
    const Tensor part = parts[k].contiguous();
    std::memcpy(static_cast<char*>(out.data()) + k * static_cast<size_t>(part.nbytes()), part.data(),
                static_cast<size_t>(part.nbytes()));
  }
  return out;
}

void runCollective(const Expr* e, const DeviceMesh& mesh, std::vector<Values>& ranks) {
  const CommAttributes& a = e->attributes().comm;
  const DeviceMesh& team = e->fusion().meshes().at(a.mesh);
  std::vector<Tensor> results(ranks.size());
  const int in = e->input(0)->id();
  for (size_t device = 0; device < ranks.size(); device++) {
    const int64_t rank = mesh.devices()[device];
    std::vector<Tensor> members;
    int64_t own = -1;
    for (int64_t member : team.team(rank, a.axes)) {
      own = member == rank ? static_cast<int64_t>(members.size()) : own;
      members.push_back(ranks[mesh.indexOf(member)].at(in));
    }
    std::vector<Tensor> mine;
    switch (a.kind) {
      case CommKind::AllGather:
        results[device] = stack(members);
        break;
      case CommKind::AllReduce:
        results[device] = combine(members, a.reduce);
        break;
      case CommKind::ReduceScatter:
      case CommKind::AllToAll:
        for (const Tensor& m : members) {
          mine.push_back(piece(m, own));
        }
        results[device] = a.kind == CommKind::AllToAll ? stack(mine) : combine(mine, a.reduce);
        break;
      case CommKind::Permute: {
        const int64_t source = team.devices()[a.sources.at(team.indexOf(rank))];
        results[device] = ranks[mesh.indexOf(source)].at(in);
        break;
      }
      case CommKind::Broadcast:
        results[device] = members[a.root];
        break;
    }
    const std::vector<IntExpr> shape = e->tensorOutput()->shape();
    std::vector<int64_t> sizes;
    for (const IntExpr& extent : shape) {
      sizes.push_back(extent.constValue());
    }
    invariant(std::equal(sizes.begin(), sizes.end(), results[device].sizes().begin(), results[device].sizes().end()),
              "[test] {} gives another shape than declared", e->tensorOutput()->toString());
  }
  for (size_t device = 0; device < ranks.size(); device++) {
    ranks[device][e->output()->id()] = results[device];
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
    sizes.push_back(static_cast<int64_t>(mine.size()));
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

std::vector<std::vector<Tensor>> simulateRanks(const Fusion& local, const DeviceMesh& mesh,
                                               const std::vector<std::vector<Tensor>>& inputs) {
  std::vector<Values> ranks(inputs.size());
  for (size_t device = 0; device < inputs.size(); device++) {
    for (size_t k = 0; k < inputs[device].size(); k++) {
      ranks[device][local.inputs()[k]->id()] = inputs[device][k];
    }
  }
  for (const Expr* e : local.exprs()) {
    if (e->kind() == ExprKind::Communicate) {
      runCollective(e, mesh, ranks);
      continue;
    }
    for (size_t device = 0; device < ranks.size(); device++) {
      ranks[device][e->output()->id()] = runOp(local, e, ranks[device], mesh, mesh.coordinates(mesh.devices()[device]));
    }
  }
  std::vector<std::vector<Tensor>> outputs(ranks.size());
  for (size_t device = 0; device < ranks.size(); device++) {
    for (const Val* out : local.outputs()) {
      outputs[device].push_back(ranks[device].at(out->id()));
    }
  }
  return outputs;
}

std::vector<std::string> communications(const Fusion& local) {
  constexpr std::string_view kNames[] = {"all_gather", "all_reduce", "reduce_scatter",
                                         "all_to_all", "permute",    "broadcast"};
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
    steps.push_back(fmt::format("{}({})", kNames[static_cast<int>(a.kind)], axes));
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

}  // namespace meshfuse
