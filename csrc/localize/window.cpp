// The program of one rank for slices, pads and concatenations whose parts do not coincide with the parts of their operands.
#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "localize/ops.h"
#include "multidevice/sharding/halo_exchange.h"
#include "multidevice/sharding/operand_dims.h"

namespace meshfuse {

namespace {

std::optional<Part> neededBy(const HaloExchange& exchange, int64_t rank) {
  return holds(exchange.to, rank) ? std::optional(exchange.needs[exchange.to.indexOf(rank)]) : std::nullopt;
}

// Every rank of the team receives the block of the root.
TensorView* broadcast(Fusion& local, TensorView* sent, const HaloExchange& exchange, int64_t number) {
  CommAttributes comm{.kind = Collective::Broadcast,
                      .mesh = local.meshNumber(exchange.to),
                      .axes = exchange.broadcastAxes,
                      .root = exchange.root,
                      .number = number};
  return local.addOp(ExprKind::Communicate, {sent}, sent->dtype(), dimsOf(sent), {.comm = std::move(comm)});
}

// The block that this rank holds after the exchange. The op sends the blocks that other ranks need. Null if this rank receives nothing.
TensorView* received(Fusion& local, const WindowOp& op, int64_t operand, const HaloExchange& exchange, int64_t number) {
  const TensorView* from = op.expr->input(operand)->asTensor();
  ShardState held = shardState(from);
  if (held.mesh.empty()) {
    held = ShardState::replicated(exchange.to, from->shape());
  }
  const int64_t rank = op.at.rank;
  TensorView* in = op.operands[operand];
  PartExchange parts{from->dtype(),        from->shape().size(),     held.mesh,        number,
                     heldPart(held, rank), neededBy(exchange, rank), exchange.messages};
  if (exchange.broadcastAxes.empty()) {
    append(parts.messages, exchange.kept);
    return emitExchange(local, in, parts, rank);
  }
  if (!parts.wanted) {
    return nullptr;
  }
  const int64_t root = exchange.to.team(rank, exchange.broadcastAxes)[exchange.root.constValue()];
  TensorView* sent = takePart(in, heldPart(held, root).positionsOf(*parts.wanted));  // the same positions for all ranks
  return broadcast(local, sent, exchange, number);
}

// The parts of the operands, concatenated in order; parts without elements are left out.
TensorView* concatenated(Fusion& local, const WindowOp& op, const std::vector<TensorView*>& parts) {
  const TensorView* result = op.expr->tensorOutput();
  const std::vector<int64_t> sizes = heldPart(shardState(result), op.at.rank).sizes();
  const int64_t axis = op.expr->attributes().dim;
  std::vector<Val*> some;
  std::ranges::copy_if(parts, std::back_inserter(some), [&](auto* part) { return !part->shape()[axis].isConst(0); });
  if (some.empty()) {
    return nothing(local, result->dtype(), sizes);
  }
  return some.size() == 1 ? some[0]->asTensor()
                          : local.addOp(ExprKind::Cat, some, result->dtype(), localDims(sizes), {.dim = axis});
}

}  // namespace

TensorView* WindowEmitter::emit(const WindowOp& op, int64_t& communications) {
  const DeviceMesh& to = op.expr->tensorOutput()->getDeviceMesh();
  const bool isHere = holds(to, op.at.rank);
  std::vector<TensorView*> parts;
  for (int64_t operand = 0; operand < std::ssize(op.operands); operand++) {
    const HaloExchanges::Place* place = halos_.find(op.expr, operand);
    invariant(place != nullptr, "[localize] {} has a halo exchange, but not for its operand {}",
              op.expr->output()->toString(), operand);
    const HaloExchange& exchange = halos_.exchange(*place);
    if (op.expr->kind() == ExprKind::IndexSelect) {
      TensorView* own =
          operand == 0 && isHere ? ownRow(local_, op.expr, op.operands[0], op.operands[1], op.at) : nullptr;
      parts.push_back(own == nullptr ? nullptr : broadcast(local_, own, exchange, communications));
      communications += exchange.total > 0 ? 1 : 0;
      continue;
    }
    const auto [arrived, isFirst] = arrived_.try_emplace(place->number);
    if (isFirst) {  // windows that share an exchange may come in any order
      arrived->second = received(local_, op, operand, exchange, communications);
      communications += exchange.total > 0 ? 1 : 0;
    }
    TensorView* all = arrived->second;
    if (isHere && all != nullptr) {
      const Part here = *neededBy(exchange, op.at.rank);
      const Part needs = windowNeeds(op.expr, operand, shardState(op.expr->tensorOutput()), op.at.rank);
      all = here == needs        ? all
            : needs.count() == 0 ? nothing(local_, all->dtype(), needs.sizes())
                                 : takePart(all, here.positionsOf(needs));
    }
    parts.push_back(all);
  }
  if (!isHere) {
    return nullptr;
  }
  const ShardState result = shardState(op.expr->tensorOutput());
  switch (op.expr->kind()) {
    case ExprKind::Pad:
      return padPart(parts[0], op.fill, operandDimsOfState(op.expr, 0), heldPart(result, op.at.rank),
                     windowNeeds(op.expr, 0, result, op.at.rank));
    case ExprKind::Cat:
      return concatenated(local_, op, parts);
    default:
      return parts[0];
  }
}

}  // namespace meshfuse
