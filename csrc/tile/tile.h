// Tile programs: one kernel, written for one worker (a CUDA block or cluster, a CPU task) and one part of a grid.
//
// There are no threads in it. A Space is a list of axes; an axis has a bound and is cut into digits, outermost first, each on
// a level of the machine. A value (tile) is spread over a set of digits of its space: if a register digit is missing, the elements along it
// are equal (broadcast); if a cluster, warp or lane digit is missing, each of those threads has a copy.
//
//   space s  m = p(chunk) s      n = s r4 v16       a CPU row kernel: parts of `chunk` rows, vectors of 16, four at a time
//   space s  m = p w2            n = r4 w4 l32 v4   rows in registers of a GPU block, coalesced
//
// Index expressions use the name of an axis as its coordinate: load X[m, n]. The coordinate is sum of digit * stride. Positions
// at or beyond an axis' bound hold unspecified values: load, store, reduce and loop carries skip them. `where` states all other conditions
// (pad, slice windows, data).
//
//   kernel softmax                              for a CPU
//   for m.s:
//     (mx) = for n.s carry(a = -inf):  x = load X[m, n];  yield maximum(a, x)
//     mx1  = reduce max mx over n
//     (sm) = for n.s carry(a = 0):     x = load X[m, n];  e = exp(x - mx1);  store E[n] = e;  yield a + e
//     s1   = reduce sum sm over n
//     for n.s:  e = load E[n];  store Y[m, n] = e / s1
//
// A kernel takes 8-byte slots: one pointer for each tensor that is not scratch, then one int64 for each size, then one 8-byte value for
// each scalar: integers and Bool as int64, floating types as their bits in the lowest bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "digits/int_expr.h"
#include "ir/point_op.h"
#include "tensor/dtype.h"
#include "tensor/reduce_op.h"

namespace meshfuse::tile {

enum class Level : uint8_t { Part, Cluster, Warp, Lane, Serial, Repeat, Vector };  // printed p c w l s r v

// One factor of an axis. `symbol` names its value in emitted code: unique, but digits of Part that share a grid dim share it,
// and so do Serial digits of different spaces that one For runs together.
struct Digit {
  Level level;
  IntExpr size;    // constant unless Part or Serial; powers of two on c, w, l, v
  IntExpr stride;  // in units of the axis
  std::string symbol;
};

struct Axis {
  std::string name;  // unique in the program; the coordinate's symbol
  IntExpr bound;
  std::vector<Digit> digits;
};

struct Space {
  std::string name;
  std::vector<Axis> axes;
};

// A tensor argument, or scratch of one worker. The element at (i0, i1, ...) is at offset sum(i_k * strides_k) elements.
enum class Memory : uint8_t {
  Input,      // never written by this launch
  Output,     // written only, each element once
  InOut,      // an output that aliases an input element by element
  Workspace,  // global scratch of the launch; if `zeroed`, it is zero before the launch and after it
  Scratch,    // private to one worker; no argument slot; on a GPU shared memory if writer and reader digits differ
};

struct TensorParam {
  std::string name;
  DataType dtype;
  Memory memory;
  std::vector<IntExpr> extents;
  std::vector<IntExpr> strides;
  int64_t alignment = 1;  // bytes the base pointer is known to be divisible by
  bool zeroed = false;    // Workspace
};

// A run-time integer argument, with facts that the caller has checked.
struct SizeParam {
  std::string name;
  SymbolFacts facts;
};

// A run-time value argument.
struct ScalarParam {
  std::string name;
  DataType dtype;
};

// One dim of the grid: Part digits named `symbol` take its value, 0 <= value < count.
struct GridDim {
  std::string symbol;
  IntExpr count;
};

struct Pred {  // lhs < rhs
  IntExpr lhs;
  IntExpr rhs;
};

using ValueId = int64_t;  // position in Program::values
inline constexpr ValueId kNone = -1;

// One index of a memory access: an expression, plus an Int tile where the position depends on data.
struct Index {
  IntExpr expr;
  ValueId tile = kNone;
  friend bool operator==(const Index&, const Index&) = default;
};

using Combiner = ReduceOp;

// The type of the totals of a scan: Double for sums of Float, else the type of the elements.
//
// A Scan has all tile digits of its axis: those of warps, at most one of lanes, then those of registers, whose positions are a segment.
// Element j is rounded from T + t, where t is the total of its segment up to j, one element after the other, and T = W + L the total before
// its segment: W of what was before and of the warps before, one after the other; L of the lanes before in its warp. L of lane i + 1 is made
// in steps s = 0, 1, ..: the total of lane i, so far that of lanes i - 2^s + 1 to i, becomes that of lane i - 2^s plus its own. The first lane
// has no L. Of equal elements, a maximum or minimum is the first. So a result depends on the size of segments and on the number of lanes along
// the axis, but not on the number of warps. Of a coarse scan (coarse_values.h) an emitter may keep t, and T where it is added to t, in
// Float; both may then leave its range.
[[nodiscard]] constexpr DataType totalType(Combiner combiner, DataType t) {
  return combiner == ReduceOp::Sum && t == DataType::Float ? DataType::Double : t;
}
// Whether a Scan of the type exists: sums of Double and products of floating types could leave the range of their totals where elements one
// after the other would not. Coarse sums may do so too, and docs/gpu.md says it.
[[nodiscard]] constexpr bool hasScan(Combiner combiner, DataType t) {
  switch (combiner) {
    case ReduceOp::Sum:
      return t == DataType::Float || t == DataType::Int || t == DataType::Int32;
    case ReduceOp::Max:
    case ReduceOp::Min:
      return t == DataType::Float || t == DataType::Double || t == DataType::Int || t == DataType::Int32;
    case ReduceOp::Prod:
    case ReduceOp::And:
    case ReduceOp::Or:
    case ReduceOp::Xor:
      return t == DataType::Int || t == DataType::Int32;
  }
  return false;
}

enum class Cache : uint8_t { Keep, Once };  // Once: read or written once, need not stay in a cache (streaming)

enum class ValueKind : uint8_t {
  Const,   // `constant` (floating) or `integer`
  Scalar,  // run-time argument `param`
  Index,   // the Int value of `index[0].expr`, spread over the digits of its axes
  Load,    // tensor `param` at `index` where `where` and `mask` hold, else `fill`
  Point,  // op(operands); CheckedIndex refuses only positions within bounds at which `where` holds, and gives 0 at others
  Cast,  // operands[0] to `dtype`
  Random,  // word `param` (0..3) of Philox4x32-10, as Int in [0, 2^32): key = operand 0 (seed), counter = (operand 1, operand 2)
  Reduce,      // operands[0] over `digits` removed from it, by `combiner`; positions where `where` fails are left out
  Carry,       // the value a For carries, inside its body
  LoopResult,  // the value a For carried, after it; `param`: which
  Convert,     // operands[0] in another space: axes with the same bounds, other digits
  Scan,  // running totals of operands[0] along axis `param`, after the total operands[1] of what is before (see totalType)
  ScanTotal,  // the total of the Scan operands[0]: what was before it, and all its elements within the bound
  Shift,  // CPU. Lane i of the vector digit, of size V: the element i + V - `index[0].expr` of operands[0] followed by operands[1]. The
          // expression is between 0 and V and does not name the vector digit
};

// A value. Without digits it has one element, and may be combined with values of any space. `digits` is a bit set over the c, w, l, r
// and v digits of its space, numbered over all axes' digits in order.
struct Value {
  ValueKind kind;
  DataType dtype;
  int64_t space = 0;
  uint64_t digits = 0;
  std::vector<ValueId> operands = {};
  PointOp op = PointOp::Add;
  Combiner combiner = Combiner::Sum;
  double constant = 0;
  int64_t integer = 0;
  int64_t param = 0;
  std::vector<Index> index = {};
  std::vector<Pred> where = {};
  ValueId mask = kNone;  // Load: a Bool tile
  ValueId fill = kNone;  // Load: a Const or Scalar
  Cache cache = Cache::Keep;
};

struct Carried {
  ValueId init;
  ValueId carry;
  ValueId next;
  ValueId result;
};

enum class StmtKind : uint8_t {
  Define,  // the place of `value`: it is evaluated here, or later inside its consumers; a load of memory that this launch writes, here
  Keep,    // evaluate `value` here, once
  Store,   // tensor `param` at `index` = `value` where `where` and `mask` hold
  Prefetch,  // tensor `param` at `index`: bring `lines` cache lines to the caches from `level` on; no effect on values
  For,       // the serial digit `digit` of axis `axis` of space `space`; `carried` assigned together
  If,        // `where` over worker-uniform expressions
  LastArriver,  // body runs in the worker that arrives last at workspace counter `param` (Int32, zeroed): sees all others' stores. Sets it to 0.
  // `index` (of grid dims only) selects the counter; workers that differ only in other grid dims share it
};

struct Stmt {
  StmtKind kind;
  ValueId value = kNone;
  int64_t param = 0;
  std::vector<Index> index = {};
  std::vector<Pred> where = {};
  ValueId mask = kNone;
  Cache cache = Cache::Keep;
  int64_t lines = 0;
  int64_t level = 1;  // 1: the cache that is nearest to the core
  int64_t space = 0;  // Store, Prefetch: whose bounds guard it; For: whose digit it runs
  int64_t axis = 0;
  int64_t digit = 0;
  std::vector<Carried> carried = {};
  std::vector<Stmt> body = {};
};

enum class Target : uint8_t { Cpu, Gpu };

struct Program {
  std::string name;
  Target target = Target::Cpu;
  std::vector<SizeParam> sizes;
  std::vector<ScalarParam> scalars;
  std::vector<TensorParam> tensors;
  std::vector<GridDim> grid;
  std::vector<Space> spaces;
  std::vector<Value> values;
  std::vector<Stmt> body;

  // Threads of a block and blocks of a cluster that the w, l and c digits of all spaces need. GPU only.
  int64_t threads() const;
  int64_t cluster() const;
  // Whether a value is a CheckedIndex, which may refuse an index.
  bool checksIndices() const;
};

// The digits of a space in the numbering of Value::digits.
struct DigitRef {
  int64_t axis;
  int64_t digit;
};
[[nodiscard]] std::vector<DigitRef> digitsOf(const Space& space);
// The bit set of the c, w, l, r, v digits of axis `axis`.
[[nodiscard]] uint64_t axisDigits(const Space& space, int64_t axis);
// Whether an expression of an access names a symbol. Index tiles are not asked.
[[nodiscard]] bool isNamed(std::string_view symbol, const std::vector<Index>& index, const std::vector<Pred>& where);
// The digits that expressions of an access name, by their symbol or by that of their axis.
[[nodiscard]] uint64_t digitsNamed(const Space& space, const std::vector<Index>& index, const std::vector<Pred>& where);
// The symbols of the digits of a set: `n_r n_v`.
[[nodiscard]] std::string digitNames(const Space& space, uint64_t digits);
// As printed: one of p c w l s r v.
[[nodiscard]] char letterOf(Level level);
// The symbol of the nth digit of a level on an axis, unless the program gives it another: `n_r`, `n_r1`.
[[nodiscard]] std::string usualSymbol(const std::string& axis, Level level, int64_t nth);
// The number of workers that count up one counter of a last arriver. They differ only in grid dims that its index does not name.
[[nodiscard]] IntExpr arrivals(const Program& program, const Stmt& lastArriver);
[[nodiscard]] inline bool isRegister(Level l) { return l == Level::Repeat || l == Level::Vector; }
[[nodiscard]] inline bool isThread(Level l) { return l == Level::Cluster || l == Level::Warp || l == Level::Lane; }
[[nodiscard]] inline bool isInTile(Level l) { return isThread(l) || isRegister(l); }
// Whether values of a kind have a place in the program, which a Define or a loop marks.
[[nodiscard]] inline bool hasPlace(ValueKind kind) { return kind != ValueKind::Const && kind != ValueKind::Scalar; }

// An element of one of the lists above, or nullptr: a program may name one that does not exist, which `verify` reports.
template <class T>
[[nodiscard]] const T* elementAt(const std::vector<T>& list, int64_t position) {
  return position >= 0 && position < std::ssize(list) ? &list[position] : nullptr;
}
[[nodiscard]] const Axis* axisAt(const Program& program, int64_t space, int64_t axis);

// The readable form; the same program gives the same text. Compared in golden tests, hashed for the kernel cache.
[[nodiscard]] std::string toString(const Program& program);
// Every violation of the rules in this header, one in each line; empty if there are none.
[[nodiscard]] std::vector<std::string> verify(const Program& program);

}  // namespace meshfuse::tile
