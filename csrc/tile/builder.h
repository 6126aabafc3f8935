// Writes tile programs: allocates values, derives their digits, keeps statements in order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tile/tile.h"

namespace meshfuse::tile {

struct AccessOptions {
  std::vector<Pred> where = {};
  ValueId mask = kNone;
  ValueId fill = kNone;
  Cache cache = Cache::Keep;
};

class Builder {
 public:
  Builder(std::string name, Target target);

  // -- arguments ------------------------------------------------------------------------------------------------------
  IntExpr size(std::string name, SymbolFacts facts = {});
  int64_t scalar(std::string name, DataType dtype);
  int64_t tensor(TensorParam param);  // position in Program::tensors
  IntExpr gridDim(std::string symbol, IntExpr count);

  // -- spaces ---------------------------------------------------------------------------------------------------------
  // Digits outermost first; strides and symbols are filled in: an inner digit's extent is the next outer one's stride.
  // A Part digit takes the symbol of the grid dim it names; a Serial digit of size 0 runs to the bound.
  // At most one Serial digit of an axis has size 0; it takes as many steps as the bound needs beside the other digits. A Part
  // digit of size 0 takes its grid dim's count. A Serial digit may name the symbol of a Serial digit of another space: one For
  // then runs both, as a convert inside a loop requires.
  struct DigitSpec {
    Level level;
    IntExpr size;
    std::string grid = {};  // Part: the grid dim; Serial: the symbol it shares, else empty
  };
  struct AxisSpec {
    std::string name;
    IntExpr bound;
    std::vector<DigitSpec> digits;
  };
  int64_t space(std::string name, std::vector<AxisSpec> axes);
  // The coordinate of an axis, for index expressions.
  IntExpr coord(int64_t space, int64_t axis) const;

  // -- values ---------------------------------------------------------------------------------------------------------
  // `digits`: if the constant is the initial value of a loop carry, the digits of the carry.
  ValueId constant(DataType dtype, double value, int64_t space = 0, uint64_t digits = 0);
  ValueId integer(DataType dtype, int64_t value, int64_t space = 0, uint64_t digits = 0);
  ValueId scalarValue(int64_t scalar, int64_t space = 0);
  ValueId indexValue(const IntExpr& expr, int64_t space);
  ValueId load(int64_t tensor, std::vector<Index> index, int64_t space, AccessOptions options = {});
  ValueId point(PointOp op, std::vector<ValueId> operands);
  // point(CheckedIndex) at positions where `where` holds; at other positions the result is 0, and no index is refused.
  ValueId checkedIndex(ValueId index, ValueId extent, int64_t space, std::vector<Pred> where = {});
  ValueId cast(ValueId value, DataType dtype);  // itself if it has that type
  ValueId random(ValueId seed, ValueId counterHigh, ValueId counterLow, int64_t word);
  ValueId reduce(ValueId value, uint64_t digits, Combiner combiner, std::vector<Pred> where = {});
  ValueId reduceAxis(ValueId value, int64_t axis,
                     Combiner combiner);  // over all c, w, l, r, v digits of the axis it has
  ValueId convert(ValueId value, int64_t space);
  // Running totals along an axis, all of whose c, w, l, r, v digits `value` has; `before`: a value of totalType without them.
  ValueId scan(ValueId value, ValueId before, int64_t axis, Combiner combiner);
  ValueId scanTotal(ValueId scan);  // of totalType, without digits of the axis
  // The last `by` lanes of `before` and the first of `after`. Both have a vector digit of the same space.
  ValueId shift(ValueId before, ValueId after, const IntExpr& by);

  // -- statements -----------------------------------------------------------------------------------------------------
  ValueId keep(ValueId value);
  void store(int64_t tensor, std::vector<Index> index, ValueId value, AccessOptions options = {});
  void prefetch(int64_t tensor, std::vector<Index> index, int64_t lines, int64_t level = 1);
  // body(carried) returns the next values; the result holds the values after the loop. A carry has its init's digits, which
  // must include those of its next value.
  std::vector<ValueId> loop(int64_t space, int64_t axis, int64_t digit, std::vector<ValueId> init,
                            const std::function<std::vector<ValueId>(std::span<const ValueId>)>& body);
  void when(std::vector<Pred> condition, const std::function<void()>& body);
  // All workers share one counter. With `index`, an expression of grid dims, the workers with the same index share the counter there.
  void lastArriver(int64_t counter, const std::function<void()>& body) { lastArriver(counter, {}, body); }
  void lastArriver(int64_t counter, std::vector<Index> index, const std::function<void()>& body);

  const Program& program() const { return program_; }
  Program take() { return std::move(program_); }

 private:
  ValueId add(Value value);
  ValueId define(Value value);  // add, and mark its place
  void emit(Stmt stmt);
  std::vector<Stmt> inBlock(const std::function<void()>& body);
  const Value& value(ValueId id) const;
  // The space whose bounds guard an access: the one of its index tiles or digits, else of its first coordinate.
  int64_t accessSpace(const std::vector<Index>& index, const std::vector<Pred>& where, int64_t otherwise) const;
  // Digits named by expressions, and those of index tiles.
  uint64_t digitsIn(const std::vector<Index>& index, const std::vector<Pred>& where, int64_t space) const;

  Program program_;
  std::vector<std::vector<Stmt>>
      open_;  // bodies being written, outermost first; each moves into its statement when it ends
};

// The identity of a combiner in a type, as a constant value of the program.
[[nodiscard]] ValueId identity(Builder& builder, Combiner combiner, DataType dtype, int64_t space = 0,
                               uint64_t digits = 0);

}  // namespace meshfuse::tile
