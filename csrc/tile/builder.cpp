#include "tile/builder.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse::tile {

Builder::Builder(std::string name, Target target) {
  program_.name = std::move(name);
  program_.target = target;
}

// -- arguments --------------------------------------------------------------------------------------------------------

IntExpr Builder::size(std::string name, SymbolFacts facts) {
  program_.sizes.push_back({name, facts});
  return IntExpr::symbol(std::move(name), facts);
}

int64_t Builder::scalar(std::string name, DataType dtype) {
  program_.scalars.push_back({std::move(name), dtype});
  return std::ssize(program_.scalars) - 1;
}

int64_t Builder::tensor(TensorParam param) {
  invariant(param.extents.size() == param.strides.size(), "[tile builder] tensor {} has {} extents and {} strides",
            param.name, param.extents.size(), param.strides.size());
  program_.tensors.push_back(std::move(param));
  return std::ssize(program_.tensors) - 1;
}

IntExpr Builder::gridDim(std::string symbol, IntExpr count) {
  SymbolFacts facts = factsBelow(count);
  program_.grid.push_back({symbol, std::move(count)});
  return IntExpr::symbol(std::move(symbol), facts);
}

// -- spaces -----------------------------------------------------------------------------------------------------------

int64_t Builder::space(std::string name, std::vector<AxisSpec> axes) {
  Space space{std::move(name), {}};
  for (AxisSpec& spec : axes) {
    Axis axis{spec.name, spec.bound, {}};
    std::vector<int64_t> seen(7, 0);  // digits of this axis by level, to name the second one differently
    for (const DigitSpec& d : spec.digits) {
      int64_t nth = seen[static_cast<size_t>(d.level)]++;
      invariant(d.level != Level::Part || !d.grid.empty(), "[tile builder] a part digit of axis {} names no grid dim",
                spec.name);
      std::string symbol = d.grid.empty() ? usualSymbol(spec.name, d.level, nth) : d.grid;
      IntExpr size = d.size;
      if (d.level == Level::Part && size.isConst(0)) {
        auto dim = std::ranges::find(program_.grid, symbol, &GridDim::symbol);
        invariant(dim != program_.grid.end(), "[tile builder] axis {} names the grid dim {}, which does not exist",
                  spec.name, symbol);
        size = dim->count;
      }
      axis.digits.push_back({d.level, std::move(size), 1, std::move(symbol)});
    }
    IntExpr others = 1;
    Digit* open = nullptr;
    for (Digit& d : axis.digits) {
      if (d.size.isConst(0)) {
        invariant(d.level == Level::Serial && open == nullptr,
                  "[tile builder] axis {}: size 0 is for one serial digit, got it on level {}", axis.name,
                  letterOf(d.level));
        open = &d;
      } else {
        others *= d.size;
      }
    }
    if (open != nullptr) {
      open->size = ceilDiv(axis.bound, others);
    }
    IntExpr stride = 1;
    for (auto d = axis.digits.rbegin(); d != axis.digits.rend(); ++d) {
      d->stride = stride;
      stride *= d->size;
    }
    space.axes.push_back(std::move(axis));
  }
  program_.spaces.push_back(std::move(space));
  return std::ssize(program_.spaces) - 1;
}

IntExpr Builder::coord(int64_t space, int64_t axis) const {
  const Axis& a = program_.spaces.at(space).axes.at(axis);
  return IntExpr::symbol(a.name, factsBelow(a.bound));
}

uint64_t Builder::digitsIn(const std::vector<Index>& index, const std::vector<Pred>& where, int64_t space) const {
  uint64_t set = digitsNamed(program_.spaces.at(space), index, where);
  for (const Index& i : index) {
    set |= i.tile == kNone ? 0 : value(i.tile).digits;
  }
  return set;
}

// -- values -----------------------------------------------------------------------------------------------------------

const Value& Builder::value(ValueId id) const {
  invariant(id >= 0 && id < std::ssize(program_.values), "[tile builder] kernel {} has no value {}", program_.name, id);
  return program_.values[id];
}

ValueId Builder::add(Value value) {
  program_.values.push_back(std::move(value));
  return static_cast<ValueId>(program_.values.size()) - 1;
}

ValueId Builder::define(Value value) {
  ValueId id = add(std::move(value));
  emit({.kind = StmtKind::Define, .value = id});
  return id;
}

ValueId Builder::constant(DataType dtype, double value, int64_t space, uint64_t digits) {
  if (!isFloatingPoint(dtype)) {
    return integer(dtype, static_cast<int64_t>(value), space, digits);
  }
  return add({.kind = ValueKind::Const, .dtype = dtype, .space = space, .digits = digits, .constant = value});
}

ValueId Builder::integer(DataType dtype, int64_t value, int64_t space, uint64_t digits) {
  if (isFloatingPoint(dtype)) {
    return constant(dtype, static_cast<double>(value), space, digits);
  }
  return add({.kind = ValueKind::Const, .dtype = dtype, .space = space, .digits = digits, .integer = value});
}

ValueId Builder::scalarValue(int64_t scalar, int64_t space) {
  DataType dtype = program_.scalars.at(scalar).dtype;
  return add({.kind = ValueKind::Scalar, .dtype = dtype, .space = space, .param = scalar});
}

ValueId Builder::indexValue(const IntExpr& expr, int64_t space) {
  return define({.kind = ValueKind::Index,
                 .dtype = DataType::Int,
                 .space = space,
                 .digits = digitsIn({{expr}}, {}, space),
                 .index = {{expr}}});
}

ValueId Builder::load(int64_t tensor, std::vector<Index> index, int64_t space, AccessOptions options) {
  const TensorParam& t = program_.tensors.at(tensor);
  invariant(index.size() == t.extents.size(), "[tile builder] load {}: {} indices for {} dims", t.name, index.size(),
            t.extents.size());
  uint64_t digits = digitsIn(index, options.where, space);
  digits |= options.mask == kNone ? 0 : value(options.mask).digits;
  return define({.kind = ValueKind::Load,
                 .dtype = t.dtype,
                 .space = space,
                 .digits = digits,
                 .param = tensor,
                 .index = std::move(index),
                 .where = std::move(options.where),
                 .mask = options.mask,
                 .fill = options.fill,
                 .cache = options.cache});
}

ValueId Builder::point(PointOp op, std::vector<ValueId> operands) {
  const PointOpInfo& row = info(op);
  invariant(std::ssize(operands) == row.arity, "[tile builder] {} takes {} operands, got {}", row.name, row.arity,
            operands.size());
  const int64_t first = op == PointOp::Where ? 1 : 0;
  DataType dtype = value(operands[first]).dtype;
  Value v{.kind = ValueKind::Point,
          .dtype = row.givesBool ? DataType::Bool : dtype,
          .space = value(operands[0]).space,
          .op = op};
  for (int64_t i = 0; i < std::ssize(operands); i++) {
    const Value& operand = value(operands[i]);
    DataType wanted = i < first ? DataType::Bool : dtype;
    invariant(operand.dtype == wanted && (i < first || accepts(row.types, dtype)),
              "[tile builder] {}: operand {} is {}, expected {}; cast it", row.name, i, name(operand.dtype),
              operand.dtype == wanted ? "a type of the op's row" : name(wanted));
    // A value without digits is the same everywhere and fits every space.
    if (operand.digits != 0) {
      invariant(v.digits == 0 || v.space == operand.space,
                "[tile builder] {}: operands lie in the spaces {} and {}; convert one", row.name,
                program_.spaces.at(v.space).name, program_.spaces.at(operand.space).name);
      v.space = operand.space;
      v.digits |= operand.digits;
    }
  }
  v.operands = std::move(operands);
  return define(std::move(v));
}

ValueId Builder::checkedIndex(ValueId index, ValueId extent, int64_t space, std::vector<Pred> where) {
  DataType dtype = value(index).dtype;
  invariant(value(extent).dtype == dtype && accepts(info(PointOp::CheckedIndex).types, dtype),
            "[tile builder] checked_index: {} and an extent of {}, expected one integer type; cast one", name(dtype),
            name(value(extent).dtype));
  Value v{.kind = ValueKind::Point,
          .dtype = dtype,
          .space = space,
          .digits = digitsIn({}, where, space),
          .operands = {index, extent},
          .op = PointOp::CheckedIndex,
          .where = std::move(where)};
  for (ValueId id : v.operands) {
    invariant(value(id).digits == 0 || value(id).space == space,
              "[tile builder] checked_index: an operand lies in space {}, expected {}; convert it",
              program_.spaces.at(value(id).space).name, program_.spaces.at(space).name);
    v.digits |= value(id).digits;
  }
  return define(std::move(v));
}

ValueId Builder::cast(ValueId id, DataType dtype) {
  const Value& operand = value(id);
  if (operand.dtype == dtype) {
    return id;
  }
  return define(
      {.kind = ValueKind::Cast, .dtype = dtype, .space = operand.space, .digits = operand.digits, .operands = {id}});
}

ValueId Builder::random(ValueId seed, ValueId counterHigh, ValueId counterLow, int64_t word) {
  Value v{.kind = ValueKind::Random,
          .dtype = DataType::Int,
          .space = value(seed).space,
          .operands = {seed, counterHigh, counterLow},
          .param = word};
  for (ValueId id : v.operands) {
    if (value(id).digits != 0) {
      v.space = value(id).space;
      v.digits |= value(id).digits;
    }
  }
  return define(std::move(v));
}

ValueId Builder::reduce(ValueId id, uint64_t digits, Combiner combiner, std::vector<Pred> where) {
  const Value& operand = value(id);
  invariant(
      (digits & ~operand.digits) == 0,
      "[tile builder] reduce over digits {:#x}, but the value has only {:#x}; add a constant spread over the others",
      digits, operand.digits);
  if (digits == 0 && where.empty()) {
    return id;
  }
  return define({.kind = ValueKind::Reduce,
                 .dtype = operand.dtype,
                 .space = operand.space,
                 .digits = operand.digits & ~digits,
                 .operands = {id},
                 .combiner = combiner,
                 .where = std::move(where)});
}

ValueId Builder::reduceAxis(ValueId id, int64_t axis, Combiner combiner) {
  const Value& operand = value(id);
  return reduce(id, operand.digits & axisDigits(program_.spaces.at(operand.space), axis), combiner);
}

ValueId Builder::convert(ValueId id, int64_t space) {
  const Value& operand = value(id);
  const Space& from = program_.spaces.at(operand.space);
  const Space& to = program_.spaces.at(space);
  invariant(from.axes.size() == to.axes.size(), "[tile builder] convert from space {} with {} axes to {} with {}",
            from.name, from.axes.size(), to.name, to.axes.size());
  uint64_t digits = 0;
  for (int64_t a = 0; a < std::ssize(from.axes); a++) {
    digits |= (operand.digits & axisDigits(from, a)) != 0 ? axisDigits(to, a) : 0;
  }
  return define(
      {.kind = ValueKind::Convert, .dtype = operand.dtype, .space = space, .digits = digits, .operands = {id}});
}

ValueId Builder::scan(ValueId id, ValueId before, int64_t axis, Combiner combiner) {
  const Value& x = value(id);
  return define({.kind = ValueKind::Scan,
                 .dtype = x.dtype,
                 .space = x.space,
                 .digits = x.digits | value(before).digits,
                 .operands = {id, before},
                 .combiner = combiner,
                 .param = axis});
}

ValueId Builder::scanTotal(ValueId id) {
  const Value& scan = value(id);
  return define({.kind = ValueKind::ScanTotal,
                 .dtype = totalType(scan.combiner, scan.dtype),
                 .space = scan.space,
                 .digits = scan.digits & ~axisDigits(program_.spaces.at(scan.space), scan.param),
                 .operands = {id}});
}

ValueId Builder::shift(ValueId before, ValueId after, const IntExpr& by) {
  const Value& from = value(before);
  std::vector<Index> index = {{by}};
  const uint64_t digits = from.digits | value(after).digits | digitsIn(index, {}, from.space);
  return define({.kind = ValueKind::Shift,
                 .dtype = from.dtype,
                 .space = from.space,
                 .digits = digits,
                 .operands = {before, after},
                 .index = std::move(index)});
}

int64_t Builder::accessSpace(const std::vector<Index>& index, const std::vector<Pred>& where, int64_t otherwise) const {
  for (const Index& i : index) {
    if (i.tile != kNone && value(i.tile).digits != 0) {
      return value(i.tile).space;
    }
  }
  for (int64_t s = 0; s < std::ssize(program_.spaces); s++) {
    if (digitsIn(index, where, s) != 0) {
      return s;
    }
  }
  for (int64_t s = 0; s < std::ssize(program_.spaces); s++) {
    const std::vector<Axis>& axes = program_.spaces[s].axes;
    if (std::ranges::any_of(axes, [&](const Axis& a) { return isNamed(a.name, index, {}); })) {
      return s;
    }
  }
  return otherwise;
}

// -- statements -------------------------------------------------------------------------------------------------------

void Builder::emit(Stmt stmt) { (open_.empty() ? program_.body : open_.back()).push_back(std::move(stmt)); }

std::vector<Stmt> Builder::inBlock(const std::function<void()>& body) {
  open_.emplace_back();
  body();
  std::vector<Stmt> block = std::move(open_.back());
  open_.pop_back();
  return block;
}

ValueId Builder::keep(ValueId id) {
  (void)value(id);
  emit({.kind = StmtKind::Keep, .value = id});
  return id;
}

void Builder::store(int64_t tensor, std::vector<Index> index, ValueId id, AccessOptions options) {
  const TensorParam& t = program_.tensors.at(tensor);
  invariant(index.size() == t.extents.size(), "[tile builder] store {}: {} indices for {} dims", t.name, index.size(),
            t.extents.size());
  invariant(value(id).dtype == t.dtype, "[tile builder] store {}: the value is {}, the tensor {}; cast it", t.name,
            name(value(id).dtype), name(t.dtype));
  int64_t space = value(id).digits != 0 ? value(id).space : accessSpace(index, options.where, value(id).space);
  emit({.kind = StmtKind::Store,
        .value = id,
        .param = tensor,
        .index = std::move(index),
        .where = std::move(options.where),
        .mask = options.mask,
        .cache = options.cache,
        .space = space});
}

void Builder::prefetch(int64_t tensor, std::vector<Index> index, int64_t lines, int64_t level) {
  int64_t space = accessSpace(index, {}, 0);
  emit({.kind = StmtKind::Prefetch,
        .param = tensor,
        .index = std::move(index),
        .lines = lines,
        .level = level,
        .space = space});
}

std::vector<ValueId> Builder::loop(int64_t space, int64_t axis, int64_t digit, std::vector<ValueId> init,
                                   const std::function<std::vector<ValueId>(std::span<const ValueId>)>& body) {
  const Digit& d = program_.spaces.at(space).axes.at(axis).digits.at(digit);
  invariant(d.level == Level::Serial, "[tile builder] a loop runs a serial digit; {} is on level {}", d.symbol,
            letterOf(d.level));
  Stmt s{.kind = StmtKind::For, .space = space, .axis = axis, .digit = digit};
  std::vector<ValueId> carries = mapped(init, [&](ValueId id) {
    const Value& v = value(id);
    return add({.kind = ValueKind::Carry, .dtype = v.dtype, .space = v.space, .digits = v.digits});
  });
  std::vector<ValueId> next;
  s.body = inBlock([&] { next = body(carries); });
  invariant(next.size() == init.size(), "[tile builder] loop {}: {} values carried, {} yielded", d.symbol, init.size(),
            next.size());
  std::vector<ValueId> results;
  for (int64_t i = 0; i < std::ssize(init); i++) {
    Value v = value(carries[i]);
    const Value& n = value(next[i]);
    invariant(
        n.dtype == v.dtype && (n.digits == 0 || n.space == v.space) && (n.digits & ~v.digits) == 0,
        "[tile builder] loop {}: carry {} starts as {} over digits {:#x}, its next value is {} over {:#x}; spread the "
        "initial constant over the digits of the next value",
        d.symbol, i, name(v.dtype), v.digits, name(n.dtype), n.digits);
    v.kind = ValueKind::LoopResult;
    v.param = i;
    results.push_back(add(std::move(v)));
    s.carried.push_back({init[i], carries[i], next[i], results[i]});
  }
  emit(std::move(s));
  return results;
}

void Builder::when(std::vector<Pred> condition, const std::function<void()>& body) {
  emit({.kind = StmtKind::If, .where = std::move(condition), .body = inBlock(body)});
}

void Builder::lastArriver(int64_t counter, std::vector<Index> index, const std::function<void()>& body) {
  emit({.kind = StmtKind::LastArriver, .param = counter, .index = std::move(index), .body = inBlock(body)});
}

ValueId identity(Builder& builder, Combiner combiner, DataType dtype, int64_t space, uint64_t digits) {
  return isFloatingPoint(dtype) ? builder.constant(dtype, floatingIdentity(combiner), space, digits)
                                : builder.integer(dtype, integerIdentity(combiner, dtype), space, digits);
}

}  // namespace meshfuse::tile
