// A direct transfer as one rank takes it.
#include "base/error.h"
#include "localize/layout.h"
#include "multidevice/sharding/tile_transfer.h"

namespace meshfuse {

namespace {

IndexBlock indicesOf(const DeviceMesh& atoms, const PlanState& state, const std::vector<int64_t>& extents,
                     int64_t device) {
  const std::vector<int64_t> at = atoms.coordinates(device);
  IndexBlock block;
  for (size_t k = 0; k < extents.size(); k++) {
    block.push_back(localIndices(state, k, extents[k], at));
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

IndexBlock shared(const IndexBlock& a, const IndexBlock& b) {
  IndexBlock block;
  for (size_t k = 0; k < a.size(); k++) {
    block.push_back(intersection(a[k], b[k]));
  }
  return block;
}

IndexBlock positions(const IndexBlock& all, const IndexBlock& some) {
  IndexBlock block;
  for (size_t k = 0; k < all.size(); k++) {
    block.push_back(positionsIn(all[k], some[k]));
  }
  return block;
}

}  // namespace

TensorView* emitTransfer(Fusion& local, TensorView* in, const CommStep& step, const MovedTensor& moved, int64_t rank) {
  const TileTransfer t = tileTransfer(step, moved.extents);
  invariant(step.kind == Collective::Transfer && step.before.partial.empty(),
            "[localize] no program for {}: the plan took a step that is not executed", step.toString());
  const bool has = t.fromMesh.contains(rank);
  const bool wants = t.toMesh.contains(rank);
  if (!has && !wants) {
    return nullptr;
  }
  const auto heldBy = [&](int64_t device) { return indicesOf(t.fromMesh, t.before, moved.extents, device); };
  const auto wantedBy = [&](int64_t device) { return indicesOf(t.toMesh, t.after, moved.extents, device); };
  const IndexBlock held = has ? heldBy(rank) : IndexBlock{};
  const IndexBlock wanted = wants ? wantedBy(rank) : IndexBlock{};
  ExprAttributes attributes;
  CommAttributes& comm = attributes.comm;
  bool communicates = false;
  for (const std::vector<TileMessage>* list : {&t.messages, &t.kept}) {
    for (const TileMessage& m : *list) {
      communicates = communicates || ((m.from == rank) != (m.to == rank));
      if (m.from == rank) {
        comm.to.push_back(m.to);
        comm.sends.push_back(positions(held, shared(held, wantedBy(m.to))));
      }
      if (m.to == rank) {
        comm.from.push_back(m.from);
        comm.receives.push_back(positions(wanted, shared(heldBy(m.from), wanted)));
      }
    }
  }
  if (!communicates) {
    return !wants                 ? nullptr
           : countOf(wanted) == 0 ? nothing(local, moved.dtype, countsOf(wanted))
                                  : takeBlock(in, positions(held, wanted));
  }
  const std::vector<int64_t> none = shapeOfNothing(moved.extents.size());
  std::vector<Dim> dims;
  for (int64_t n : wants ? countsOf(wanted) : none) {
    dims.push_back(localDim(n, IterType::Iteration));
  }
  comm.kind = Collective::Transfer;
  comm.mesh = local.meshNumber(t.fromMesh);
  comm.number = moved.number;
  TensorView* out = local.tensor(moved.dtype, dims);
  local.addExpr(ExprKind::Communicate, {in == nullptr ? nothing(local, moved.dtype, none) : in}, {out}, attributes);
  return wants ? out : nullptr;
}

}  // namespace meshfuse
