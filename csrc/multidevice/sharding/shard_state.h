// ShardState: the sharding of a tensor: for every dim its digits with their owners, and the axes over which it is a partial sum.
//
//   mesh {x: 2}, T[8, 6], dim 0 outer-split by 2 and bound to x:   dims [d0/4%2:x, d0/1%4] [d1/1%6]
//
// Plain data. A tensor's state is read from its loop domain and written back as canonical splits; reading it again gives the same
// state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "digits/digit_list.h"
#include "multidevice/mesh/device_mesh.h"

namespace meshfuse {

class TensorView;
class IterDomain;

struct ShardState {
  DeviceMesh mesh;               // empty: no placement
  std::vector<DigitList> dims;   // stored dims without the partial one; digits of list k are of dim k
  std::vector<int64_t> partial;  // axes, ascending

  static ShardState replicated(const DeviceMesh& mesh, const std::vector<IntExpr>& shape);
  bool owns(int64_t axis) const;
  bool isSharded() const;                      // some digit is owned or may be owned, or the tensor is partial
  std::vector<int64_t> constantShape() const;  // extents of the dims; InternalError while one is symbolic
  bool hasOpaqueDim() const;
  bool isConstant() const;               // on known devices; extents and digits are constants, no dim is opaque
  std::string toString() const;          // S0(x) R on {x: 2}
  std::string dimText(int64_t k) const;  // of one dim: S0(x), R; docs/sharding.md explains all forms
};

[[nodiscard]] bool provenEqual(const ShardState& a, const ShardState& b, const Prover& prover = {});
[[nodiscard]] bool owns(const DigitList& dim, int64_t axis);

// One loop dim bound to a device axis: the index it selects, as digits of the dims of a base domain.
struct BoundLoop {
  int64_t axis;
  DigitList digits;  // owned by the axis
  IntExpr extent;
  IterDomain* id;
};

// The logical dims of `tv` as digits of its root dims, following splits, merges and width-preserving resizes. A reshape
// whose splits and merges are not known yet is followed as far as its sizes determine them. A dim that does not come from the root is opaque.
[[nodiscard]] std::vector<DigitList> logicalOverRoot(const TensorView* tv, const Prover& prover = {});
// The device-bound loop dims of `tv` over `base`, its root or its logical domain; axes of size 1 are left out.
[[nodiscard]] std::vector<BoundLoop> boundLoops(const TensorView* tv, const std::vector<IterDomain*>& base,
                                                const Prover& prover = {});

// The stored dims for which a state has digits: all except the Partial dim.
[[nodiscard]] std::vector<IterDomain*> stateDims(const TensorView* tv);

// The state of a tensor. A dim whose owned digits do not nest, or that an opaque index owns, is opaque in the result.
[[nodiscard]] ShardState shardState(const TensorView* tv, const Prover& prover = {});
// Rewrites mesh and loop domain of `tv` to the state: canonical splits, bound. The state has no partial axes unless `tv` has a
// partial dim, whose extent is the product of their sizes. InternalError on an opaque dim.
void setShardState(TensorView* tv, const ShardState& state, const Prover& prover = {});

// The global shape of a tensor, given the shape of the part that a rank holds. The extent of a dim that axes own is that of
// `tv` if all its symbols are known. Otherwise parts are assumed to be even: the local extent times the sizes of the axes, and `assumed`
// lists the dim.
[[nodiscard]] std::vector<int64_t> globalShape(
    const TensorView* tv, std::span<const int64_t> local,
    const std::function<std::optional<int64_t>(std::string_view)>& known = {}, std::vector<int64_t>* assumed = nullptr);

}  // namespace meshfuse
