// The steps of a plan as collectives on contiguous shapes, with packs and unpacks.
#include <algorithm>

#include "base/error.h"
#include "localize/layout.h"

namespace meshfuse {

namespace {

// The blocks of one rank, if ranks send or receive different counts.
struct Blocks {
  std::vector<Part> sends = {};
  std::vector<Part> receives = {};
};

TensorView* communicate(TensorView* in, const CommStep& step, Collective kind, const std::vector<int64_t>& shape,
                        const MovedTensor& moved, Blocks blocks = {}) {
  Fusion& fusion = in->fusion();
  TensorView* out = localTensor(fusion, in->dtype(), shape);
  ExprAttributes attributes;
  attributes.comm.kind = kind;
  attributes.comm.mesh = fusion.meshNumber(step.on.atoms);
  attributes.comm.axes = step.axes;
  attributes.comm.reduce = moved.reduce;
  attributes.comm.number = moved.number;
  if (kind == Collective::Transfer) {
    attributes.comm.sources = step.sources;
  }
  attributes.comm.sends = std::move(blocks.sends);
  attributes.comm.receives = std::move(blocks.receives);
  fusion.addExpr(ExprKind::Communicate, {in}, {out}, attributes);
  return out;
}

enum class Role : uint8_t { Local, Old, New };

// A piece of a dim in the collective: local, owned by the team before the step, or owned by it after the step.
struct Piece {
  Role role;
  int64_t size;
  int atom;
};

// The digits of a dim. Local digits are split where the team owns a digit after the step; digits of axes outside the team are left out.
std::vector<Piece> piecesOf(const PlanDim& before, const PlanDim& after, const std::vector<int>& team) {
  const auto inTeam = [&](int atom) { return std::find(team.begin(), team.end(), atom) != team.end(); };
  std::vector<Piece> pieces;
  for (const PlanDigit& d : before) {
    if (d.atom != kLocal) {
      if (inTeam(d.atom)) {
        pieces.push_back({Role::Old, d.size, d.atom});
      }
      continue;
    }
    int64_t top = d.stride * d.size;
    for (const PlanDigit& n : after) {
      if (n.atom != kLocal && inTeam(n.atom) && n.stride >= d.stride && n.stride * n.size <= d.stride * d.size) {
        pieces.push_back({Role::Local, top / (n.stride * n.size), kLocal});
        pieces.push_back({Role::New, n.size, n.atom});
        top = n.stride;
      }
    }
    pieces.push_back({Role::Local, top / d.stride, kLocal});
  }
  return pieces;
}

// All pieces of all dims in order.
std::vector<Piece> allPieces(const CommStep& step) {
  std::vector<Piece> all;
  for (size_t k = 0; k < step.before.dims.size(); k++) {
    for (const Piece& p : piecesOf(step.before.dims[k], step.after.dims[k], step.axes)) {
      all.push_back(p);
    }
  }
  return all;
}

// [dims..] -> [team, the rest..]: the digits that the team will own come to the front, in its order.
TensorView* pack(TensorView* in, const CommStep& step, const std::vector<int64_t>& rest) {
  std::vector<int64_t> sizes;
  std::vector<Piece> pieces;
  for (const Piece& p : allPieces(step)) {
    if (p.role != Role::Old) {
      pieces.push_back(p);
      sizes.push_back(p.size);
    }
  }
  std::vector<int> order;
  for (int atom : step.axes) {
    for (size_t i = 0; i < pieces.size(); i++) {
      if (pieces[i].role == Role::New && pieces[i].atom == atom) {
        order.push_back(static_cast<int>(i));
      }
    }
  }
  for (size_t i = 0; i < pieces.size(); i++) {
    if (pieces[i].role == Role::Local) {
      order.push_back(static_cast<int>(i));
    }
  }
  std::vector<int64_t> shape{step.on.atoms.teamSize(step.axes)};
  shape.insert(shape.end(), rest.begin(), rest.end());
  return rearrange(in, sizes, order, shape);
}

// [team, the rest..] -> [dims..]: the digits that the team owned go to their places.
TensorView* unpack(TensorView* in, const CommStep& step) {
  std::vector<int64_t> sizes;
  for (int atom : step.axes) {
    sizes.push_back(step.on.atoms.axisSize(atom).constValue());
  }
  std::vector<int> order;
  std::vector<Piece> pieces = allPieces(step);
  for (const Piece& p : pieces) {
    if (p.role == Role::Local) {
      order.push_back(static_cast<int>(sizes.size()));
      sizes.push_back(p.size);
    } else if (p.role == Role::Old) {
      order.push_back(static_cast<int>(std::find(step.axes.begin(), step.axes.end(), p.atom) - step.axes.begin()));
    }
  }
  return rearrange(in, sizes, order, localShape(step.after));
}

// The program of one rank for a step in which ranks hold or exchange parts of different sizes.
class UnevenStep {
 public:
  UnevenStep(TensorView* in, const CommStep& step, const MovedTensor& moved, int64_t rank)
      : in_(in), step_(step), moved_(moved), extents_(moved.extents), rank_(rank) {
    if (step.communicates()) {
      team_ = step.on.atoms.team(rank, step.axes);
    }
    for (int64_t member : team_) {
      before_.push_back(part(step.before, member));
      after_.push_back(part(step.after, member));
    }
    self_ = static_cast<size_t>(std::find(team_.begin(), team_.end(), rank) - team_.begin());
  }

  TensorView* emit() const {
    const Part held = part(step_.before, rank_);
    const Part wanted = part(step_.after, rank_);
    Blocks blocks;
    switch (step_.kind) {
      case Collective::Local:
        return takePart(in_, held.positionsOf(wanted));
      case Collective::AllReduce:
        return communicate(in_, step_, Collective::AllReduce, held.sizes(), moved_);
      case Collective::AllGather:
        for (const Part& theirs : before_) {
          blocks.receives.push_back(blockOf(wanted, theirs));
        }
        return exchange(Collective::AllGather, std::move(blocks));
      case Collective::ReduceScatter:
        for (const Part& theirs : after_) {
          blocks.sends.push_back(blockOf(held, theirs));
        }
        return exchange(Collective::ReduceScatter, std::move(blocks));
      case Collective::Transfer:
      case Collective::AllToAll:
        for (size_t k = 0; k < team_.size(); k++) {
          blocks.sends.push_back(blockOf(held, passed(self_, k)));
          blocks.receives.push_back(blockOf(wanted, passed(k, self_)));
        }
        return exchange(Collective::AllToAll, std::move(blocks));
      default:
        break;
    }
    throwInternalError(fmt::format("[localize] {} cannot be localized: no collective or local op implements this step",
                                   step_.toString()));
  }

 private:
  Part part(const PlanState& state, int64_t rank) const {
    return heldPart(state, extents_, step_.on.atoms.coordinates(rank));
  }

  // A block without elements has no index in any dim.
  static Part blockOf(const Part& all, const Part& some) {
    return some.count() == 0 ? Part{std::vector<IndexRuns>(all.dims.size())} : all.positionsOf(some);
  }

  // The block that one member sends to another. If several members hold it, a receiver uses its own copy, or else chooses a sender by its
  // own number.
  Part passed(size_t from, size_t to) const {
    std::vector<size_t> alike;
    for (size_t k = 0; k < team_.size(); k++) {
      if (before_[k] == before_[from]) {
        alike.push_back(k);
      }
    }
    const bool holds = before_[to] == before_[from];
    const bool chosen = holds ? from == to : alike[to % alike.size()] == from;
    return chosen ? intersection(before_[from], after_[to]) : Part{std::vector<IndexRuns>(extents_.size())};
  }

  TensorView* exchange(Collective kind, Blocks blocks) const {
    return communicate(in_, step_, kind, part(step_.after, rank_).sizes(), moved_, std::move(blocks));
  }

  TensorView* in_;
  const CommStep& step_;
  const MovedTensor& moved_;
  const std::vector<int64_t>& extents_;
  int64_t rank_;
  std::vector<int64_t> team_;
  std::vector<Part> before_;  // by position in the team
  std::vector<Part> after_;
  size_t self_ = 0;
};

}  // namespace

TensorView* emitStep(Fusion& local, TensorView* in, const CommStep& step, const MovedTensor& moved,
                     const LocalRank& at) {
  if (step.to) {
    return emitTransfer(local, in, step, moved, at.rank);
  }
  if (!step.on.atoms.contains(at.rank)) {
    return nullptr;
  }
  if (!isEven(step, moved.extents)) {
    return UnevenStep(in, step, moved, at.rank).emit();
  }
  const std::vector<int64_t> before = localShape(step.before);
  const std::vector<int64_t> after = localShape(step.after);
  invariant(in->constantShape() == before, "[localize] {} has another shape at {} than planned", in->toString(),
            step.toString());
  switch (step.kind) {
    case Collective::Local:
      return sliceOwned(in, step.on, step.before, step.after, at);
    case Collective::AllReduce:
      return communicate(in, step, Collective::AllReduce, before, moved);
    case Collective::Transfer:
      return communicate(in, step, Collective::Transfer, after, moved);
    case Collective::AllGather: {
      std::vector<int64_t> shape{step.on.atoms.teamSize(step.axes)};
      shape.insert(shape.end(), before.begin(), before.end());
      return unpack(communicate(in, step, Collective::AllGather, shape, moved), step);
    }
    case Collective::ReduceScatter:
      return communicate(pack(in, step, after), step, Collective::ReduceScatter, after, moved);
    case Collective::AllToAll: {
      // The rest of each dim without the digits of both sides.
      std::vector<int64_t> rest;
      for (size_t k = 0; k < before.size(); k++) {
        int64_t n = before[k];
        for (const Piece& p : piecesOf(step.before.dims[k], step.after.dims[k], step.axes)) {
          n /= p.role == Role::New ? p.size : 1;
        }
        rest.push_back(n);
      }
      std::vector<int64_t> shape{step.on.atoms.teamSize(step.axes)};
      shape.insert(shape.end(), rest.begin(), rest.end());
      return unpack(communicate(pack(in, step, rest), step, Collective::AllToAll, shape, moved), step);
    }
    default:
      break;
  }
  throwInternalError(fmt::format("[localize] {} cannot be localized: no collective or local op implements this step",
                                 step.toString()));
}

}  // namespace meshfuse
