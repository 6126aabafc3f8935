// The largest difference between a correct run and the reference, element by element, and the comparison of results.
//
// The interpreter computes a bound e for each element v: every permitted way of computing the element gives a value in [v - e, v + e].
// The bound follows from the ops, the types and the lengths alone. u is half a unit in the last place of the type (2^-24 for
// Float), n the number of summed terms, k the error in ulps that an implementation of the op may have.
//
//   input, copy, window, index     e of the element taken
//   +, -                           e1 + e2
//   *                              |a|e2 + |b|e1 + e1 e2
//   f(x)                           the larger change of f at x - e and x + e
//   +, -, *, f(x)                  also (2 + 2k) u|v|: k is 0.5 for +, - and *, and depends on the function else; and a term for subnormal
//                                  results: max(k, 1) times the smallest subnormal number if k <= 2, else the smallest normal number (of
//                                  Double, for all other types of Float)
//   0 by x - x, 0 * x, 0 / x       neither of these two terms: nothing is rounded
//   cast to a shorter type         the larger change of the rounded value at x - e and x + e
//   sum of n terms, in any order   sum(e) + (n + 1) u sum(|v| + e), with 2u for Double, because the reference adds in Double too; the same for
//                                  products of a matmul; any, if some of the terms add up beyond the type's range, unless the whole sum surely
//                                  does
//   sum in p parts                 p + 1 more roundings r = (p + 1) u, with the u of the type that parts have: r / (1 - r) sum(|v| + e); the
//                                  range is then that of this type
//   matmul in Half                 (p + 1) / 2^25 more: parts below the normal numbers are rounded to multiples of 2^-24
//   product of n                   prod(|v| + e) - prod(|v|) + (n + 1) u prod(|v| + e), with 2u for Double; any, if some of the factors multiply
//                                  beyond the type's range. If some may multiply below the normal numbers: also (n + 1) times the smallest
//                                  normal number times the largest product of some factors, and any, if a factor is infinite
//   max, min                       the largest e
//   floor, eq, a cast to integer, ...  0 where the result is the same at both ends; else the element is *uncertain*: its bound is the jump
//   select by an uncertain Bool    the distance of both sides
//
// If more than 1% of a tensor's elements (and more than one element) are uncertain, the comparison fails and reports this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/fusion.h"
#include "tensor/argument.h"
#include "tensor/tensor.h"

namespace meshfuse {

struct BoundedTensor {
  Tensor value;
  Tensor error;           // Double, of value's sizes; infinity: every value is accepted
  int64_t uncertain = 0;  // elements within the bound of a discontinuity of the op that made the tensor
};

struct BoundOptions {
  // The number of parts into which a sum may be cut (the ranks of a partial sum). Each part is rounded to the declared type before the
  // parts are added.
  int64_t partials = 1;
};

// The outputs, as interpret gives them, with bounds.
[[nodiscard]] std::vector<BoundedTensor> interpretWithBounds(const Fusion& fusion, std::span<const Argument> inputs,
                                                             const BoundOptions& options = {});

// Nothing if `got` agrees; else the difference: type, sizes, or the first differing position with both values and the bound, and
// the number of differing elements. NaN equals NaN, +0 equals -0.
[[nodiscard]] std::optional<std::string> compare(const Tensor& got, const BoundedTensor& expected);

}  // namespace meshfuse
