// The steps of a plan as collectives on contiguous shapes, with packs and unpacks.
#include <algorithm>
#include <cstdint>
#include <functional>

#include "base/error.h"
#include "base/ranges.h"
#include "localize/layout.h"
#include "multidevice/sharding/size_facts.h"
#include "multidevice/sharding/sized_steps.h"

namespace meshfuse {

namespace {

enum class Role : uint8_t { Local, Old, New };

// UserError unless it is proven that there is no remainder.
IntExpr quotient(const IntExpr& a, const IntExpr& b) {
  if (const std::optional<IntExpr> exact = divideExactly(a, b)) {
    return *exact;
  }
  check(b.isConst() && a.divisibleBy(b.constValue()),
        "[localize] it is not proven that {} divides {}; give constant sizes", b.toString(), a.toString());
  return floorDiv(a, b);
}

// A piece of a dim in the collective: local, owned by the team before the step, or owned by it after the step.
struct Piece {
  Role role;
  IntExpr size;
  int64_t atom;
};

// The digits of a dim of this extent. Local digits are split where the team owns a digit after the step; digits of axes outside the team are
// left out. Which digits lie in which is the same for all extents, so the planned ones tell.
std::vector<Piece> piecesOf(const PlanDim& before, const PlanDim& after, const IntExpr& extent,
                            const std::vector<int64_t>& team) {
  const SizedDim sizedBefore = digitsFor(before, extent);
  const SizedDim sizedAfter = digitsFor(after, extent);
  std::vector<Piece> pieces;
  for (const int64_t i : indices(before)) {
    const PlanDigit& d = before[i];
    if (d.atom != kLocal) {
      if (contains(team, d.atom)) {
        pieces.push_back({Role::Old, d.size, d.atom});
      }
      continue;
    }
    IntExpr top = sizedBefore[i].stride * sizedBefore[i].size;
    for (const int64_t j : indices(after)) {
      const PlanDigit& n = after[j];
      if (contains(team, n.atom) && n.stride >= d.stride && n.stride * n.size <= d.stride * d.size) {
        pieces.push_back({Role::Local, quotient(top, sizedAfter[j].stride * n.size), kLocal});
        pieces.push_back({Role::New, n.size, n.atom});
        top = sizedAfter[j].stride;
      }
    }
    pieces.push_back({Role::Local, quotient(top, sizedBefore[i].stride), kLocal});
  }
  return pieces;
}

// The program of one rank for one step. Blocks of one size are packed one after another; blocks of different sizes are listed as parts of
// the operand and the result.
class StepEmitter {
 public:
  StepEmitter(TensorView* in, const CommStep& step, const MovedTensor& moved, const LocalRank& at)
      : in_(in),
        step_(step),
        moved_(moved),
        at_(at),
        isEven_(isEven(step, plannedExtents(step, moved.extents))),
        heldSizes_(sizesOf(step.before)),
        wantedSizes_(sizesOf(step.after)) {
    if (!hasHeldSizes()) {  // formats the text only on failure
      throwInternalError(fmt::format("[localize] {} has another shape at {} than planned: [{}]", in->toString(),
                                     step.toString(), joined(heldSizes_, ", ", &IntExpr::toString)));
    }
  }

  TensorView* emit() const {
    switch (step_.kind) {
      case Collective::Local:
        return isEven_ ? sliceOwned(in_, localBefore())
                       : takePart(in_, part(step_.before, at_.rank).positionsOf(part(step_.after, at_.rank)));
      case Collective::AllReduce:
        return communicate(in_, {.kind = Collective::AllReduce}, heldSizes_);
      case Collective::Transfer:
        return isEven_ ? communicate(in_, {.kind = Collective::Transfer}, wantedSizes_)
                       : exchange(Collective::AllToAll);
      case Collective::AllGather:
        return isEven_ ? unpack(communicate(in_, {.kind = Collective::AllGather}, withTeam(heldSizes_)))
                       : exchange(Collective::AllGather);
      case Collective::ReduceScatter:
        return isEven_ ? communicate(pack(wantedSizes_), {.kind = Collective::ReduceScatter}, wantedSizes_)
                       : exchange(Collective::ReduceScatter);
      case Collective::AllToAll:
        return isEven_ ? unpack(communicate(pack(passedOn()), {.kind = Collective::AllToAll}, withTeam(passedOn())))
                       : exchange(Collective::AllToAll);
      default:
        break;
    }
    throwInternalError(fmt::format("[localize] {} cannot be localized: no collective or local op implements this step",
                                   step_.toString()));
  }

 private:
  // Equal sizes may be written with different symbols.
  bool hasHeldSizes() const {
    const std::vector<IntExpr> shape = in_->shape();
    if (shape == heldSizes_) {
      return true;
    }
    const Prover facts = factsOfSizes(moved_.program);
    const auto known = [&](const IntExpr& size) { return facts.canonical(size); };
    return std::ranges::equal(shape, heldSizes_, {}, known, known);
  }

  Part part(const PlanState& state, int64_t rank) const {
    return heldPart(state, mapped(moved_.extents, &IntExpr::constValue), step_.on.atoms.coordinates(rank));
  }

  // The sizes of this rank's part. Even parts may have very many runs, which are not listed.
  std::vector<IntExpr> sizesOf(const PlanState& state) const {
    if (!isEven_) {
      return mapped<IntExpr>(part(state, at_.rank).sizes(), std::identity());
    }
    return mapped(indices(state.dims), [&](int64_t k) {
      return productOf(digitsFor(state.dims[k], moved_.extents[k]),
                       [](const SizedDigit& d) { return d.atom == kLocal ? d.size : IntExpr(1); });
    });
  }

  std::vector<std::vector<RankDigit>> localBefore() const {
    return mapped(indices(moved_.extents), [&](int64_t k) {
      return digitsIn(step_.before.dims[k], digitsFor(step_.after.dims[k], moved_.extents[k]), step_.on, at_);
    });
  }

  // `comm` has the kind of the collective, and the blocks of this rank if these differ in size.
  TensorView* communicate(TensorView* in, CommAttributes comm, const std::vector<IntExpr>& shape) const {
    Fusion& fusion = in->fusion();
    comm.mesh = fusion.meshNumber(step_.on.atoms);
    comm.axes = step_.axes;
    comm.reduce = moved_.reduce;
    comm.number = moved_.number;
    if (comm.kind == Collective::Transfer) {
      comm.sources = step_.sources;
    }
    return fusion.addOp(ExprKind::Communicate, {in}, in->dtype(), localDims(shape), {.comm = std::move(comm)});
  }

  std::vector<Piece> pieces(int64_t dim) const {
    return piecesOf(step_.before.dims[dim], step_.after.dims[dim], moved_.extents[dim], step_.axes);
  }
  // All pieces of all dims in order.
  std::vector<Piece> allPieces() const {
    std::vector<Piece> all;
    for (int64_t k = 0; k < std::ssize(step_.before.dims); k++) {
      append(all, pieces(k));
    }
    return all;
  }

  std::vector<IntExpr> withTeam(std::vector<IntExpr> shape) const {
    shape.insert(shape.begin(), step_.on.atoms.teamSize(step_.axes));
    return shape;
  }

  // The shape of one block of an all-to-all: each dim without the digits of both sides.
  std::vector<IntExpr> passedOn() const {
    std::vector<IntExpr> shape = heldSizes_;
    for (int64_t k = 0; k < std::ssize(shape); k++) {
      for (const Piece& p : pieces(k)) {
        shape[k] = p.role == Role::New ? quotient(shape[k], p.size) : shape[k];
      }
    }
    return shape;
  }

  // [dims..] -> [team, the rest..]: the digits that the team will own come to the front, in its order.
  TensorView* pack(const std::vector<IntExpr>& rest) const {
    const auto isHeld = [](const Piece& p) { return p.role != Role::Old; };
    const std::vector<Piece> pieces = filtered(allPieces(), isHeld);
    std::vector<int64_t> order = mapped<int64_t>(indices(pieces), std::identity());
    // a local piece comes after all axes
    std::ranges::stable_sort(order, {}, [&](int64_t piece) { return positionIn(step_.axes, pieces[piece].atom); });
    return rearrange(in_, mapped(pieces, &Piece::size), order, withTeam(rest));
  }

  // [team, the rest..] -> [dims..]: the digits that the team owned go to their places.
  TensorView* unpack(TensorView* in) const {
    std::vector<IntExpr> sizes = mapped(step_.axes, [&](int64_t atom) { return step_.on.atoms.axisSize(atom); });
    std::vector<int64_t> order;
    for (const Piece& p : allPieces()) {
      if (p.role == Role::Local) {
        order.push_back(std::ssize(sizes));
        sizes.push_back(p.size);
      } else if (p.role == Role::Old) {
        order.push_back(positionIn(step_.axes, p.atom));
      }
    }
    return rearrange(in, sizes, order, wantedSizes_);
  }

  // A collective whose blocks differ in size.
  TensorView* exchange(Collective kind) const {
    const std::vector<int64_t> team = step_.on.atoms.team(at_.rank, step_.axes);
    const auto partsAt = [&](const PlanState& state) {
      return mapped(team, [&](int64_t member) { return part(state, member); });
    };
    const std::vector<Part> before = partsAt(step_.before);  // by position in the team
    const std::vector<Part> after = partsAt(step_.after);
    const int64_t self = positionIn(team, at_.rank);
    CommAttributes comm{.kind = kind};
    for (const int64_t k : indices(team)) {
      if (kind == Collective::AllGather) {
        comm.receives.push_back(blockOf(after[self], before[k]));
      } else if (kind == Collective::ReduceScatter) {
        comm.sends.push_back(blockOf(before[self], after[k]));
      } else {
        comm.sends.push_back(blockOf(before[self], passed(before, self, after, k)));
        comm.receives.push_back(blockOf(after[self], passed(before, k, after, self)));
      }
    }
    return communicate(in_, std::move(comm), wantedSizes_);
  }

  // A block without elements has no index in any dim.
  static Part blockOf(const Part& all, const Part& some) {
    return some.count() == 0 ? Part{std::vector<IndexRuns>(all.dims.size())} : all.positionsOf(some);
  }

  // The block that one member sends to another. If several members hold it, a receiver uses its own copy, or else chooses a sender by its
  // own number.
  static Part passed(const std::vector<Part>& before, int64_t from, const std::vector<Part>& after, int64_t to) {
    const auto holds = [&](int64_t member) { return before[member] == before[from]; };
    const std::vector<int64_t> alike = filtered(indices(before), holds);
    const bool chosen = holds(to) ? from == to : alike[to % std::ssize(alike)] == from;
    return chosen ? intersection(before[from], after[to]) : Part{std::vector<IndexRuns>(after[to].dims.size())};
  }

  TensorView* in_;
  const CommStep& step_;
  const MovedTensor& moved_;
  const LocalRank& at_;
  const bool isEven_;
  const std::vector<IntExpr> heldSizes_;
  const std::vector<IntExpr> wantedSizes_;
};

}  // namespace

TensorView* emitStep(Fusion& local, TensorView* in, const CommStep& step, const MovedTensor& moved,
                     const LocalRank& at) {
  if (step.to) {
    return emitTransfer(local, in, step, moved, at.rank);
  }
  return step.on.atoms.contains(at.rank) ? StepEmitter(in, step, moved, at).emit() : nullptr;
}

}  // namespace meshfuse
