// DigitList: an index written as digits of dims, most significant first; the canonical form of a chain of splits and merges.
//
//   whole(0, 24)                         [d0/1%24]
//   split(whole(0, 24), 4)               outer [d0/4%6]    inner [d0/1%4]
//   merge([d0/4%6], [d0/1%4])            [d0/1%24]         neighbours fuse
//   split(merge([d0/1%2], [d1/1%6]), 3)  outer [d0/1%2, d1/3%2]   inner [d1/1%3]
//
// Two lists with equal digits select the same value for every index. A list is opaque if a split cuts digits that do not
// nest, or if divisibility is not proven. An opaque list equals no list, not even itself.
#pragma once

#include <cstdint>
#include <memory>
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
  static DigitList whole(int64_t dim, const IntExpr& extent);
  static DigitList opaque();

  bool isOpaque() const { return opaque_; }
  std::span<const Digit> digits() const {
    return digits_ ? std::span<const Digit>(*digits_) : std::span<const Digit>();
  }
  bool empty() const { return digits_ == nullptr; }
  // Number of values: the product of the sizes. InternalError if opaque.
  IntExpr size(const Prover& prover = {}) const;
  // Number of values that exist: the bound if the first digit is ragged, else size().
  IntExpr extent(const Prover& prover = {}) const;
  bool isRagged() const { return !empty() && digits_->front().isRagged(); }
  // Whether these are digits of a dim in parts of given sizes.
  bool hasParts() const { return !empty() && !digits_->front().parts.empty(); }
  // Values a rank holds: the product of the sizes of local digits. An upper bound if ragged.
  IntExpr localSize(const Prover& prover = {}) const;
  // The same list with every digit owned by `owner`. The last digit gets owner.below. Every other digit gets owner.below times the product
  // of the sizes of the digits to its right.
  DigitList ownedBy(const Owner& owner, const Prover& prover = {}) const;
  bool hasOwned() const;
  // Whether the values that a rank holds are one range: no digit above an owned one is local.
  bool isRange() const;

  std::string toString() const;  // [d0/4%6, d0/1%4], opaque

 private:
  IntExpr sizeOf(bool (*counts)(const Digit&), const Prover& prover) const;  // the product of the counted digits

  std::shared_ptr<const std::vector<Digit>> digits_;  // null without digits; copies share them
  bool opaque_ = false;
};

// The index outer * inner.size() + inner.
[[nodiscard]] DigitList merge(const DigitList& outer, const DigitList& inner, const Prover& prover = {});
// index / innerSize and index mod innerSize; both are opaque if the cut falls inside a digit and is not proved to divide it.
[[nodiscard]] std::pair<DigitList, DigitList> split(const DigitList& in, const IntExpr& innerSize,
                                                    const Prover& prover = {});
// Splits the topmost digit of a dim of extent `bound` by sizes that are not known to divide it: the outer list is ragged.
[[nodiscard]] std::pair<DigitList, DigitList> splitRagged(const Digit& top, const IntExpr& bound,
                                                          const IntExpr& outerSize, const IntExpr& innerSize);
// True only if both select the same value, with the same owners, at every index.
[[nodiscard]] bool provenEqual(const DigitList& a, const DigitList& b, const Prover& prover = {});

// A domain in terms of another: list k is the index of dim k as digits of the dims of the base.
//
// `toBase` maps a digit of a domain dim to digits of base dims, `fromBase` a digit of a base dim to digits of domain dims. Both may cut
// the digit into several, most significant first. The result is opaque if the digits do not nest.
[[nodiscard]] DigitList toBase(const std::vector<DigitList>& domain, const Digit& digit, const Prover& prover = {});
[[nodiscard]] DigitList fromBase(const std::vector<DigitList>& domain, const Digit& digit, const Prover& prover = {});

// Completes the digits `owned` (in any order) of one dim of the given extent with local digits. If the sizes are not proved to
// divide the extent, the topmost digit is rounded up. If the owned digits have parts of given sizes, all digits have them, and the
// extent is the sum of the parts. Opaque if the owned digits overlap, do not nest, or have different parts.
[[nodiscard]] DigitList fillLocal(int64_t dim, const IntExpr& extent, const std::vector<Digit>& owned,
                                  const Prover& prover = {});
// The same for constant sizes; with parts of given sizes the digits fill the padded dim.
[[nodiscard]] DigitList fillRagged(int64_t dim, int64_t extent, const std::vector<Digit>& owned);

}  // namespace meshfuse
