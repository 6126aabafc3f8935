#include "digits/digit_list.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/not_constant.h"
#include "base/ranges.h"
#include "base/rounding.h"
#include "digits/part_sizes.h"

namespace meshfuse {

namespace {

// `outer` directly above `inner`: together one digit.
bool adjoins(const Digit& outer, const Digit& inner, const Prover& prover) {
  return !inner.isRagged() && outer.dim == inner.dim && outer.parts == inner.parts &&
         outer.owner.kind == inner.owner.kind && outer.owner.axis == inner.owner.axis &&
         prover.equal(outer.stride, prover.multiply(inner.stride, inner.size)) &&
         (!outer.owner.isDevice() || prover.equal(outer.owner.below, prover.multiply(inner.owner.below, inner.size)));
}

// The part of `digit` above (its lowest `size` values cut off), resp. below.
Digit above(const Digit& digit, const IntExpr& size, const IntExpr& quotient, const Prover& prover) {
  Digit d = digit;
  d.stride = prover.multiply(digit.stride, size);
  d.size = quotient;
  if (d.owner.isDevice()) {
    d.owner.below = prover.multiply(digit.owner.below, size);
  }
  return d;
}

Digit below(const Digit& digit, const IntExpr& size) {
  Digit d = digit;
  d.size = size;
  d.bound = Digit::kEven;
  return d;
}

}  // namespace

std::string Digit::toString() const {
  std::string text = fmt::format("d{}/{}%{}", dim, stride.toString(), size.toString());
  if (owner.isDevice()) {
    text += fmt::format(":a{}", owner.axis) + (owner.below.isConst(1) ? "" : "/" + owner.below.toString());
  } else if (!owner.isLocal()) {
    text += ":stream";
  }
  if (isRagged()) {
    text += parts.empty() ? "<" + bound.toString() : meshfuse::toString(parts);
  }
  return text;
}

DigitList::DigitList(std::vector<Digit> digits, const Prover& prover) {
  size_t kept = 0;
  for (Digit& d : digits) {
    if (d.size.isConst(1) && !d.isRagged()) {
      continue;
    }
    if (kept > 0 && adjoins(digits[kept - 1], d, prover)) {
      d.size = prover.multiply(digits[kept - 1].size, d.size);
      d.bound = std::move(digits[kept - 1].bound);
      kept--;
    }
    if (&d != &digits[kept]) {
      digits[kept] = std::move(d);
    }
    kept++;
  }
  digits.resize(kept);
  if (kept > 0) {
    digits_ = std::make_shared<const std::vector<Digit>>(std::move(digits));
  }
}

DigitList DigitList::whole(int64_t dim, const IntExpr& extent) {
  return DigitList({Digit{.dim = dim, .size = extent}});
}

DigitList DigitList::opaque() {
  DigitList list;
  list.opaque_ = true;
  return list;
}

IntExpr DigitList::size(const Prover& prover) const {
  return sizeOf([](const Digit&) { return true; }, prover);
}

IntExpr DigitList::extent(const Prover& prover) const { return isRagged() ? digits_->front().bound : size(prover); }

IntExpr DigitList::localSize(const Prover& prover) const {
  return sizeOf([](const Digit& d) { return d.owner.isLocal(); }, prover);
}

IntExpr DigitList::sizeOf(bool (*counts)(const Digit&), const Prover& prover) const {
  if (opaque_) {
    throw NotConstantError("[digits] an opaque list has no size; test isOpaque first");
  }
  IntExpr n = 1;
  for (const Digit& d : digits()) {
    n = counts(d) ? prover.multiply(n, d.size) : n;
  }
  return n;
}

DigitList DigitList::ownedBy(const Owner& owner, const Prover& prover) const {
  if (opaque_) {
    return *this;
  }
  std::vector<Digit> owned(digits().begin(), digits().end());
  IntExpr belowThis = owner.below;
  for (auto d = owned.rbegin(); d != owned.rend(); ++d) {
    d->owner = owner;
    d->owner.below = belowThis;
    belowThis = prover.multiply(belowThis, d->size);
  }
  return DigitList(std::move(owned), prover);
}

bool DigitList::hasOwned() const {
  return std::ranges::any_of(digits(), [](const Digit& d) { return !d.owner.isLocal(); });
}

bool DigitList::isRange() const {
  const std::span<const Digit> all = digits();
  const auto firstLocal = std::ranges::find_if(all, [](const Digit& d) { return d.owner.isLocal(); });
  return std::none_of(firstLocal, all.end(), [](const Digit& d) { return d.owner.isDevice(); });
}

std::string DigitList::toString() const {
  return opaque_ ? "opaque" : "[" + joined(digits(), ", ", &Digit::toString) + "]";
}

DigitList merge(const DigitList& outer, const DigitList& inner, const Prover& prover) {
  if (outer.isOpaque() || inner.isOpaque() || inner.isRagged()) {
    return DigitList::opaque();
  }
  std::vector<Digit> digits(outer.digits().begin(), outer.digits().end());
  digits.insert(digits.end(), inner.digits().begin(), inner.digits().end());
  return DigitList(std::move(digits), prover);
}

std::pair<DigitList, DigitList> split(const DigitList& in, const IntExpr& innerSize, const Prover& prover) {
  const std::pair<DigitList, DigitList> failed{DigitList::opaque(), DigitList::opaque()};
  if (in.isOpaque()) {
    return failed;
  }
  std::vector<Digit> outer(in.digits().begin(), in.digits().end());
  std::vector<Digit> inner;  // least significant first
  IntExpr need = innerSize;
  while (!need.isConst(1)) {
    if (outer.empty()) {
      return failed;
    }
    const Digit minor = outer.back();
    if (std::optional<IntExpr> rest = prover.divide(need, minor.size)) {
      inner.push_back(minor);
      outer.pop_back();
      need = *rest;
    } else if (std::optional<IntExpr> quotient = prover.divide(minor.size, need)) {
      outer.back() = above(minor, need, *quotient, prover);
      inner.push_back(below(minor, need));
      need = 1;
    } else {
      return failed;
    }
  }
  std::ranges::reverse(inner);
  return {DigitList(std::move(outer), prover), DigitList(std::move(inner), prover)};
}

std::pair<DigitList, DigitList> splitRagged(const Digit& top, const IntExpr& bound, const IntExpr& outerSize,
                                            const IntExpr& innerSize) {
  Digit outer = top;
  outer.stride = outer.stride * innerSize;
  outer.size = outerSize;
  outer.bound = outer.stride * outerSize == bound ? IntExpr(Digit::kEven) : bound;
  return {DigitList({outer}), DigitList({below(top, innerSize)})};
}

bool provenEqual(const DigitList& a, const DigitList& b, const Prover& prover) {
  const auto same = [&](const Digit& x, const Digit& y) {
    return x.dim == y.dim && prover.equal(x.stride, y.stride) && prover.equal(x.size, y.size) &&
           prover.equal(x.bound, y.bound) && x.parts == y.parts && x.owner.kind == y.owner.kind &&
           x.owner.axis == y.owner.axis && prover.equal(x.owner.below, y.owner.below);
  };
  return !a.isOpaque() && !b.isOpaque() && std::ranges::equal(a.digits(), b.digits(), same);
}

DigitList toBase(const std::vector<DigitList>& domain, const Digit& digit, const Prover& prover) {
  const DigitList upper = split(domain.at(digit.dim), digit.stride, prover).first;
  DigitList piece = upper;
  if (!upper.isOpaque() && !prover.equal(upper.size(prover), digit.size)) {
    piece = split(upper, digit.size, prover).second;
  }
  return piece.ownedBy(digit.owner, prover);
}

DigitList fromBase(const std::vector<DigitList>& domain, const Digit& digit, const Prover& prover) {
  // The places of the domain that show pieces of the digit, as (stride in the base dim, piece on the domain).
  struct Place {
    Digit base;
    int64_t dim;
    IntExpr stride;
  };
  std::vector<Place> places;
  for (int64_t k = 0; k < std::ssize(domain); k++) {
    if (domain[k].isOpaque()) {
      continue;  // should it hide a piece of the digit, the piece is missed below
    }
    IntExpr stride = 1;
    const std::span<const Digit> digits = domain[k].digits();
    for (auto d = digits.rbegin(); d != digits.rend(); ++d) {
      if (d->dim == digit.dim) {
        places.push_back({*d, k, stride});
      }
      stride = prover.multiply(stride, d->size);
    }
  }
  // From the minor end: find the place that shows the digit at the next stride, take as much of it as the digit has.
  std::vector<Digit> found;
  IntExpr at = digit.stride;
  IntExpr need = digit.size;
  IntExpr belowThis = digit.owner.below;
  const auto take = [&](const Place& place) {
    std::optional<IntExpr> skip = prover.divide(at, place.base.stride);
    std::optional<IntExpr> room = skip ? prover.divide(place.base.size, *skip) : std::nullopt;
    if (!room || room->isConst(1)) {
      return false;
    }
    Digit piece{place.dim, prover.multiply(place.stride, *skip), *room, digit.owner};
    std::optional<IntExpr> rest = prover.divide(need, *room);
    if (!rest && prover.divide(*room, need)) {
      piece.size = need;
      rest = 1;
    }
    if (!rest) {
      return false;
    }
    piece.owner.below = belowThis;
    belowThis = prover.multiply(belowThis, piece.size);
    at = prover.multiply(at, piece.size);
    need = *rest;
    found.push_back(std::move(piece));
    return true;
  };
  while (!need.isConst(1)) {
    if (!std::ranges::any_of(places, take)) {
      return DigitList::opaque();
    }
  }
  std::ranges::reverse(found);
  return DigitList(std::move(found), prover);
}

namespace {

// Local digits put between the owned ones, from the minor end up to what lies above them all; nullopt where they overlap or do not
// nest. `at` is the stride of the place above.
std::optional<std::vector<Digit>> fillBetween(int64_t dim, std::vector<Digit> owned, IntExpr& at,
                                              const Prover& prover) {
  std::vector<Digit> digits;  // least significant first
  while (!owned.empty()) {
    // The owned digit next above `at`: the one whose stride divides all others' that remain.
    auto next = std::ranges::find_if(owned, [&](const Digit& candidate) {
      return std::ranges::all_of(owned, [&](const Digit& other) {
        return &other == &candidate || prover.divide(other.stride, prover.multiply(candidate.stride, candidate.size));
      });
    });
    std::optional<IntExpr> gap = next == owned.end() ? std::nullopt : prover.divide(next->stride, at);
    if (!gap) {
      return std::nullopt;
    }
    digits.push_back({dim, at, *gap, {}});
    digits.push_back(*next);
    digits.back().dim = dim;
    digits.back().bound = Digit::kEven;
    at = prover.multiply(next->stride, next->size);
    owned.erase(next);
  }
  return digits;
}

// The list of digits that are given least significant first; `bound` is that of the topmost.
DigitList listOf(std::vector<Digit> digits, const IntExpr& bound, const Prover& prover) {
  std::erase_if(digits, [](const Digit& d) { return d.size.isConst(1); });
  std::ranges::reverse(digits);
  if (!digits.empty()) {
    digits.front().bound = bound;
  }
  return DigitList(std::move(digits), prover);
}

// Where the innermost owned digit counts several parts at once, these are one: of {2, 3, 4, 5} over an axis of 2, {5, 9}.
std::vector<Digit> partsJoined(const std::vector<Digit>& owned) {
  const std::vector<IntExpr> parts = owned[0].parts;
  const IntExpr longest = max(1, largestOf(parts));
  IntExpr least = owned[0].stride;
  for (const Digit& d : owned) {
    least = min(least, d.stride);
  }
  const std::optional<IntExpr> together = divideExactly(least, longest);
  const int64_t count = together && together->isConst() ? together->constValue() : 1;
  const bool nest =
      std::ranges::all_of(owned, [&](const Digit& d) { return divideExactly(d.stride, least).has_value(); });
  if (count == 1 || !nest || std::ssize(parts) % count != 0) {
    return owned;
  }
  std::vector<IntExpr> joined;
  for (int64_t k = 0; k < std::ssize(parts); k += count) {
    joined.push_back(sumOf(std::span(parts).subspan(k, count)));
  }
  std::vector<Digit> out = owned;
  for (Digit& d : out) {
    d.stride = *divideExactly(d.stride, least) * max(1, largestOf(joined));
    d.parts = joined;
  }
  return out;
}

// Digits of a dim in parts of given sizes.
DigitList fillPadded(int64_t dim, const std::vector<Digit>& given, const Prover& prover) {
  if (std::ranges::any_of(given, [&](const Digit& d) { return d.parts != given[0].parts; })) {
    return DigitList::opaque();
  }
  const std::vector<Digit> owned = partsJoined(given);
  const std::vector<IntExpr> parts = owned[0].parts;
  if (sumOf(parts).isConst() && areBlocks(parts)) {  // the padded dim is the one that blocks are digits of
    std::vector<Digit> blocks = owned;
    for (Digit& d : blocks) {
      d.parts.clear();
    }
    return fillRagged(dim, sumOf(parts).constValue(), blocks);
  }
  IntExpr at = 1;
  std::optional<std::vector<Digit>> digits = fillBetween(dim, owned, at, prover);
  const IntExpr padded = prover.multiply(std::ssize(parts), max(1, largestOf(parts)));
  const std::optional<IntExpr> top = digits ? prover.divide(padded, at) : std::nullopt;
  if (!top) {
    return DigitList::opaque();
  }
  digits->push_back({dim, at, *top, {}});
  for (Digit& d : *digits) {
    d.parts = parts;
  }
  return listOf(std::move(*digits), sumOf(parts), prover);
}

// Whether `digits`, which end below `above` at a place that no rank needs to count beyond, are all that an extent has: the blocks or
// cycles that its splits make, rounded up. Least significant first.
bool coverRoundedUp(const std::vector<Digit>& digits, const IntExpr& above, const IntExpr& extent,
                    const Prover& prover) {
  return std::ranges::any_of(digits, [&](const Digit& d) {
    const std::optional<IntExpr> parts = prover.divide(above, d.stride);
    return parts && (ceilDiv(extent, *parts) == d.stride || ceilDiv(extent, d.stride) == *parts);
  });
}

// Of a symbolic extent that the digits up to `above` are not proved to divide: the topmost is ragged.
DigitList roundedUp(int64_t dim, std::vector<Digit> digits, const IntExpr& above, const IntExpr& extent,
                    const Prover& prover) {
  if (above.isConst(0)) {
    return DigitList::opaque();
  }
  if (!coverRoundedUp(digits, above, extent, prover)) {
    digits.push_back({dim, above, ceilDiv(extent, above), {}});
  }
  return listOf(std::move(digits), extent, prover);
}

bool arePadded(const std::vector<Digit>& owned) {
  return std::ranges::any_of(owned, [](const Digit& d) { return !d.parts.empty(); });
}

}  // namespace

DigitList fillLocal(int64_t dim, const IntExpr& size, const std::vector<Digit>& owned, const Prover& prover) {
  const IntExpr extent = prover.canonical(size);
  if (owned.empty()) {
    return DigitList::whole(dim, extent);
  }
  if (arePadded(owned)) {
    return fillPadded(dim, owned, prover);
  }
  if (extent.isConst(0)) {
    return fillRagged(dim, 0, owned);
  }
  IntExpr at = 1;
  std::optional<std::vector<Digit>> digits = fillBetween(dim, owned, at, prover);
  if (!digits) {
    return DigitList::opaque();
  }
  if (const std::optional<IntExpr> top = prover.divide(extent, at)) {
    digits->push_back({dim, at, *top, {}});
    return listOf(std::move(*digits), Digit::kEven, prover);
  }
  return extent.isConst() && at.isConst() ? fillRagged(dim, extent.constValue(), owned)
                                          : roundedUp(dim, std::move(*digits), at, extent, prover);
}

DigitList fillRagged(int64_t dim, int64_t extent, const std::vector<Digit>& owned) {
  if (arePadded(owned)) {
    return fillPadded(dim, owned, {});
  }
  IntExpr at = 1;
  std::optional<std::vector<Digit>> digits = fillBetween(dim, owned, at, {});
  if (!digits || !at.isConst() || at.isConst(0)) {
    return DigitList::opaque();
  }
  const int64_t above = at.constValue();
  const int64_t top = std::max<int64_t>(1, divideUp(extent, above));
  digits->push_back({dim, at, top, {}});
  return listOf(std::move(*digits), top * above == extent ? Digit::kEven : extent, {});
}

}  // namespace meshfuse
