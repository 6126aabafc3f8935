// Values of loads beyond the bounds. The language leaves them unspecified, so a load may give the identity of the reduction that
// consumes it. Then the reduction needs no predicate.
//
//   x = load X[m, n]; mx = reduce max x; e = exp(x - mx); s = reduce sum e
//     x is -inf there, and e is exp(-inf - mx) = 0. If mx is -inf, inf or NaN, the elements of the row alone make the sum
//     NaN, so the padding does not change it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "tile/tile.h"

namespace meshfuse::cuda {

class Padding {
 public:
  explicit Padding(const tile::Program& program);

  // The value of a load beyond the bounds of its axes; 0 if no reduction needs another.
  double ofLoad(tile::ValueId id) const;
  // Whether all positions beyond the bound of `axis` hold the identity of the reduction, so that it needs no predicate there.
  bool isIdentity(tile::ValueId reduce, int64_t axis) const;

 private:
  std::optional<double> of(tile::ValueId id) const;
  // The load that an elementwise value is computed from, as far as `of` follows it.
  tile::ValueId source(tile::ValueId id) const;

  const tile::Program& p_;
  std::map<tile::ValueId, double> loads_;
};

}  // namespace meshfuse::cuda
