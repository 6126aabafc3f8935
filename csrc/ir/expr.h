// Expr: one op of a Fusion. The kind says which attributes and which mapping of dims hold; op_rule.h has a row for each.
//
// Mapping of dims between an operand p and the result c, unless the row says otherwise: the k-th of p.noReductions() is the
// k-th of c.getRootDomain().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "digits/int_expr.h"
#include "ir/part.h"
#include "ir/point_op.h"
#include "multidevice/mesh/comm_step.h"
#include "tensor/dtype.h"
#include "tensor/reduce_op.h"

namespace meshfuse {

class Fusion;
class Val;
class TensorView;

enum class ExprKind : uint8_t {
  Set,         // c = p
  SegmentSet,  // c = p, and a kernel boundary
  Point,       // c = op(operands); scalars and broadcast dims stretch
  Cast,        // c = p in c's type
  BitCast,     // c = the bits of p in c's type, of the same size
  Broadcast,   // flags[k]: root dim k of c is new (broadcast); the others map in order
  Squeeze,     // flags[k]: dim k of p (extent 1) is dropped
  Expand,      // dim k of c is dim k of p, or stretches p's broadcast dim to c's extent
  Permute,     // order[new] = old: c's logical dim k is c's root dim order[k]; root maps to p in order
  Reshape,     // c's logical dims from its root dims by splits and merges; symbolic until concretized
  Slice,       // starts, stops, steps: one for each dim; c[j] = p[start + j * step]
  Pad,         // starts: left widths, stops: right widths, one for each dim, negative cuts; operand 1: fill scalar
  Cat,         // dim: operands one after the other along dim; the other dims map in order
  Reduce,      // reduce over c's reduction dims; root == logical
  Matmul,      // [.., M, K] x [.., K, N] -> [.., M, N, r{K}] batched and broadcast; 1-D operands as in PyTorch
  Linear,      // x [.., K], w [N, K] (or [K]), optional bias [N] -> [.., N, r{K}]
  Full,        // every element is operand 0 (a scalar)
  Iota,  // 1-D: c[i] = operand 0 (start) + (starts[0] + i) * operand 1 (step); starts[0]: 0, or where a rank's part begins
  Eye,            // 2-D: 1 where row + starts[0] == column + starts[1]
  Random,         // operands 0 (seed), 1 (offset): see RandomKind; starts, stops: per dim the global offset and extent
  TakeAlongAxis,  // c[.., j, ..] = p[.., index[.., j, ..], ..] along dim; operand 1: index, broadcast against p outside dim
  Gather,         // torch.gather: as TakeAlongAxis, index may be smaller than p in the other dims
  IndexSelect,  // c[.., j, ..] = p[.., index[j], ..] along dim; operand 1: index, 1-D
  Embedding,  // c[i.., :] = weight[index[i..], :]; operand 0: index, 1: weight [V, D]; starts[0]: first row of a local
              // shard, rows outside give 0 if flags[0]
  Scan,       // c[.., j, ..] = reduce of p[.., 0..j, ..] along dim
  ArgSort,  // c[.., j, ..] = the position along dim of p's j-th smallest element (flags[0]: largest); NaN is the largest, equal elements
            // keep their order; c may have only the first elements along dim
  Scatter,  // c = p, but c[.., index[.., j, ..], ..] = src[.., j, ..] along dim; if several j write one element, the last counts.
            // Operands p, index, src; index, src: p's extents outside dim; starts, flags as of IndexPutAccumulate
  IndexPutAccumulate,  // c = p; value[i.., ..] is added to row index[i..], in the order of i, rounded once; operands: p [V, ..], index [..],
                       // value [.., ..]; starts[0]: first row of a local shard; rows outside are skipped if flags[0]
  Redistribute,  // c = p in c's sharding. After decompose-reshardings only the edges of Redistributes and of ops with haloSteps may need
  // communication. If c has a reduction dim, it is root dim `dim`: p's device-owned dim there (a partial sum) is combined by
  // reduce
  Communicate,  // one collective on local tensors: see CommAttributes
};

enum class RandomKind : uint8_t { Uniform, Normal };  // [0, 1); mean 0, deviation 1

// A collective among the ranks along `axes` of mesh number `mesh` of the fusion, in row-major order of `axes`.
//
// If the collective's operand or result has a block for each rank (CollectiveTraits), its first dim counts the blocks.
//
// If `sends` or `receives` is set, ranks hold parts of different sizes. The expr then belongs to the program of one rank and has the
// shapes of that rank; the blocks say which elements go to which rank.
struct CommAttributes {
  Collective kind = Collective::AllGather;
  int64_t mesh = 0;
  std::vector<int64_t> axes;
  ReduceOp reduce = ReduceOp::Sum;
  // Transfer as a permutation: for each device of the mesh (row-major) the position of the device that sends its whole operand to it.
  std::vector<int64_t> sources;
  IntExpr root = 0;  // Broadcast: position in the team, may depend on run-time integers
  // By position in the team, or by `to` and `from`: the block of the operand that this rank sends to that rank, and the block of the result
  // that it receives from that rank.
  std::vector<Part> sends;
  std::vector<Part> receives;
  // Transfer of blocks: the ranks of `sends` and `receives`, ascending; this rank itself if it keeps a block.
  std::vector<int64_t> to;
  std::vector<int64_t> from;
  // Position among all communications of the program. In the program of a rank, the numbers of communications without this rank are
  // missing.
  int64_t number = 0;
  // True for a collective of a whole team whose blocks differ in size.
  bool isUneven() const { return kind != Collective::Transfer && !(sends.empty() && receives.empty()); }
  BlockForm form() const {
    return !sources.empty() ? BlockForm::Permutation : isUneven() ? BlockForm::Counted : BlockForm::Equal;
  }
  friend bool operator==(const CommAttributes&, const CommAttributes&) = default;
};

// Halo exchange of one operand of a slice, a pad, a concatenation, or an index_select of one row.
struct HaloStep {
  Collective kind = Collective::Local;  // Local: each rank holds what it needs; Transfer, Broadcast
  std::vector<std::string> axes;        // along which ranks communicate; none between two meshes
  std::optional<int64_t> shared;        // steps with this number receive in one transfer
  friend bool operator==(const HaloStep&, const HaloStep&) = default;
};

// The attributes of all kinds. The OpRule of a kind names the attributes that the kind reads; all other attributes keep their defaults.
struct ExprAttributes {
  PointOp point = PointOp::Add;
  ReduceOp reduce = ReduceOp::Sum;
  RandomKind random = RandomKind::Uniform;
  int64_t dim = 0;
  int64_t ordinal = 0;  // Random: number at definition; clones keep it
  std::vector<bool> flags;
  std::vector<int64_t> order;
  std::vector<IntExpr> starts;
  std::vector<IntExpr> stops;
  std::vector<IntExpr> steps;
  CommAttributes comm;
  std::optional<std::vector<CommStep>> plan;  // Redistribute: once planned
  // Slice, Pad, Cat, IndexSelect with a halo exchange: by tensor operand; empty until planned
  std::optional<std::vector<HaloStep>> haloSteps;
  int64_t pack = 0;  // Redistribute: redistributions of one number share a collective; 0: not packed
  // For errors: the builder that the user called, a literal; empty: unknown. Not in the text.
  std::string_view calledAs = {};

  // Steps of the plan of a Redistribute or of a halo exchange that communicate.
  int64_t communications() const;
};

class Expr {
 public:
  Fusion& fusion() const { return *fusion_; }
  int64_t id() const { return id_; }
  ExprKind kind() const { return kind_; }
  const std::vector<Val*>& inputs() const { return inputs_; }
  const std::vector<Val*>& outputs() const { return outputs_; }
  Val* input(int64_t k) const { return inputs_.at(k); }
  Val* output(int64_t k = 0) const { return outputs_.at(k); }
  const ExprAttributes& attributes() const { return attributes_; }
  // Operands and results that are tensors, in order.
  std::vector<TensorView*> tensorInputs() const;
  // Operands are numbered from 0. tensorPositions: the numbers of the tensors. positionsOf: the numbers at which `val` is read.
  std::vector<int64_t> tensorPositions() const;
  std::vector<int64_t> positionsOf(const Val* val) const;
  TensorView* tensorOutput(int64_t k = 0) const;
  std::string_view opName() const;      // the point op's name, or the kind's
  std::string_view calledName() const;  // for errors: the builder that the user called, or opName()

 private:
  friend class Fusion;
  friend class FusionCloner;
  Fusion* fusion_ = nullptr;
  int64_t id_ = 0;
  ExprKind kind_ = ExprKind::Set;
  std::vector<Val*> inputs_;
  std::vector<Val*> outputs_;
  ExprAttributes attributes_;
};

}  // namespace meshfuse
