// OpRule: how an op maps the dims of its operands to the dims of its result, one row for each kind. Passes, the sharding relation,
// localize, the schedulers and segmentation read the row. A new kind adds a row in op_rule.cpp, and code only where its elements are
// computed or checked.
//
// dimsRead says which dim of an operand each dim of the result reads, and how. Dims of the operand are producer->noReductions(), dims of
// the result are consumer->getRootDomain(). Reshape, permute, slice and pad transform the result's root domain to its logical domain
// (Split, Merge, order, Resize), so here their dims are all Same.
//
//   how        position i of the result's dim reads ..                                   example
//   Same       position i                                                                pointwise, batch dims
//   Stretched  position 0 of a broadcast dim                                             add of [N, 1] and [N, M]
//   Window     position i - offset, where that is inside of the operand's dim            cat: operand k begins at offset
//   Reduced    position i, and the result's dim is a reduction (so all are combined)     sum, matmul's K
//   Whole      any position                                                              the block dim of an all-to-all, the dim of a scan
//   Indexed    the position that an element of another operand gives; the result has     embedding's rows
//              such a dim only if it is a partial sum: the reduction dim over the rows
//              of the table
//   None       nothing: of a result's dim, the operand does not vary along it (matmul's M of the second operand, a new
//              broadcast dim); of an operand's dim, it has extent 1 and is dropped (squeeze)
//
//   c = matmul(a [M, K], b [K, N]) : [M, N, r{K}]
//     of a:  M Same 0, N None, K Reduced 1        of b:  M None, N Same 1, K Reduced 0
//   c = embedding(index [S], weight [V, D]) : [S, D]
//     of index:  S Same 0, D None                 of weight:  S None, D Same 1; V is Indexed
//   c = index_put_accumulate(p [V, D], index [N], value [N, D]) : [V, D]
//     of p:  V Same 0, D Same 1                   of value:  V None, D Same 1; N is Whole, as of index
//
// factors describes all operands together: a factor is a class of dims that correspond. If a mesh axis cuts a factor, it cuts every
// dim of the factor.
//
//   c = matmul(a, b):      M {a 0, c 0} Parallel,  N {b 1, c 1} Parallel,  K {a 1, b 0, c 2} Summed
//   c = scan(a, dim=1):    {a 0, c 0} Parallel,  {a 1, c 1} Whole
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "digits/int_expr.h"
#include "ir/expr.h"

namespace meshfuse {

enum class Attribute : uint8_t { Reduce, Random, Dim, Ordinal, Flags, Order, Starts, Stops, Steps, Plan, Halo, Pack };

// The classes of ops that passes distinguish; localize has one local form for each.
enum class OpForm : uint8_t {
  Pointwise,    // each element from the operands' elements at its position
  Broadcast,    // adds dims of one element
  Squeeze,      // drops dims of one element
  Expand,       // stretches dims of one element
  Permute,      // the same dims in another order
  Reshape,      // the same elements in other dims
  Window,       // a part of each dim, or each dim continued
  Concatenate,  // operands one after the other along a dim
  Reduce,       // dims are combined
  Contract,     // products summed along a dim of both operands
  Fill,         // one value
  Positions,    // each element follows from its position
  Index,        // elements of a table at positions given by index data
  Line,         // along one dim each element may depend on all elements
  Put,          // a table with elements written or added at positions given by index data
  Ranks,        // communication between ranks
};

// The part of the system that runs a local op.
enum class Executor : uint8_t { Kernel, Library, Alias, Ranks };

// Whether repeating the op is cheaper than moving or storing its result.
enum class Repeat : uint8_t {
  No,
  Rank,    // on more ranks, if fewer bytes move
  Reader,  // and for each reader: the op costs less than a round trip through memory
};

// Whether the result can lie in its operand's memory.
enum class View : uint8_t {
  No,
  InOrder,     // with the elements in the order of the operand
  Reordered,   // with strides of the operand in another order
  Strided,     // with strides of 0, or of several elements
  Contiguous,  // in order, if the dims that it merges are contiguous
  SameType,    // in order, if the types are equal
};

// The operands in which the result is linear if all others are fixed: f(a + b) = f(a) + f(b), except for rounding.
enum class Linearity : uint8_t {
  No,
  Together,     // all tensor operands at once, except an index
  ByTerm,       // as Together, and of partial sums contribution by contribution
  Product,      // the first or the second, either with a third that is added
  IfSum,        // all at once, if the op sums
  ByTermIfSum,  // as ByTerm, if the op sums
  ByPoint,      // depends on the point op; if linear in all tensor operands, as ByTerm
};

// The operands: tensors lead, scalars follow.
struct Signature {
  int64_t tensors = 1;
  int64_t scalars = 0;
  int64_t optionalTensors = 0;
  int64_t index = -1;  // operand 0 or 1, if its elements are positions along dim `dim` of the other one, the table
};

// The origin of the result's elements.
enum class Elements : uint8_t {
  Computed,
  Moved,      // elements of operand 0, picked by position alone
  Positions,  // positions along dim `dim` of operand 0
};

class DimMap;

struct OpRule {
  ExprKind kind;
  std::string_view name;              // in the text form; Point prints its op, Reduce "reduce"
  std::vector<Attribute> attributes;  // printed in this order
  std::optional<Signature> operands;  // nothing: verify_expr.cpp has the rule
  OpForm form;
  Repeat repeat = Repeat::No;
  void (*dims)(DimMap&) = nullptr;  // links the dims of one tensor operand; nullptr: there are none
  Linearity linear = Linearity::No;
  Elements elements = Elements::Computed;
  View view = View::No;
  Executor executor = Executor::Kernel;
};

[[nodiscard]] const OpRule& ruleOf(ExprKind kind);
[[nodiscard]] const OpRule& ruleOf(const Expr& expr);
[[nodiscard]] std::optional<ExprKind> parseExprKind(std::string_view name);

enum class DimRead : uint8_t { None, Same, Stretched, Window, Reduced, Whole, Indexed };
[[nodiscard]] std::string_view name(DimRead how);

struct DimLink {
  int64_t producer = -1;  // position in producer->noReductions(); -1 for None
  DimRead how = DimRead::None;
  IntExpr offset;  // Window: the operand's dim covers [offset, offset + its extent) of the result's
};

struct OperandDims {
  std::vector<DimLink> ofConsumer;  // one for each dim of consumer->getRootDomain()
  std::vector<DimRead> ofProducer;  // one for each dim of producer->noReductions(): how it is read
};

// For operand number `operand` of expr (a scalar: all None) and its result number 0.
[[nodiscard]] OperandDims dimsRead(const Expr& expr, int64_t operand);

// Whether dim k of each tensor operand corresponds to root dim k of the result.
[[nodiscard]] bool mapsInOrder(const Expr& expr);

enum class FactorKind : uint8_t {
  Parallel,  // may be cut: each part of the result reads its part of the operands
  Summed,    // if cut, every rank has a contribution to the result
  Window,    // if cut, a part of the result also reads operand elements of other parts
  Whole,     // read whole by every element of the result
  Indexed,   // read at positions given by data; if cut, every rank contributes the elements that it holds
};

struct Factor {
  FactorKind kind = FactorKind::Parallel;
  int64_t result = -1;            // root dim of the result; -1 if it has none
  std::vector<int64_t> operands;  // by operand: dim of noReductions(); -1 if it has none, or one element that stretches
};

// Whether a slice or pad (isWindow) leaves out indices at an end of a dim, or adds some there.
[[nodiscard]] bool cutsOrPads(const Expr& expr, int64_t dim);

// First the factors of the root dims of result number 0, in order, then the factors that only operands have. A dropped dim of one
// element is in no factor.
[[nodiscard]] std::vector<Factor> factors(const Expr& expr);

// Whether the result is linear in these operands, in ascending order, if all other operands are fixed.
[[nodiscard]] bool isLinearIn(const Expr& expr, const std::vector<int64_t>& operands);

// Whether the op maps partial sums to a partial sum: a contribution to the result is made of one contribution to each tensor operand.
[[nodiscard]] bool keepsContributions(const Expr& expr);

// As in the row, but a point op that checks its operands is repeated for each reader, next to the read that needs the check.
[[nodiscard]] Repeat repeatOf(const Expr& expr);

// How the contributions to a result are combined if a dim that the result does not have is cut; nothing if they cannot be combined.
[[nodiscard]] std::optional<ReduceOp> contributionsOf(const Expr& expr);

[[nodiscard]] inline bool isContraction(const Expr& expr) { return ruleOf(expr).form == OpForm::Contract; }
// The operand of a product that is added to the sum.
[[nodiscard]] inline bool isBias(const Expr& expr, int64_t operand) { return isContraction(expr) && operand == 2; }
[[nodiscard]] inline bool isWindow(const Expr& expr) { return ruleOf(expr).form == OpForm::Window; }
// Whether the op needs its operand contiguous in memory: it sends it to other ranks, or takes its bits as those of another type.
[[nodiscard]] inline bool readsOnePiece(const Expr& expr) {
  const Executor executor = ruleOf(expr).executor;
  return executor == Executor::Ranks || executor == Executor::Alias;
}
[[nodiscard]] inline bool isIndexing(const Expr& expr) { return ruleOf(expr).form == OpForm::Index; }
// For an op that reads or writes at positions given by index data: the operand that holds the indices, and the table.
[[nodiscard]] inline int64_t indexOf(const Expr& expr) { return ruleOf(expr).operands.value_or(Signature{}).index; }
[[nodiscard]] inline bool hasIndex(const Expr& expr) { return indexOf(expr) >= 0; }
[[nodiscard]] inline int64_t tableOf(const Expr& expr) { return 1 - indexOf(expr); }

}  // namespace meshfuse
