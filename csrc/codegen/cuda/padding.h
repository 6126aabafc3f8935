// What lies beyond the bounds. The language leaves it open, so a load may put there what a reduction ignores: the
// identity of its combiner. Then the reduction needs no predicate.
//
//   x = load X[m, n]; mx = reduce max x; e = exp(x - mx); s = reduce sum e
//     x is -inf there, and e is exp(-inf - mx) = 0. Where mx is -inf, inf or NaN, the elements of the row make the sum
//     what the padding makes it.
#pragma once

#include <map>
#include <optional>

#include "tile/tile.h"

namespace meshfuse::cuda {

class Padding {
 public:
  explicit Padding(const tile::Program& program);

  // The value of a load beyond the bounds of its axes; 0 where nobody cares.
  double ofLoad(tile::ValueId id) const;
  // Whether the positions that a reduction must leave out because of the bound of `axis` hold its identity anyway.
  bool isIdentity(tile::ValueId reduce, int axis) const;

 private:
  std::optional<double> of(tile::ValueId id) const;
  tile::ValueId source(tile::ValueId id) const;  // the load behind an elementwise value, as far as `of` follows it

  const tile::Program& p_;
  std::map<tile::ValueId, double> loads_;
};

}  // namespace meshfuse::cuda
