// A state written to a tensor: canonical splits, bound to axes.
#include "multidevice/sharding/shard_state.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <ranges>

#include "base/error.h"
#include "base/not_constant.h"
#include "base/ranges.h"
#include "base/rounding.h"
#include "digits/part_sizes.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

// How a dim is split into its digits.
struct DigitSplits {
  struct Split {
    int64_t at;  // position among the loops so far
    IntExpr factor;
    bool inner;
  };
  std::vector<IntExpr> parts;  // of given sizes: partitioned before any split
  std::vector<Split> splits;
  std::vector<int64_t> place;  // final position of each digit among the loops
  int64_t loops = 0;
};

bool isPositive(const IntExpr& e) { return e.lower().value_or(0) > 0; }

bool hasConstantDigits(const std::vector<Digit>& digits, const IntExpr& extent) {
  return extent.isConst() && std::ranges::all_of(digits, [](const Digit& d) { return d.size.isConst(); });
}

// Of a ragged list with symbols: the run of digits on top that is rounded up is cut off first, as what makes it ragged did; what is left
// above and below divides.
void cutRoundedUp(const std::vector<Digit>& digits, const IntExpr& extent, DigitSplits& out) {
  const int64_t count = std::ssize(digits);
  IntExpr parts = 1;
  int64_t run = 0;
  while (run < count && out.splits.empty()) {
    parts *= digits[run].size;
    const IntExpr& below = digits[run++].stride;
    if (ceilDiv(extent, parts) == below) {
      out.splits.push_back({0, parts, false});
    } else if (ceilDiv(extent, below) == parts) {
      out.splits.push_back({0, below, true});
    }
  }
  if (out.splits.empty()) {
    throwInternalError(
        fmt::format("[sharding] no split of {} produces {}", extent.toString(), DigitList(digits).toString()));
  }
  for (int64_t i = 0; i + 1 < count; i++) {
    if (i + 1 != run) {
      const bool outer = i < run || isPositive(digits[i].size);
      out.splits.push_back({i, outer ? digits[i].size : digits[i].stride, !outer});
    }
  }
}

// Of digits from the outside. In a ragged list, a run of axes on top is padded as one, and all below it is cut from the inside, so that
// every size but the topmost is exact.
DigitSplits splitsOf(const std::vector<Digit>& digits, const IntExpr& extent) {
  const int64_t count = std::ssize(digits);
  DigitSplits out;
  out.place.resize(count);
  std::iota(out.place.begin(), out.place.end(), 0);
  out.loops = count;
  if (!digits.front().parts.empty()) {
    // one loop over the parts and one within a part: no axis owns a digit there
    const IntExpr longest = max(1, largestOf(digits.front().parts));
    out.parts = digits.front().parts;
    for (int64_t i = 0; i < count && provenLess(longest, digits[i].stride); i++) {
      out.splits.push_back({i, digits[i].size, false});
    }
    out.loops = std::ssize(out.splits) + 2;
    return out;
  }
  const auto isOwned = [](const Digit& d) { return d.owner.isDevice(); };
  const int64_t top = std::ranges::find_if_not(digits, isOwned) - digits.begin();  // digits in the run
  const IntExpr together = productOf(digits | std::views::take(top), &Digit::size);
  if (!digits.front().isRagged()) {
    // A run of axes on top, one with a symbolic size, is padded as one axis where sizes turn out not to divide.
    const bool isPadded = top > 1 && top < count && !together.isConst();
    if (isPadded) {
      out.splits.push_back({0, together, false});
    }
    for (int64_t i = 0; i + 1 < count; i++) {
      if (isPadded && i + 1 == top) {
        continue;
      }
      // The loop of an axis has its size, whether or not that divides what is cut. A quotient, which may be nothing for other sizes, is
      // the rest.
      const bool isQuotient = digits[i].owner.isLocal() && !isPositive(digits[i].size);
      if (isQuotient && isPositive(digits[i].stride)) {
        out.splits.push_back({i, digits[i].stride, true});
      } else {
        out.splits.push_back({i, isQuotient ? max(1, digits[i].size) : digits[i].size, false});
      }
    }
    return out;
  }
  if (!hasConstantDigits(digits, extent)) {
    cutRoundedUp(digits, extent, out);
    return out;
  }
  const int64_t parts = together.constValue();
  const int64_t bound = extent.constValue();
  const int64_t below = top == 0 ? 0 : digits[top - 1].stride.constValue();
  const bool isBlock = top > 0 && top + 1 >= count && below == std::max<int64_t>(1, divideUp(bound, parts));
  for (int64_t i = count - 1; i >= std::max<int64_t>(top, 1) && !isBlock; i--) {
    out.splits.push_back({0, digits[i].size, true});
  }
  if (top == 0) {
    return out;
  }
  // The rest has at most one element for each part: then a loop of one element remains.
  if (isBlock || divideUp(bound, below) != parts) {
    out.splits.push_back({0, parts, false});
    out.loops = isBlock ? top + 1 : count + 1;
    for (int64_t i = top; i < count && !isBlock; i++) {
      out.place[i]++;
    }
  }
  for (int64_t i = 0; i + 1 < top; i++) {
    out.splits.push_back({i, digits[i].size, false});
  }
  return out;
}

// The loop of an owned digit.
struct OwnedLoop {
  int64_t axis;
  IntExpr below;
  IterDomain* loop;
};

// Merges two loops into one in which `inner` varies fastest.
IterDomain* joined(TensorView* tv, const IterDomain* outer, const IterDomain* inner) {
  const auto from = positionIn(tv->getLoopDomain(), outer);
  const auto to = positionIn(tv->getLoopDomain(), inner);
  tv->merge(from, to);
  return tv->axis(from < to ? from : from - 1);
}

// Adjacent digits of one axis become one loop. An axis of symbolic size is bound as a whole.
void bindOwnedLoops(TensorView* tv, const DeviceMesh& mesh, std::vector<OwnedLoop> pieces, const Prover& prover) {
  const auto next = [&](int64_t axis, const IntExpr& below) {
    return std::ranges::find_if(pieces,
                                [&](const OwnedLoop& p) { return p.axis == axis && prover.equal(p.below, below); });
  };
  for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
    IntExpr below = 1;
    for (;;) {
      auto piece = next(axis, below);
      if (piece == pieces.end()) {
        // what else is bound of the axis stands above a gap
        piece = std::ranges::min_element(pieces, [&](const OwnedLoop& a, const OwnedLoop& b) {
          return std::pair(a.axis != axis, a.below.constantTerm()) < std::pair(b.axis != axis, b.below.constantTerm());
        });
        if (piece == pieces.end() || piece->axis != axis) {
          break;
        }
        below = piece->below;
      }
      const IntExpr first = below;
      IterDomain* loop = nullptr;
      for (; piece != pieces.end(); piece = next(axis, below)) {
        below = prover.multiply(below, piece->loop->extent());
        loop = loop == nullptr ? piece->loop : joined(tv, piece->loop, loop);
        pieces.erase(piece);
      }
      const bool isPart = mesh.axisSize(axis).isConst() && first.isConst() && below.isConst();
      loop->parallelize(isPart ? mesh.typeOf(axis, first.constValue(), below.constValue() / first.constValue())
                               : mesh.typeOf(axis));
    }
  }
}

}  // namespace

void setShardState(TensorView* tv, const ShardState& state, const Prover& prover) {
  const std::vector<IterDomain*> dims = stateDims(tv);
  const IterDomain* partial = tv->partialDomain();
  if (dims.size() != state.dims.size() ||
      (!state.partial.empty() && partial == nullptr)) {  // formats the text only on failure
    throwInternalError(fmt::format("[sharding] {} has {} dims{}, its state is {}", tv->toString(), dims.size(),
                                   partial == nullptr ? " and none for a partial sum" : "", state.toString()));
  }
  tv->resetLoop();
  tv->setDeviceMesh(state.mesh);

  std::vector<OwnedLoop> pieces;
  int64_t loop = 0;
  int64_t next = 0;
  for (IterDomain* logical : std::vector<IterDomain*>(tv->getLogicalDomain())) {
    std::vector<Digit> digits;
    if (logical == partial) {
      IntExpr stride = 1;
      for (const int64_t axis : state.partial | std::views::reverse) {
        digits.insert(digits.begin(), {0, stride, state.mesh.axisSize(axis), Owner::device(axis)});
        stride = prover.multiply(stride, state.mesh.axisSize(axis));
      }
    } else if (next < std::ssize(dims) && logical == dims[next]) {
      const DigitList& list = state.dims[next++];
      if (list.isOpaque()) {
        throw NotConstantError(fmt::format("[sharding] dim {} of the state of {} is opaque", next - 1, tv->toString()));
      }
      digits.assign(list.digits().begin(), list.digits().end());
    }
    if (std::ranges::none_of(digits, [](const Digit& d) { return d.owner.isDevice(); })) {
      loop++;
      continue;
    }
    const DigitSplits splits = splitsOf(digits, prover.canonical(logical->extent()));
    if (!splits.parts.empty()) {
      tv->partition(loop, splits.parts);
    }
    for (const DigitSplits::Split& s : splits.splits) {
      if (s.inner) {
        tv->inner_split(loop + s.at, s.factor);
      } else {
        tv->outer_split(loop + s.at, s.factor);
      }
    }
    for (int64_t i = 0; i < std::ssize(digits); i++) {
      if (digits[i].owner.isDevice()) {
        pieces.push_back({digits[i].owner.axis, digits[i].owner.below, tv->axis(loop + splits.place[i])});
      }
    }
    loop += splits.loops;
  }

  bindOwnedLoops(tv, state.mesh, std::move(pieces), prover);
}

}  // namespace meshfuse
