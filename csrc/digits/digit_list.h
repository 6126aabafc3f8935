// DigitList: an index written as digits of dims, most significant first; the canonical form of what splits and merges made.
//
//   whole(0, 24)                         [d0/1%24]
//   split(whole(0, 24), 4)               outer [d0/4%6]    inner [d0/1%4]
//   merge([d0/4%6], [d0/1%4])            [d0/1%24]         neighbours fuse
//   split(merge([d0/1%2], [d1/1%6]), 3)  outer [d0/1%2, d1/3%2]   inner [d1/1%3]
//
// Two lists with equal digits select the same value for every index. A list is opaque where a split cuts digits that do not
// nest, or divisibility is not proven: it equals nothing, not even itself.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "digits/digit.h"
#include "digits/prover.h"

namespace meshfuse {

class DigitList {
 public:
  DigitList() = default;                                                     // no digits: the constant 0, of size 1
  explicit DigitList(std::vector<Digit> digits, const Prover& prover = {});  // brought to normal form
  static DigitList whole(int dim, const IntExpr& extent);
  static DigitList opaque();

  bool isOpaque() const { return opaque_; }
  std::span<const Digit> digits() const { return digits_; }
  bool empty() const { return digits_.empty(); }
  // Number of values: the product of the sizes. InternalError if opaque.
  IntExpr size(const Prover& prover = {}) const;
  // Number of values that exist: the bound where the first digit is ragged.
  IntExpr extent(const Prover& prover = {}) const;
  bool isRagged() const { return !digits_.empty() && digits_.front().isRagged(); }
  // Whether these are digits of a dim in parts of given sizes.
  bool hasParts() const { return !digits_.empty() && !digits_.front().parts.empty(); }
  // Values a rank holds: the product of the sizes of local digits. If ragged: not more than that.
  IntExpr localSize(const Prover& prover = {}) const;
  // All digits with this owner. `axis` digits get their `below` from the digits to their right.
  DigitList ownedBy(const Owner& owner, const Prover& prover = {}) const;
  bool hasOwned() const;
  // Whether the values that a rank holds are one range: no digit above an owned one is local.
  bool isRange() const;

  std::string toString() const;  // [d0/4%6, d0/1%4], opaque

 private:
  std::vector<Digit> digits_;
  bool opaque_ = false;
};

// The index outer * inner.size() + inner.
[[nodiscard]] DigitList merge(const DigitList& outer, const DigitList& inner, const Prover& prover = {});
// index / innerSize and index mod innerSize; both opaque if the cut falls into digits that it does not provably divide.
[[nodiscard]] std::pair<DigitList, DigitList> split(const DigitList& in, const IntExpr& innerSize,
                                                    const Prover& prover = {});
// The same of the topmost digit of a dim of extent `bound`, where the sizes are not known to divide: the outer list is ragged.
[[nodiscard]] std::pair<DigitList, DigitList> splitRagged(const Digit& top, const IntExpr& bound,
                                                          const IntExpr& outerSize, const IntExpr& innerSize);
// True only if both select the same value, with the same owners, at every index.
[[nodiscard]] bool provenEqual(const DigitList& a, const DigitList& b, const Prover& prover = {});

// A domain in terms of another: list k is the index of dim k as digits of the dims of the base.
//
// Carries a digit between the two: `toBase` takes a piece of a dim of the domain to pieces of base dims, `fromBase` the other
// way. Both may cut the digit in several; most significant first. Opaque where the pieces do not nest.
[[nodiscard]] DigitList toBase(const std::vector<DigitList>& domain, const Digit& digit, const Prover& prover = {});
[[nodiscard]] DigitList fromBase(const std::vector<DigitList>& domain, const Digit& digit, const Prover& prover = {});

// The digits of one dim of the given extent: `owned` (any order) are owned, all others local. Where the sizes are not proved
// to divide the extent, the topmost digit is rounded up; where they are of a dim in parts of given sizes, all others
// are too, and the extent is that of the parts. Opaque where they overlap, do not nest, or are of other parts.
[[nodiscard]] DigitList fillLocal(int dim, const IntExpr& extent, const std::vector<Digit>& owned,
                                  const Prover& prover = {});
// The same of constants; a dim in parts of given sizes is filled up to the padded one.
[[nodiscard]] DigitList fillRagged(int dim, int64_t extent, const std::vector<Digit>& owned);

}  // namespace meshfuse
