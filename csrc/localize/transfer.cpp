// The program of one rank for direct transfers: those of a step of a plan, and the exchange that halos use too.
#include "base/error.h"
#include "base/ranges.h"
#include "localize/layout.h"
#include "multidevice/sharding/tile_transfer.h"

namespace meshfuse {

TensorView* emitExchange(Fusion& local, TensorView* in, const PartExchange& exchange, int64_t rank) {
  ExprAttributes attributes;
  CommAttributes& comm = attributes.comm;
  bool communicates = false;
  for (const PartMessage& m : exchange.messages) {
    communicates = communicates || ((m.from == rank) != (m.to == rank));
    if (m.from == rank) {
      comm.to.push_back(m.to);
      comm.sends.push_back(exchange.held->positionsOf(m.part));
    }
    if (m.to == rank) {
      comm.from.push_back(m.from);
      comm.receives.push_back(exchange.wanted->positionsOf(m.part));
    }
  }
  const bool wants = exchange.wanted.has_value();
  if (!communicates && !wants) {
    return nullptr;
  }
  const std::vector<int64_t> none = shapeOfNothing(exchange.dims);
  const std::vector<int64_t> sizes = wants ? exchange.wanted->sizes() : none;
  if (!communicates) {
    return exchange.wanted->count() == 0 ? nothing(local, exchange.dtype, sizes)
                                         : takePart(in, exchange.held->positionsOf(*exchange.wanted));
  }
  comm.kind = Collective::Transfer;
  comm.mesh = local.meshNumber(exchange.mesh);
  comm.number = exchange.number;
  TensorView* out = local.tensor(exchange.dtype, localDims(sizes));
  local.addExpr(ExprKind::Communicate, {in == nullptr ? nothing(local, exchange.dtype, none) : in}, {out}, attributes);
  return wants ? out : nullptr;
}

TensorView* emitTransfer(Fusion& local, TensorView* in, const CommStep& step, const MovedTensor& moved, int64_t rank) {
  const auto extents = mapped(moved.extents, &IntExpr::constValue);
  const TileTransfer t = tileTransfer(step, extents);
  invariant(step.kind == Collective::Transfer && step.before.partial.empty(),
            "[localize] {} cannot be localized: no collective or local op implements this step", step.toString());
  const auto heldBy = [&](int64_t device) { return heldPart(t.before, extents, t.fromMesh.coordinates(device)); };
  const auto wantedBy = [&](int64_t device) { return heldPart(t.after, extents, t.toMesh.coordinates(device)); };
  PartExchange exchange{moved.dtype, extents.size(), t.fromMesh, moved.number};
  if (t.fromMesh.contains(rank)) {
    exchange.held = heldBy(rank);
  }
  if (t.toMesh.contains(rank)) {
    exchange.wanted = wantedBy(rank);
  }
  for (const std::vector<TileMessage>* list : {&t.messages, &t.kept}) {
    for (const TileMessage& m : *list) {
      if (m.from == rank || m.to == rank) {
        exchange.messages.push_back({m.from, m.to, intersection(heldBy(m.from), wantedBy(m.to))});
      }
    }
  }
  return emitExchange(local, in, exchange, rank);
}

}  // namespace meshfuse
