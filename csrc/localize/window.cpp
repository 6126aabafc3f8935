// Slices, pads and concatenations whose parts do not fall on those of their operands, as one rank takes them.
#include <algorithm>

#include "base/error.h"
#include "localize/ops.h"
#include "multidevice/sharding/halo_exchange.h"

namespace meshfuse {

namespace {

IndexBlock positions(const IndexBlock& all, const IndexBlock& some) {
  IndexBlock block;
  for (size_t k = 0; k < all.size(); k++) {
    block.push_back(positionsIn(all[k], some[k]));
  }
  return block;
}

std::vector<int64_t> countsOf(const IndexBlock& block) {
  std::vector<int64_t> counts;
  for (const IndexRuns& runs : block) {
    counts.push_back(countOf(runs));
  }
  return counts;
}

TensorView* tensorOf(Fusion& local, DataType dtype, const std::vector<int64_t>& sizes) {
  std::vector<Dim> dims;
  for (int64_t n : sizes) {
    dims.push_back(localDim(n, IterType::Iteration));
  }
  return local.tensor(dtype, dims);
}

IndexBlock neededBy(const HaloExchange& exchange, int64_t rank) {
  return holds(exchange.to, rank) ? exchange.needs[static_cast<size_t>(exchange.to.indexOf(rank))] : IndexBlock{};
}

// The block that this rank holds after the exchange. The op sends the blocks that other ranks need. Null if this rank receives nothing.
TensorView* received(Fusion& local, const WindowOp& op, int operand, const HaloExchange& exchange, int64_t number) {
  const TensorView* from = op.expr->input(operand)->asTensor();
  ShardState held = shardState(from);
  if (held.mesh.empty()) {
    held = ShardState::replicated(exchange.to, from->shape());
  }
  const int64_t rank = op.at.rank;
  const bool wants = holds(exchange.to, rank);
  const IndexBlock mine = localIndices(held, rank);
  const IndexBlock wanted = neededBy(exchange, rank);
  TensorView* in = op.operands[static_cast<size_t>(operand)];
  ExprAttributes attributes;
  CommAttributes& comm = attributes.comm;
  comm.number = number;
  if (!exchange.broadcastAxes.empty()) {
    if (!wants) {
      return nullptr;
    }
    const int64_t root =
        exchange.to.team(rank, exchange.broadcastAxes)[static_cast<size_t>(exchange.root.constValue())];
    TensorView* sent = takeBlock(in, positions(localIndices(held, root), wanted));  // of other ranks: the same places
    comm.kind = Collective::Broadcast;
    comm.mesh = local.meshNumber(exchange.to);
    comm.axes = exchange.broadcastAxes;
    comm.root = exchange.root;
    TensorView* out = tensorOf(local, from->dtype(), countsOf(wanted));
    local.addExpr(ExprKind::Communicate, {sent}, {out}, attributes);
    return out;
  }
  bool communicates = false;
  for (const std::vector<HaloMessage>* list : {&exchange.messages, &exchange.kept}) {
    for (const HaloMessage& m : *list) {
      communicates = communicates || ((m.from == rank) != (m.to == rank));
      if (m.from == rank) {
        comm.to.push_back(m.to);
        comm.sends.push_back(positions(mine, m.block));
      }
      if (m.to == rank) {
        comm.from.push_back(m.from);
        comm.receives.push_back(positions(wanted, m.block));
      }
    }
  }
  if (!communicates) {
    return !wants                 ? nullptr
           : countOf(wanted) == 0 ? nothing(local, from->dtype(), countsOf(wanted))
                                  : takeBlock(in, positions(mine, wanted));
  }
  const std::vector<int64_t> none = shapeOfNothing(from->shape().size());
  comm.kind = Collective::Transfer;
  comm.mesh = local.meshNumber(held.mesh);
  TensorView* out = tensorOf(local, from->dtype(), wants ? countsOf(wanted) : none);
  local.addExpr(ExprKind::Communicate, {in == nullptr ? nothing(local, from->dtype(), none) : in}, {out}, attributes);
  return wants ? out : nullptr;
}

// The row, from the rank that has it.
TensorView* row(Fusion& local, const WindowOp& op, const HaloExchange& exchange, int64_t number) {
  TensorView* own = ownRow(local, op.expr, op.operands[0], op.operands[1], op.at);
  ExprAttributes attributes;
  CommAttributes& comm = attributes.comm;
  comm.kind = Collective::Broadcast;
  comm.mesh = local.meshNumber(op.expr->tensorOutput()->getDeviceMesh());
  comm.axes = exchange.broadcastAxes;
  comm.root = exchange.root;
  comm.number = number;
  TensorView* out = local.tensor(own->dtype(), dimsOf(own));
  local.addExpr(ExprKind::Communicate, {own}, {out}, attributes);
  return out;
}

// The indices of the result that a pad's operand does not reach, before and after.
TensorView* padded(const WindowOp& op, TensorView* in, const IndexBlock& needs) {
  const Expr* e = op.expr;
  const ExprAttributes& a = e->attributes();
  const IndexBlock made = localIndices(shardState(e->tensorOutput()), op.at.rank);
  std::vector<IntExpr> before;
  std::vector<IntExpr> after;
  for (size_t k = 0; k < made.size(); k++) {
    IndexRuns reached = needs[k];
    for (IndexRun& r : reached) {
      r.start += a.starts[k].constValue();
    }
    const IndexRuns at = positionsIn(made[k], reached);
    before.emplace_back(at.empty() ? 0 : at.front().start);
    after.emplace_back(countOf(made[k]) - (at.empty() ? 0 : at.back().last() + 1));
  }
  return addPad(in, op.fill, before, after);
}

// The parts of the operands, concatenated in order; parts without elements are left out.
TensorView* joined(Fusion& local, const WindowOp& op, const std::vector<TensorView*>& parts) {
  const TensorView* result = op.expr->tensorOutput();
  const std::vector<int64_t> sizes = localShape(shardState(result), op.at.rank);
  const auto axis = static_cast<size_t>(op.expr->attributes().dim);
  std::vector<Val*> some;
  for (TensorView* part : parts) {
    if (!part->shape()[axis].isConst(0)) {
      some.push_back(part);
    }
  }
  if (some.empty()) {
    return nothing(local, result->dtype(), sizes);
  }
  if (some.size() == 1) {
    return some[0]->asTensor();
  }
  TensorView* out = tensorOf(local, result->dtype(), sizes);
  ExprAttributes attributes;
  attributes.dim = op.expr->attributes().dim;
  local.addExpr(ExprKind::Cat, std::move(some), {out}, attributes);
  return out;
}

}  // namespace

TensorView* WindowEmitter::emit(const WindowOp& op, int64_t& communications) {
  const DeviceMesh& to = op.expr->tensorOutput()->getDeviceMesh();
  const bool isHere = holds(to, op.at.rank);
  std::vector<TensorView*> parts;
  for (size_t k = 0; k < op.operands.size(); k++) {
    const auto operand = static_cast<int>(k);
    const HaloExchanges::Part* part = windows_.find(op.expr, operand);
    invariant(part != nullptr, "[localize] {} has a planned halo exchange, but no exchange exists for its operand",
              op.expr->output()->toString());
    const HaloExchange& exchange = windows_.exchange(*part);
    if (op.expr->kind() == ExprKind::IndexSelect) {
      parts.push_back(k == 0 && isHere ? row(local_, op, exchange, communications) : nullptr);
      communications += exchange.total > 0 ? 1 : 0;
    } else if (!arrived_.contains(part->number)) {  // windows that share an exchange may stand in any order
      arrived_[part->number] = received(local_, op, operand, exchange, communications);
      communications += exchange.total > 0 ? 1 : 0;
    }
    if (op.expr->kind() != ExprKind::IndexSelect) {
      TensorView* all = arrived_.at(part->number);
      const IndexBlock here = neededBy(exchange, op.at.rank);
      const IndexBlock needs =
          isHere ? windowNeeds(op.expr, operand, shardState(op.expr->tensorOutput()), op.at.rank) : here;
      parts.push_back(all == nullptr || here == needs ? all
                      : countOf(needs) == 0           ? nothing(local_, all->dtype(), countsOf(needs))
                                                      : takeBlock(all, positions(here, needs)));
    }
  }
  invariant(windows_.steps(op.expr) == op.expr->attributes().haloSteps,
            "[localize] the halo exchange of {} differs from its plan", op.expr->output()->toString());
  if (!isHere) {
    return nullptr;
  }
  switch (op.expr->kind()) {
    case ExprKind::Pad:
      return padded(op, parts[0], windowNeeds(op.expr, 0, shardState(op.expr->tensorOutput()), op.at.rank));
    case ExprKind::Cat:
      return joined(local_, op, parts);
    default:
      return parts[0];
  }
}

}  // namespace meshfuse
