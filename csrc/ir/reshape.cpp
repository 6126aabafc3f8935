#include "ir/reshape.h"

#include <algorithm>

#include "base/error.h"
#include "base/ranges.h"
#include "digits/part_sizes.h"

namespace meshfuse {

namespace {

enum class StepKind : uint8_t {
  Pass,      // the dim at hand is the next result
  Drop,      // skip the next root dim
  New,       // a broadcast dim is the next result
  Take,      // the next root dim is at hand
  Merge,     // merge the dim at hand with the next root dim
  SplitOff,  // split the dim at hand: the outer part, of the next extent, is the next result
  SplitRest  // the same by the extent of the inner part, which is known better: a symbol that 4 divides is floorDiv(i0, 4) times 4
};

struct Step {
  StepKind kind;
  IntExpr inner = 1;  // SplitRest: what is left at hand
};

// Whether `side` takes in its next dim to meet `other`: not if it holds `other` already.
bool mustGrow(const IntExpr& side, const IntExpr& other) {
  return !divideExactly(side, other) && (divideExactly(other, side) || !provenLess(other, side));
}

// Walks both shapes, or gives nothing where the products do not agree.
class Planner {
 public:
  Planner(std::span<const IntExpr> from, std::span<const IntExpr> to) : from_(from), to_(to) {}

  std::optional<std::vector<Step>> plan() {
    while (i_ < from_.size() || j_ < to_.size()) {
      bool left = i_ < from_.size();
      bool right = j_ < to_.size();
      if (left && right && from_[i_] == to_[j_]) {
        steps_.insert(steps_.end(), {{StepKind::Take}, {StepKind::Pass}});
        i_++;
        j_++;
      } else if (left && from_[i_].isConst(1)) {
        steps_.push_back({StepKind::Drop});
        i_++;
      } else if (right && to_[j_].isConst(1)) {
        steps_.push_back({StepKind::New});
        j_++;
      } else if (!left || !right || !group()) {
        return std::nullopt;
      }
    }
    return std::move(steps_);
  }

 private:
  // One past the group's last dims on both sides; false if the products never meet.
  bool group() {
    size_t iEnd = i_ + 1;
    size_t jEnd = j_ + 1;
    IntExpr have = from_[i_];
    IntExpr want = to_[j_];
    while (have != want) {
      if (iEnd < from_.size() && (jEnd == to_.size() || mustGrow(have, want))) {
        have *= from_[iEnd++];
      } else if (jEnd < to_.size()) {
        want *= to_[jEnd++];
      } else {
        return false;
      }
    }
    return connect(iEnd, jEnd);
  }

  bool connect(size_t iEnd, size_t jEnd) {
    steps_.push_back({StepKind::Take});
    IntExpr hand = from_[i_++];
    while (j_ < jEnd) {
      if (to_[j_].isConst(1)) {
        steps_.push_back({StepKind::New});
        j_++;
      } else if (i_ < iEnd && from_[i_].isConst(1)) {
        steps_.push_back({StepKind::Drop});
        i_++;
      } else if (i_ == iEnd && hand == to_[j_]) {
        steps_.push_back({StepKind::Pass});
        j_++;
      } else if (std::optional<IntExpr> rest = divideExactly(hand, to_[j_]); rest && hand != to_[j_]) {
        steps_.push_back({StepKind::SplitOff});
        hand = *rest;
        j_++;
      } else if (const IntExpr inner = productAfter(jEnd);
                 i_ == iEnd && !inner.isConst(0) && hand == to_[j_] * inner && ceilDiv(hand, inner) == to_[j_]) {
        steps_.push_back({StepKind::SplitRest, inner});
        hand = inner;
        j_++;
      } else if (i_ < iEnd) {
        steps_.push_back({StepKind::Merge});
        hand *= from_[i_++];
      } else {
        return false;
      }
    }
    return i_ == iEnd;
  }

  // The product of the result extents after the next one, up to the end of the group.
  IntExpr productAfter(size_t jEnd) const { return productOf(to_.subspan(j_ + 1, jEnd - j_ - 1)); }

  std::span<const IntExpr> from_;
  std::span<const IntExpr> to_;
  size_t i_ = 0;
  size_t j_ = 0;
  std::vector<Step> steps_;
};

bool hasZero(std::span<const IntExpr> extents) {
  return std::ranges::any_of(extents, [](const IntExpr& e) { return e.isConst(0); });
}

}  // namespace

bool canConnectReshape(std::span<const IntExpr> from, std::span<const IntExpr> to) {
  return (hasZero(from) && hasZero(to)) || Planner(from, to).plan().has_value();
}

std::vector<IterDomain*> connectReshape(Fusion& fusion, const std::vector<IterDomain*>& root,
                                        std::span<const IntExpr> extents) {
  const std::vector<IntExpr> from = mapped(root, &IterDomain::extent);
  if (std::ranges::equal(from, extents)) {
    return root;
  }
  if (hasZero(from) && hasZero(extents)) {
    return mapped(extents, [&](const IntExpr& e) {
      return fusion.idNew(e, e.isConst(1) ? IterType::Broadcast : IterType::Iteration);
    });
  }
  std::optional<std::vector<Step>> steps = Planner(from, extents).plan();
  check(steps.has_value(), "[reshape] {} to {}: expected numbers of elements that are known to be equal",
        toString(from), toString(extents));
  std::vector<IterDomain*> logical;
  size_t next = 0;
  IterDomain* hand = nullptr;
  for (const Step& step : *steps) {
    switch (step.kind) {
      case StepKind::Take:
        hand = root[next++];
        break;
      case StepKind::Drop:
        next++;
        break;
      case StepKind::Merge:
        hand = fusion.idMerge(hand, root[next++]);
        break;
      case StepKind::Pass:
        logical.push_back(hand);
        break;
      case StepKind::New:
        logical.push_back(fusion.idNew(1, IterType::Broadcast));
        break;
      case StepKind::SplitOff:
      case StepKind::SplitRest: {
        const bool isRest = step.kind == StepKind::SplitRest;
        auto [outer, inner] = fusion.idSplit(hand, isRest ? step.inner : extents[logical.size()], isRest);
        logical.push_back(outer);
        hand = inner;
        break;
      }
    }
  }
  return logical;
}

}  // namespace meshfuse
