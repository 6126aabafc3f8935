// Writes dims that result from splits and merges as digits of the dims that were split and merged.
#include "multidevice/sharding/shard_state.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>

#include "base/ranges.h"
#include "digits/part_sizes.h"
#include "ir/fusion.h"
#include "multidevice/sharding/size_facts.h"

namespace meshfuse {

namespace {

// Every dim between `base` and the requested dim, as digits of the base; computed on demand.
class DigitsOver {
 public:
  DigitsOver(const TensorView* tv, const std::vector<IterDomain*>& base, const Prover& prover)
      : base_(base), prover_(prover) {
    if (std::ranges::any_of(base, [&](const IterDomain* id) { return isTiny(prover.canonical(id->extent())); })) {
      transforms_ = transformsBetween(base, tv->getLoopDomain());
    }
    if (tv->definition() != nullptr && tv->definition()->kind() == ExprKind::Reshape) {
      regroup(tv->getLogicalDomain());
    }
  }

  const DigitList& of(IterDomain* id) {
    const auto known = std::ranges::find(known_, id, &Known::id);
    return known != known_.end() ? *known->digits : know(id, made(id));
  }

 private:
  // The logical dims of a reshape that has no splits and merges yet because sizes are unknown; derived from the order of elements.
  void regroup(const std::vector<IterDomain*>& logical) {
    const auto isNew = [&](const IterDomain* id) { return id->definition() == nullptr && !contains(base_, id); };
    if (std::ranges::none_of(logical, isNew)) {
      return;
    }
    const ReshapedDims dims = reshapedDims(base_, logical, prover_);
    for (const auto& [from, to] : dims.same) {
      know(logical[to], of(base_[from]));
    }
    DigitList rest;
    for (const int64_t k : dims.from) {
      rest = merge(rest, of(base_[k]), prover_);
    }
    for (int64_t j = std::ssize(dims.to); j-- > 0;) {
      IterDomain* id = logical[dims.to[j]];
      auto parts = j > 0 ? split(rest, prover_.canonical(id->extent()), prover_) : std::pair(DigitList(), rest);
      know(id, std::move(parts.second));
      rest = std::move(parts.first);
    }
  }

  const DigitList& know(IterDomain* id, DigitList list) {
    return *known_.emplace_back(Known{id, std::make_unique<DigitList>(std::move(list))}).digits;
  }

  struct Known {
    IterDomain* id;
    std::unique_ptr<DigitList> digits;  // its address stays valid when other lists are added
  };

  DigitList made(IterDomain* id) {
    if (contains(base_, id)) {
      const auto dim = positionIn(base_, id);
      const IntExpr extent = prover_.canonical(id->extent());
      if (extent.isConst(1)) {
        ones_.emplace(id->id(), Digit{dim, 1, 1, {}});
      }
      return DigitList::whole(dim, extent);
    }
    const IdExpr* e = id->definition();
    if (e == nullptr) {
      return DigitList::opaque();
    }
    switch (e->kind) {
      case IdExprKind::Merge:
        return merge(of(e->in[0]), asPadded(of(e->in[1])), prover_);
      case IdExprKind::Split: {
        auto parts = splitOf(*e);
        return std::move(id == e->out[0] ? parts.first : parts.second);
      }
      case IdExprKind::Partition:
        return partOf(*e, id == e->out[0]);
      case IdExprKind::Resize:
        return e->left.isConst(0) && e->right.isConst(0) ? of(e->in[0]) : DigitList::opaque();
    }
    return DigitList::opaque();
  }

  // The factor is one side's extent, the other is rounded up: a split that is not proved to divide is ragged if it is of a topmost
  // digit, else opaque.
  std::pair<DigitList, DigitList> splitOf(const IdExpr& e) {
    const DigitList& list = of(e.in[0]);
    const IntExpr factor = prover_.canonical(e.factor);
    const IntExpr extent = prover_.canonical(e.in[0]->extent());
    // facts may make the size of the digits an exact quotient where the extent is a rounded-up one
    const bool exact = !list.isOpaque() && !list.isRagged() && !extent.isConst();
    const bool padded = isTiny(extent) && isPadded(list);
    const IntExpr in = exact || padded ? list.size(prover_) : extent;
    const std::optional<IntExpr> other = in.isConst(0) ? std::nullopt : prover_.divide(in, factor);
    const IntExpr room = isTiny(in) ? partsCutFrom(e.out[e.innerSplit ? 0 : 1]) : 1;
    if (other && room.isConst(1)) {
      auto parts = split(list, e.innerSplit ? factor : *other, prover_);
      if (!parts.first.isOpaque() && parts.first.empty()) {
        if (std::optional<Digit> one = topmost(e.in[0], list)) {
          one->stride *= in;
          one->size = 1;
          ones_.emplace(e.out[0]->id(), std::move(*one));
        }
      }
      return parts;
    }
    const std::optional<Digit> top = topmost(e.in[0], list);
    if (!top || factor.isConst(0)) {
      return {DigitList::opaque(), DigitList::opaque()};
    }
    const IntExpr quotient = ceilDiv(in, factor);
    const IntExpr rounded = quotient.isConst() ? max(room, quotient) : quotient;
    return splitRagged(*top, extentOf(top->dim), e.innerSplit ? rounded : factor, e.innerSplit ? factor : rounded);
  }

  // No part but the first has elements, whatever the strides between parts: a dim that is cut again is padded to the number of its parts.
  static bool isTiny(const IntExpr& extent) { return extent.isConst(0) || extent.isConst(1); }

  // Of a tiny dim: the digits that a split has made, with room for the parts that later splits make.
  static bool isPadded(const DigitList& list) {
    return !list.isOpaque() && !list.isRagged() && !list.empty() &&
           std::ranges::none_of(list.digits(), [](const Digit& d) { return d.size.isConst(0); });
  }

  // How many parts the splits of `id` make of it.
  IntExpr partsCutFrom(const IterDomain* id) const {
    const auto cuts = [&](const IdExpr* e) { return e->kind == IdExprKind::Split && e->in[0] == id; };
    const auto cut = std::ranges::find_if(transforms_, cuts);
    if (cut == transforms_.end()) {
      return 1;
    }
    const IdExpr& e = **cut;
    return prover_.multiply(prover_.canonical(e.factor), partsCutFrom(e.out[e.innerSplit ? 0 : 1]));
  }

  IntExpr extentOf(int64_t dim) const { return prover_.canonical(base_[dim]->extent()); }

  // The partition of a whole dim. Parts of equal blocks are the same as a split.
  DigitList partOf(const IdExpr& e, bool outer) {
    if (!contains(base_, e.in[0])) {
      return DigitList::opaque();
    }
    const auto dim = positionIn(base_, e.in[0]);
    const IntExpr parts = std::ssize(e.sizes);
    const auto sizes = mapped(e.sizes, [&](const IntExpr& size) { return prover_.canonical(size); });
    const IntExpr extent = sumOf(sizes);
    const IntExpr longest = max(1, largestOf(sizes));
    if (extent.isConst() && areBlocks(sizes)) {
      const auto lists = splitRagged(Digit{dim, 1, extent, {}}, extent, parts, longest);
      return outer ? lists.first : lists.second;
    }
    if (!outer) {
      return DigitList::opaque();  // no position exists in all parts
    }
    return DigitList({Digit{dim, longest, parts, {}, extent, sizes}});
  }

  // The count includes empty parts at the end of the dim.
  static DigitList asPadded(const DigitList& list) {
    if (list.isOpaque() || !list.isRagged()) {
      return list;
    }
    std::vector<Digit> digits(list.digits().begin(), list.digits().end());
    digits.front().bound = Digit::kEven;
    return DigitList(std::move(digits));
  }

  // The digit that equals the index, if it is the topmost digit of a dim.
  std::optional<Digit> topmost(const IterDomain* id, const DigitList& list) const {
    if (const auto one = ones_.find(id->id()); one != ones_.end()) {
      return one->second;
    }
    if (list.isOpaque() || list.hasParts() || list.digits().size() != 1) {
      return std::nullopt;
    }
    const Digit& d = list.digits()[0];
    const bool isTop = d.isRagged() || prover_.multiply(d.stride, d.size) == extentOf(d.dim);
    return isTop ? std::optional<Digit>(d) : std::nullopt;
  }

  const std::vector<IterDomain*>& base_;
  const Prover& prover_;
  std::vector<Known> known_;
  std::vector<const IdExpr*> transforms_;  // if a dim of the base is tiny
  std::map<int64_t, Digit> ones_;          // by id: a topmost digit of size 1, which its list does not show
};

}  // namespace

std::vector<DigitList> logicalOverRoot(const TensorView* tv, const Prover& prover) {
  DigitsOver over(tv, tv->getRootDomain(), prover);
  return mapped(tv->getLogicalDomain(), [&](IterDomain* id) { return over.of(id); });
}

std::vector<BoundLoop> boundLoops(const TensorView* tv, const std::vector<IterDomain*>& base, const Prover& prover) {
  std::vector<BoundLoop> bound;
  const DeviceMesh& mesh = tv->getDeviceMesh();
  if (mesh.empty()) {
    return bound;
  }
  DigitsOver over(tv, base, prover);
  for (IterDomain* id : tv->getLoopDomain()) {
    const ParallelType type = id->parallelType();
    if (type.isDevice() && !prover.canonical(mesh.size(type)).isConst(1)) {
      const Owner owner = Owner::device(mesh.axisOf(type), mesh.below(type));
      bound.push_back({owner.axis, over.of(id).ownedBy(owner, prover), id->extent(), id});
    }
  }
  return bound;
}

}  // namespace meshfuse
