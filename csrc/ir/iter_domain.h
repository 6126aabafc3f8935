// IterDomain: one dim of a tensor, or a dim that splits, merges and resizes derive from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "digits/int_expr.h"
#include "multidevice/mesh/device_mesh.h"
#include "tensor/reduce_op.h"

namespace meshfuse {

class IterDomain;
class TensorView;

enum class IterType : uint8_t {
  Iteration,
  Reduction,  // consumed by the op that defines the tensor; not stored
  Broadcast,  // extent 1, stretches to the extent of the dims that it is combined with
  // The outer part of a reduced dim, which is stored: each element is one rank's contribution to the reduction. Device axes own it, and
  // a reduction by IterDomain::combine() over it gives the complete result. At most one dim of a tensor; parts of it are Iteration.
  Partial,
  Symbolic,  // made by a reshape, slice, pad or expand; if its size is 1, concretize makes it a broadcast dim
};

// How text marks a dim of this type: "" for Iteration, "r", "b", "p", "s".
[[nodiscard]] std::string_view markOf(IterType type);

enum class IdExprKind : uint8_t {
  Split,   // in -> (outer, inner): i = outer * inner.extent + inner
  Merge,   // (outer, inner) -> out: i = outer * inner.extent + inner
  Resize,  // in -> out: position j of `out` is position j - left of `in`; left or right may be negative
  // in -> (component, inner): parts of given sizes that follow each other: i = (sizes before the component) + inner, where inner is
  // less than the size of the component; its extent is the largest of them.
  Partition,
};

// A transform between IterDomains of one TensorView.
struct IdExpr {
  IdExprKind kind;
  std::vector<IterDomain*> in;
  std::vector<IterDomain*> out;
  IntExpr factor;                   // Split: the given factor
  bool innerSplit = true;           // Split: factor is the inner extent (else the outer)
  IntExpr left, right;              // Resize
  std::vector<IntExpr> sizes = {};  // Partition
};

class IterDomain {
 public:
  int64_t id() const { return id_; }
  const IntExpr& extent() const { return extent_; }
  IterType iterType() const { return iterType_; }
  bool isReduction() const { return iterType_ == IterType::Reduction; }
  bool isBroadcast() const { return iterType_ == IterType::Broadcast; }
  bool isPartial() const { return iterType_ == IterType::Partial; }
  bool isSymbolic() const { return iterType_ == IterType::Symbolic; }
  // Of a Partial dim: the op that combines the contributions.
  ReduceOp combine() const { return combine_; }
  ParallelType parallelType() const { return parallelType_; }
  bool isDeviceDim() const { return parallelType_.isDevice(); }
  // Binds this loop dim to a device axis or to Stream. UserError if a split or merge has replaced it.
  void parallelize(ParallelType type);
  // The transform that made this dim; nullptr if none did.
  IdExpr* definition() const { return definition_; }
  std::string toString() const;  // 16, r{16}, b{1}, p{2}, p{2, max}, s{i0}, DIDx{2}, rDIDx{2}, pDIDx{2}
  // The same without the binding, and with the text `extent` in place of the extent.
  std::string textOf(std::string_view extent) const;

 private:
  friend class Fusion;
  friend class FusionCloner;
  friend class FusionParser;
  friend class TensorView;
  int64_t id_ = 0;
  IntExpr extent_;
  IterType iterType_ = IterType::Iteration;
  ReduceOp combine_ = ReduceOp::Sum;
  ParallelType parallelType_;
  bool replaced_ = false;  // input of a transform
  IdExpr* definition_ = nullptr;
};

// The transforms that derive `to` from `from`, in the order of their results.
[[nodiscard]] std::vector<const IdExpr*> transformsBetween(const std::vector<IterDomain*>& from,
                                                           const std::vector<IterDomain*>& to);

}  // namespace meshfuse
