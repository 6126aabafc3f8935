// Dims that splits and merges made, as digits of those they are made of.
#include "multidevice/sharding/shard_state.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/error.h"
#include "digits/part_sizes.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

// Every dim between `base` and what is asked for, as digits of the base; filled on demand.
class DigitsOver {
 public:
  DigitsOver(const std::vector<IterDomain*>& base, const Prover& prover) : base_(base), prover_(prover) {}

  const DigitList& of(IterDomain* id) {
    const auto known = std::ranges::find(known_, id, &Known::id);
    if (known != known_.end()) {
      return *known->digits;
    }
    const DigitList& list = *known_.emplace_back(Known{id, std::make_unique<DigitList>(made(id))}).digits;
    return list;
  }

 private:
  struct Known {
    IterDomain* id;
    std::unique_ptr<DigitList> digits;  // stays where it is when others become known
  };

  DigitList made(IterDomain* id) {
    if (const auto at = std::ranges::find(base_, id); at != base_.end()) {
      const auto dim = static_cast<int>(at - base_.begin());
      if (id->extent().isConst(1)) {
        ones_.emplace(id->id(), Digit{dim, 1, 1, {}});
      }
      return DigitList::whole(dim, id->extent());
    }
    DigitList list = DigitList::opaque();
    if (IdExpr* e = id->definition()) {
      switch (e->kind) {
        case IdExprKind::Merge:
          list = merge(of(e->in[0]), asPadded(of(e->in[1])), prover_);
          break;
        case IdExprKind::Split: {
          auto [outer, inner] = splitOf(*e);
          list = id == e->out[0] ? outer : inner;
          break;
        }
        case IdExprKind::Partition:
          list = partOf(*e, id == e->out[0]);
          break;
        case IdExprKind::Resize:
          if (e->left.isConst(0) && e->right.isConst(0)) {
            list = of(e->in[0]);
          }
          break;
      }
    }
    return list;
  }

  // The factor is one side's extent, the other is rounded up: a split that does not divide is ragged where all is constant, else
  // opaque.
  std::pair<DigitList, DigitList> splitOf(const IdExpr& e) {
    const DigitList& list = of(e.in[0]);
    // under facts the size of the digits is a quotient where the extent is rounded up
    const bool exact = !list.isOpaque() && !list.isRagged() && !e.in[0]->extent().isConst();
    const IntExpr in = exact ? list.size(prover_) : e.in[0]->extent();
    const std::optional<IntExpr> other = in.isConst(0) ? std::nullopt : prover_.divide(in, e.factor);
    const std::optional<Digit> top = topmost(e.in[0], list);
    if (other) {
      auto parts = split(list, e.innerSplit ? e.factor : *other, prover_);
      if (top && !parts.first.isOpaque() && parts.first.empty()) {
        Digit one = *top;
        one.stride = one.stride * in;
        one.size = 1;
        ones_.emplace(e.out[0]->id(), one);
      }
      return parts;
    }
    if (!top || !in.isConst() || !e.factor.isConst()) {
      return {DigitList::opaque(), DigitList::opaque()};
    }
    const int64_t factor = e.factor.constValue();
    const int64_t rounded = std::max<int64_t>(1, (in.constValue() + factor - 1) / factor);
    return splitRagged(*top, base_[static_cast<size_t>(top->dim)]->extent().constValue(),
                       e.innerSplit ? rounded : factor, e.innerSplit ? factor : rounded);
  }

  // Of a whole dim. Parts that are blocks are what a split makes.
  DigitList partOf(const IdExpr& e, bool outer) {
    const auto at = std::ranges::find(base_, e.in[0]);
    if (at == base_.end()) {
      return DigitList::opaque();
    }
    const auto dim = static_cast<int>(at - base_.begin());
    const IntExpr parts = static_cast<int64_t>(e.sizes.size());
    const IntExpr extent = sumOf(e.sizes);
    const IntExpr longest = max(1, largestOf(e.sizes));
    if (extent.isConst() && areBlocks(e.sizes)) {
      const Digit top{dim, 1, extent, {}};
      const auto lists = splitRagged(top, extent.constValue(), parts.constValue(), longest.constValue());
      return outer ? lists.first : lists.second;
    }
    if (!outer) {
      return DigitList::opaque();  // no place in it is one of every part
    }
    return DigitList({Digit{dim, longest, parts, {}, extent, e.sizes}});
  }

  // A dim counts the parts that it is split into, also where the last of them are empty.
  static DigitList asPadded(const DigitList& list) {
    if (list.isOpaque() || !list.isRagged()) {
      return list;
    }
    std::vector<Digit> digits(list.digits().begin(), list.digits().end());
    digits.front().bound = Digit::kEven;
    return DigitList(std::move(digits));
  }

  // The digit that the index is, if it is the topmost of a dim of constant extent.
  std::optional<Digit> topmost(const IterDomain* id, const DigitList& list) const {
    if (const auto one = ones_.find(id->id()); one != ones_.end()) {
      return one->second;
    }
    if (list.isOpaque() || list.digits().size() != 1) {
      return std::nullopt;
    }
    const Digit& d = list.digits()[0];
    if (!d.parts.empty()) {
      return std::nullopt;
    }
    const IntExpr& bound = base_[static_cast<size_t>(d.dim)]->extent();
    const bool isTop = bound.isConst() && (d.isRagged() || d.stride * d.size == bound);
    return isTop ? std::optional<Digit>(d) : std::nullopt;
  }

  const std::vector<IterDomain*>& base_;
  const Prover& prover_;
  std::vector<Known> known_;
  std::map<int, Digit> ones_;  // by id: a topmost digit of size 1, which its list does not show
};

}  // namespace

std::vector<DigitList> digitsOver(const std::vector<IterDomain*>& domain, const std::vector<IterDomain*>& base,
                                  const Prover& prover) {
  DigitsOver over(base, prover);
  std::vector<DigitList> lists;
  for (IterDomain* id : domain) {
    lists.push_back(over.of(id));
  }
  return lists;
}

std::vector<BoundLoop> boundLoops(const TensorView* tv, const std::vector<IterDomain*>& base, const Prover& prover) {
  std::vector<BoundLoop> bound;
  const DeviceMesh& mesh = tv->getDeviceMesh();
  if (mesh.empty()) {
    return bound;
  }
  DigitsOver over(base, prover);
  for (IterDomain* id : tv->getLoopDomain()) {
    if (!id->isDeviceDim()) {
      continue;
    }
    const ParallelType type = id->parallelType();
    if (!mesh.size(type).isConst(1)) {
      const Owner owner = Owner::device(mesh.axisOf(type), mesh.below(type));
      bound.push_back({owner.axis, over.of(id).ownedBy(owner, prover), id->extent(), id});
    }
  }
  return bound;
}

}  // namespace meshfuse
