// TensorView: a tensor of a Fusion. Its domains define its shape, its memory order and its sharding.
//
//   root        the dims before a reshape, permute, slice or pad; otherwise equal to logical
//   logical     the shape; includes the reduction dims of the defining op, which are marked and not part of the stored shape
//   allocation  order and contiguity in memory (default: logical order without reductions, contiguity as given)
//   loop        logical transformed by splits and merges; a loop dim bound to a device axis shards the tensor
//
// Extents are global for every sharding.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/iter_domain.h"
#include "ir/val.h"

namespace meshfuse {

// One user-level transform of the loop domain, by position; replaying them on the same logical domain gives the same loops.
struct LoopTransform {
  enum class Kind : uint8_t { Split, Partition, Merge, Reorder, Parallelize } kind;
  int64_t axis = 0;
  IntExpr factor;                   // Split
  bool innerSplit = true;           // Split
  std::vector<int64_t> order;       // Reorder: order[new] = old
  ParallelType type;                // Parallelize
  std::vector<IntExpr> sizes = {};  // Partition

  friend bool operator==(const LoopTransform&, const LoopTransform&) = default;
};

class TensorView : public Val {
 public:
  // -- shape ----------------------------------------------------------------------------------------------------------
  const std::vector<IterDomain*>& getRootDomain() const { return root_.empty() && !hasRoot_ ? logical_ : root_; }
  const std::vector<IterDomain*>& getLogicalDomain() const { return logical_; }
  const std::vector<IterDomain*>& getLoopDomain() const { return loop_; }
  std::vector<IterDomain*> getAllocationDomain() const;
  // Its dims as positions in the stored shape, outermost first; row-major: 0, 1, ...
  std::vector<int64_t> memoryOrder() const;
  bool hasRoot() const { return hasRoot_; }
  // Logical dims without reductions: the stored shape.
  std::vector<IterDomain*> noReductions() const;
  std::vector<IntExpr> shape() const;                  // extents of noReductions()
  std::vector<int64_t> constantShape() const;          // the same once sizes are bound; else InternalError
  int64_t numel() const;                               // elements once sizes are bound; else InternalError
  int64_t nDims() const { return std::ssize(loop_); }  // of the loop domain
  bool hasReduction() const;
  bool hasBroadcast() const;
  // The logical dim that counts contributions to a reduction, one for each rank; nullptr if the tensor is not a partial sum.
  IterDomain* partialDomain() const;
  // Its position in noReductions(), or -1.
  int64_t partialDim() const;
  bool isPartial() const { return partialDomain() != nullptr; }

  // -- loop transforms; axis counts from the end when negative. UserError on a bad axis or factor. Return this. ---------
  TensorView* split(int64_t axis, const IntExpr& factor, bool innerSplit = true);
  TensorView* inner_split(int64_t axis, const IntExpr& factor) { return split(axis, factor, true); }
  TensorView* outer_split(int64_t axis, const IntExpr& factor) { return split(axis, factor, false); }
  // Splits a dim into parts of given sizes: the outer loop counts the parts, the inner loop is as long as the longest part. If
  // `w->partition(0, {2, 3, 4, 5})` of a dim of 14 is bound to an axis of 4, the ranks hold 2, 3, 4 and 5 rows. Sizes may be Int inputs.
  TensorView* partition(int64_t axis, const std::vector<IntExpr>& sizes);
  // The sizes are the elements of an Int input with one dim, which is whole on every rank.
  TensorView* partition(int64_t axis, const TensorView* sizes);
  // Element k of such an input at the time of the call.
  IntExpr element(int64_t k) const;
  TensorView* merge(int64_t axis) { return merge(axis, axis + 1); }
  TensorView* merge(int64_t outer, int64_t inner);
  TensorView* flatten(int64_t from = 0, int64_t to = -1);
  TensorView* reorder(const std::vector<std::pair<int64_t, int64_t>>& oldToNew);
  IterDomain* axis(int64_t position) const;
  // axis(i)->parallelize(type) is the same.
  TensorView* parallelize(int64_t axis, ParallelType type);
  // Removes all loop transforms and bindings: the loop domain is the logical domain again.
  void resetLoop();
  // The transforms that made the loop domain, bindings last, in order of axis.
  std::vector<LoopTransform> loopTransforms() const;
  void applyLoopTransforms(const std::vector<LoopTransform>& transforms);

  // -- placement --------------------------------------------------------------------------------------------------------
  void setDeviceMesh(const DeviceMesh& mesh) { mesh_ = mesh; }
  const DeviceMesh& getDeviceMesh() const { return mesh_; }
  bool hasDeviceMesh() const { return !mesh_.empty(); }
  // The pass propagate-shardings sets this flag on the tensors that have a mesh when the pass begins; before that it is false, except for
  // tensors that a text marks `pinned`. Passes do not change the sharding of a tensor with this flag.
  bool isUserSharded() const { return userSharded_; }
  void setUserSharded(bool value) { userSharded_ = value; }

  // -- memory -----------------------------------------------------------------------------------------------------------
  // `ids`: a permutation of noReductions(), outermost in memory first; `contiguity`: one flag for each of these dims (true: its stride is
  // the product of the extents of the inner dims). UserError otherwise. The effect depends on the tensor:
  //   an output         has this order in memory, without gaps; if it is sharded, so has the part of each rank. A tensor that the caller
  //                     supplies for it must have this order: UserError otherwise. A kernel stores in this order; the result of a library or of a
  //                     collective is copied into it
  //   an aliased output has the order of the input, which must be this order: UserError otherwise
  //   another result    has this order if it reaches memory, a kernel computes it and its readers accept the order; else row-major
  //   an input          has the order of the argument; the setting has no effect
  // `ids` may also be the loop domain, in any order in which the loops of a dim stay together, the outer one first. Loops that are bound to
  // mesh axes and loops of reductions take no memory, so they may stand anywhere. UserError for merged loops.
  void setAllocationDomain(std::vector<IterDomain*> ids, std::vector<bool> contiguity);
  void setAllocationDomain(const std::vector<IterDomain*>& ids, bool contiguity) {  // one flag for all
    setAllocationDomain(ids, std::vector<bool>(ids.size(), contiguity));
  }
  void setContiguity(std::vector<bool> contiguity);
  // Copies order and contiguity from `from`, which has the same number of stored dims.
  void copyAllocation(const TensorView& from);
  const std::vector<bool>& contiguity() const { return contiguity_; }
  bool hasAllocation() const { return !allocation_.empty(); }

  std::string toString() const;  // T3[B, S, DIDx{d}, E/d]: the loop domain

 private:
  friend class Fusion;
  friend class FusionCloner;
  friend class FusionParser;
  int64_t wrapAxis(int64_t axis, const char* what) const;
  void dimsOfLoops(std::vector<IterDomain*>& ids, std::vector<bool>& contiguity) const;
  std::vector<IterDomain*> root_;
  bool hasRoot_ = false;
  std::vector<IterDomain*> logical_;
  std::vector<IterDomain*> loop_;
  std::vector<IterDomain*> allocation_;
  std::vector<bool> contiguity_;
  std::vector<LoopTransform> transforms_;  // without bindings, which the loop dims hold
  DeviceMesh mesh_;
  bool userSharded_ = false;
};

// All dims of a tensor: the dims of its domains and the dims in between, in id order.
[[nodiscard]] std::vector<IterDomain*> allIds(const TensorView& tensor);

}  // namespace meshfuse
