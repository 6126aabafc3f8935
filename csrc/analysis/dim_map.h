// Which dim of an operand each dim of a result reads, and how: the one table that the sharding relation, propagation, the
// id graph and the schedulers read. A new ExprKind adds its row here (dim_map.cpp) and nowhere else.
//
// Dims of the operand are those of producer->noReductions(); dims of the result are those of consumer->getRootDomain(). What
// reshape, permute, slice and pad do stands between the result's root and logical domains (Split, Merge, order, Resize), so
// here their dims are all Same.
//
//   how        position i of the result's dim reads ..                                   example
//   Same       position i                                                                pointwise, batch dims
//   Stretched  position 0 of a broadcast dim                                             add of [N, 1] and [N, M]
//   Window     position i - offset, where that is inside of the operand's dim            cat: operand k begins at offset
//   Reduced    position i, and the result's dim is a reduction (so all are combined)     sum, matmul's K
//   Whole      any position                                                              all-to-all among peers, the dim of a scan
//   Indexed    (of an operand's dim only) the position that another operand's data say   embedding's rows
//   None       nothing: of a result's dim, the operand does not vary along it (matmul's M of the second operand, a new
//              broadcast dim); of an operand's dim, it has extent 1 and is dropped (squeeze)
//
//   c = matmul(a [M, K], b [K, N]) : [M, N, r{K}]
//     of a:  M Same 0, N None, K Reduced 1        of b:  M None, N Same 1, K Reduced 0
//   c = embedding(index [S], weight [V, D]) : [S, D]
//     of index:  S Same 0, D None                 of weight:  S None, D Same 1; V is Indexed
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "digits/int_expr.h"

namespace meshfuse {

class Expr;
class Fusion;
class IterDomain;
class TensorView;

enum class DimRead : uint8_t { None, Same, Stretched, Window, Reduced, Whole, Indexed };
[[nodiscard]] std::string_view name(DimRead how);

struct DimLink {
  int producer = -1;  // position in producer->noReductions(); -1 for None
  DimRead how = DimRead::None;
  IntExpr offset;  // Window: the operand's dim covers [offset, offset + its extent) of the result's
};

struct OperandDims {
  std::vector<DimLink> ofConsumer;  // one a dim of consumer->getRootDomain()
  std::vector<DimRead> ofProducer;  // one a dim of producer->noReductions(): how it is read
};

// For operand number `operand` of expr (a scalar: all None) and its result number 0.
[[nodiscard]] OperandDims dimsRead(const Expr& expr, int operand);

// A pair of dims that dimsRead links.
struct IdLink {
  IterDomain* producer;
  IterDomain* consumer;
  DimRead how;
  IntExpr offset;
};
// Links of all tensor operands, in order of operands and of the result's dims.
[[nodiscard]] std::vector<IdLink> idLinks(const Expr& expr);
[[nodiscard]] std::vector<IdLink> idLinks(const Expr& expr, int operand);

}  // namespace meshfuse
