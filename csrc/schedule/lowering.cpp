#include "schedule/lowering.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "digits/row_major.h"
#include "ir/fusion.h"

namespace meshfuse {

using tile::Index;
using tile::kNone;
using tile::Pred;
using tile::ValueId;

namespace {

std::string describe(const TensorView* tensor, const Lowering::Position& position, const std::vector<Pred>& guard) {
  auto at = [](const Index& i) { return fmt::format("{}:{}", i.expr.toString(), i.tile); };
  auto where = [](const Pred& p) { return fmt::format("{}<{}", p.lhs.toString(), p.rhs.toString()); };
  return fmt::format("T{},{}|{}", tensor->id(), joined(position, ",", at), joined(guard, "|", where));
}

std::vector<IntExpr> exprsOf(const Lowering::Position& position, const Expr& by) {
  return mapped(position, [&](const Index& i) {
    invariant(i.tile == kNone, "[lowering] {} of T{} is read at a position that depends on data", by.opName(),
              by.output()->id());
    return i.expr;
  });
}

Lowering::Position toPosition(const std::vector<IntExpr>& exprs) {
  return mapped(exprs, [](const IntExpr& e) { return Index{e}; });
}

// The type a point op computes in: that of its tensor operands (of the values chosen from, for Where).
DataType computeType(const Expr& e) {
  const auto operands = e.inputs() | std::views::drop(e.attributes().point == PointOp::Where ? 1 : 0);
  const auto tensor = std::ranges::find_if(operands, &Val::isTensor);
  return tensor == operands.end() ? e.output()->dtype() : (*tensor)->dtype();
}

// The first position of a shard along a dim.
IntExpr shardStart(const Expr& e, size_t dim) {
  return e.attributes().starts.empty() ? IntExpr(0) : e.attributes().starts[dim];
}

// The facts that an expression holds about a symbol in it.
SymbolFacts factsOf(const IntExpr& expr, std::string_view symbol) {
  for (const IntTerm& term : expr.terms()) {
    for (const IntAtomPtr& factor : term.factors) {
      if (factor->kind == AtomKind::Symbol && factor->key == symbol) {
        return factor->facts;
      }
      for (const IntExpr& arg : factor->args) {
        if (arg.contains(symbol)) {
          return factsOf(arg, symbol);
        }
      }
    }
  }
  throwInternalError(fmt::format("[lowering] {} has no symbol {}", expr.toString(), symbol));
}

}  // namespace

Lowering::Lowering(const Group& group, tile::Builder& builder, KernelPlan& plan)
    : group_(group), builder_(builder), plan_(plan), scopes_(1) {}

void Lowering::declareTensors(const TensorView* flat) {
  auto declare = [&](const TensorView* tv, tile::Memory memory, const std::string& name) {
    tile::TensorParam param{.name = name, .dtype = tv->dtype(), .memory = memory, .extents = {}, .strides = {}};
    param.extents = mapped(tv->shape(), [&](const IntExpr& e) { return size(e); });
    if (tv == flat) {
      param.alignment = 64;
      param.extents = {product(param.extents)};
      param.strides = {1};
    } else if (auto layout = group_.layouts.find(tv->id()); layout != group_.layouts.end()) {
      param.alignment = layout->second.alignment;
      param.strides = mapped(layout->second.strides, [&](const IntExpr& e) { return size(e); });
    } else {
      param.alignment = 64;
      param.strides = rowMajorStrides(param.extents);
    }
    params_[tv->id()] = builder_.tensor(std::move(param));
    plan_.slots.push_back({tv, -1});
  };
  for (int64_t k = 0; k < std::ssize(group_.inputs); k++) {
    bool aliased = contains(group_.aliases | std::views::values, group_.inputs[k]->id());
    declare(group_.inputs[k], aliased ? tile::Memory::InOut : tile::Memory::Input, fmt::format("x{}", k));
  }
  for (int64_t k = 0; k < std::ssize(group_.outputs); k++) {
    const TensorView* out = group_.outputs[k];
    if (auto alias = group_.aliases.find(out->id()); alias != group_.aliases.end()) {
      params_[out->id()] = params_.at(alias->second);
    } else {
      declare(out, tile::Memory::Output, fmt::format("y{}", k));
    }
  }
}

IntExpr Lowering::size(const IntExpr& expr, std::span<const std::string> others) {
  if (expr.isConst()) {
    return expr;
  }
  // an offset such as coord.x * 4096 stays an expression of its symbols; each symbol is one argument
  return expr.substitute([&](std::string_view name) -> std::optional<IntExpr> {
    auto it = sizes_.find(std::string(name));
    if (it != sizes_.end()) {
      return it->second;
    }
    if (contains(others, name)) {
      return std::nullopt;
    }
    // symbols of the program itself (axes, digits) are not the fusion's
    for (const tile::Space& s : builder_.program().spaces) {
      if (std::ranges::find(s.axes, name, &tile::Axis::name) != s.axes.end()) {
        return std::nullopt;
      }
    }
    IntExpr symbol = builder_.size(fmt::format("s{}", sizes_.size()), factsOf(expr, name));
    plan_.sizes.push_back(IntExpr::symbol(std::string(name)));
    sizes_.emplace(std::string(name), symbol);
    return symbol;
  });
}

Coordinates Lowering::withNames(Coordinates c) {
  if (std::ranges::all_of(c.extents, [](const IntExpr& e) { return e.isConst(); })) {
    return c;
  }
  const auto dims = mapped(indices(c.extents), dimSymbol);
  const auto rename = [&](IntExpr& e) { e = size(e, dims); };
  for (auto& [id, index] : c.index) {
    std::ranges::for_each(index, rename);
  }
  std::ranges::for_each(c.extents, rename);
  return c;
}

int64_t Lowering::tensorParam(const TensorView* tensor) const {
  auto it = params_.find(tensor->id());
  if (it == params_.end()) {  // formats the description only on failure
    throwInternalError(fmt::format("[lowering] {} is neither an input nor an output of the group", tensor->toString()));
  }
  return it->second;
}

void Lowering::bind(const TensorView* tensor, ValueId value) {
  scopes_.back()[fmt::format("bound T{}", tensor->id())] = value;
}

void Lowering::readFrom(const TensorView* tensor, const Position& position, int64_t param, Position place) {
  stored_[tensor->id()] = {position, param, std::move(place)};
}

void Lowering::loadWithin(std::vector<Pred> where) {
  fills_ = !where.empty();
  guard_ = std::move(where);
}

void Lowering::provide(const TensorView* tensor, const Position& position, int64_t space, ValueId value) {
  scopes_.back()[describe(tensor, position, guard_) + fmt::format("@{}", space)] = value;
}

void Lowering::stopReading(const TensorView* tensor) { stored_.erase(tensor->id()); }

ValueId Lowering::value(const TensorView* tensor, const Position& position, int64_t space) {
  const std::string key = describe(tensor, position, guard_) + fmt::format("@{}", space);
  for (const std::string& known : {fmt::format("bound T{}", tensor->id()), key}) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (auto it = scope->find(known); it != scope->end()) {
        return it->second;
      }
    }
  }
  ValueId result = at(tensor, position, space);
  scopes_.back()[key] = result;
  return result;
}

ValueId Lowering::at(const TensorView* tensor, const Position& position, int64_t space) {
  auto stored = stored_.find(tensor->id());
  if (stored != stored_.end() && guard_.empty() && stored->second.position == position) {
    return builder_.load(stored->second.param, stored->second.place, space);
  }
  return contains(group_.inputs, tensor) ? load(tensor, position, space, kNone) : compute(tensor, position, space);
}

ValueId Lowering::load(const TensorView* tensor, const Position& position, int64_t space, ValueId fill) {
  const ValueId otherwise = fill == kNone && fills_ ? builder_.constant(tensor->dtype(), 0, space) : fill;
  return builder_.load(tensorParam(tensor), position, space, {.where = guard_, .fill = otherwise});
}

void Lowering::store(const TensorView* tensor, const Position& position, ValueId value, tile::Cache cache) {
  builder_.store(tensorParam(tensor), position, value, {.cache = cache});
}

ValueId Lowering::operand(const Val* val, DataType dtype, const Position& position, int64_t space) {
  if (val->isTensor()) {
    return value(val->asTensor(), stretched(val->asTensor()->shape(), position), space);
  }
  ScalarConst constant = val->constant();
  if (const double* d = std::get_if<double>(&constant)) {
    return builder_.constant(dtype, *d, space);
  }
  if (const bool* b = std::get_if<bool>(&constant)) {
    return builder_.integer(dtype, *b ? 1 : 0, space);
  }
  if (const int64_t* i = std::get_if<int64_t>(&constant)) {
    return builder_.integer(dtype, *i, space);
  }
  if (val->dtype() == DataType::Int && val->definition() == nullptr) {
    return builder_.cast(builder_.indexValue(size(val->intExpr()), space), dtype);
  }
  for (int64_t k = 0; k < std::ssize(plan_.scalars); k++) {
    if (plan_.scalars[k] == val && builder_.program().scalars[k].dtype == dtype) {
      return builder_.scalarValue(k, space);
    }
  }
  plan_.scalars.push_back(val);
  return builder_.scalarValue(builder_.scalar(fmt::format("a{}", plan_.scalars.size() - 1), dtype), space);
}

ValueId Lowering::guarded(const TensorView* tensor, const Read& read, int64_t space, ValueId otherwise) {
  const Position position = toPosition(read.at);
  if (read.where.empty()) {
    return value(tensor, position, space);
  }
  const tile::Value& other = builder_.program().values[otherwise];
  const bool fills = contains(group_.inputs, tensor) && !hasPlace(other.kind) && other.dtype == tensor->dtype();
  size_t outer = guard_.size();
  append(guard_, read.where);
  ValueId v = fills ? load(tensor, position, space, otherwise) : value(tensor, position, space);
  guard_.resize(outer);
  if (fills) {
    return v;
  }
  ValueId mask = kNone;
  for (const Pred& p : read.where) {
    ValueId m = builder_.point(PointOp::Lt, {builder_.indexValue(p.lhs, space), builder_.indexValue(p.rhs, space)});
    mask = mask == kNone ? m : builder_.point(PointOp::LogicalAnd, {mask, m});
  }
  DataType computeIn = accumulateType(tensor->dtype());
  ValueId chosen =
      builder_.point(PointOp::Where, {mask, builder_.cast(v, computeIn), builder_.cast(otherwise, computeIn)});
  return builder_.cast(chosen, tensor->dtype());
}

Read Lowering::readOf(const Expr& e, size_t operand, const Position& position) {
  return readBy(e, operand, exprsOf(position, e), [this](const IntExpr& n) { return size(n); });
}

ValueId Lowering::pad(const Expr& e, const Position& position, int64_t space) {
  const TensorView* p = e.tensorInputs()[0];
  Read read = readOf(e, 0, position);
  return guarded(p, read, space, operand(e.input(1), p->dtype(), {}, space));
}

ValueId Lowering::cat(const Expr& e, const Position& position, int64_t space) {
  // last part first: each earlier one overrides where it applies
  const std::vector<TensorView*> parts = e.tensorInputs();
  ValueId result = builder_.constant(e.output()->dtype(), 0, space);
  for (int64_t k = std::ssize(parts) - 1; k >= 0; k--) {
    result = guarded(parts[k], readOf(e, k, position), space, result);
  }
  return result;
}

ValueId Lowering::random(const Expr& e, const Position& position, int64_t space) {
  const ExprAttributes& a = e.attributes();
  IntExpr index = 0;
  for (int64_t d = 0; d < std::ssize(position); d++) {
    index = index * size(a.stops[d]) + position[d].expr + size(a.starts[d]);
  }
  ValueId seed = operand(e.input(0), DataType::Int, {}, space);
  ValueId offset = operand(e.input(1), DataType::Int, {}, space);
  ValueId high = builder_.point(PointOp::Add, {offset, builder_.integer(DataType::Int, a.ordinal, space)});
  ValueId low = builder_.indexValue(index, space);
  DataType type = e.output()->dtype();
  DataType computeIn = type == DataType::Double ? type : DataType::Float;
  auto word = [&](int64_t k) { return builder_.random(seed, high, low, k); };
  auto shift = [&](ValueId v, int64_t bits) {
    return builder_.cast(builder_.point(PointOp::Shr, {v, builder_.integer(DataType::Int, bits, space)}), computeIn);
  };
  auto times = [&](ValueId v, double c) {
    return builder_.point(PointOp::Mul, {v, builder_.constant(computeIn, c, space)});
  };
  // uniform in [0, 1): 24 bits of one word, or 53 of two, the second one above the first
  auto uniform = [&](int64_t first) {
    if (computeIn == DataType::Float) {
      return times(shift(word(first), 8), 0x1p-24);
    }
    ValueId upper = times(builder_.cast(word(first + 1), computeIn), 0x1p21);
    return times(builder_.point(PointOp::Add, {upper, shift(word(first), 11)}), 0x1p-53);
  };
  if (a.random == RandomKind::Uniform) {
    return builder_.cast(uniform(0), type);
  }
  // Box-Muller; 1 - u is in (0, 1]
  ValueId u = builder_.point(PointOp::Sub, {builder_.constant(computeIn, 1, space), uniform(0)});
  ValueId v = uniform(computeIn == DataType::Float ? 1 : 2);
  ValueId radius = builder_.point(PointOp::Sqrt, {times(builder_.point(PointOp::Log, {u}), -2)});
  ValueId cosine = builder_.point(PointOp::Cos, {times(v, 2 * M_PI)});
  return builder_.cast(builder_.point(PointOp::Mul, {radius, cosine}), type);
}

ValueId Lowering::gather(const Expr& e, const Position& position, int64_t space) {
  const TensorView* data = e.tensorInputs()[0];
  const TensorView* index = e.tensorInputs()[1];
  ValueId i = operand(index, DataType::Int, positionOfIndex(e, position), space);
  Position source = stretched(data->shape(), position);
  source[e.attributes().dim] = {0, builder_.cast(i, DataType::Int)};
  return value(data, source, space);
}

// Rows outside the shard contribute 0 where the op says so.
ValueId Lowering::embedding(const Expr& e, const Position& position, int64_t space) {
  const TensorView* index = e.tensorInputs()[0];
  const TensorView* weight = e.tensorInputs()[1];
  Position at(position.begin(), position.end() - 1);
  ValueId row = builder_.cast(operand(index, DataType::Int, at, space), DataType::Int);
  IntExpr first = size(shardStart(e, 0));
  if (!first.isConst(0)) {
    row = builder_.point(PointOp::Sub, {row, builder_.indexValue(first, space)});
  }
  bool masked = !e.attributes().flags.empty() && e.attributes().flags[0];
  tile::AccessOptions options{.where = guard_};
  if (masked) {
    ValueId end = builder_.indexValue(size(weight->shape()[0]), space);
    options.mask = builder_.point(PointOp::LogicalAnd,
                                  {builder_.point(PointOp::Ge, {row, builder_.integer(DataType::Int, 0, space)}),
                                   builder_.point(PointOp::Lt, {row, end})});
    options.fill = builder_.constant(weight->dtype(), 0, space);
  }
  return builder_.load(tensorParam(weight), {Index{0, row}, position.back()}, space, std::move(options));
}

ValueId Lowering::point(const Expr& e, const Position& position, int64_t space) {
  const PointOp op = e.attributes().point;
  DataType type = computeType(e);
  std::vector<ValueId> operands = mapped(indices(e.inputs()), [&](int64_t k) {
    bool condition = op == PointOp::Where && k == 0;
    return operand(e.inputs()[k], condition ? DataType::Bool : type, position, space);
  });
  return op == PointOp::CheckedIndex ? builder_.checkedIndex(operands[0], operands[1], space, guard_)
                                     : builder_.point(op, std::move(operands));
}

ValueId Lowering::iota(const Expr& e, const Position& position, int64_t space) {
  const DataType type = e.output()->dtype();
  IntExpr index = position[0].expr + size(shardStart(e, 0));
  DataType computeIn = isFloatingPoint(type) ? DataType::Double : DataType::Int;
  ValueId i = builder_.cast(builder_.indexValue(index, space), computeIn);
  ValueId scaled = builder_.point(PointOp::Mul, {i, operand(e.input(1), computeIn, {}, space)});
  return builder_.cast(builder_.point(PointOp::Add, {operand(e.input(0), computeIn, {}, space), scaled}), type);
}

ValueId Lowering::eye(const Expr& e, const Position& position, int64_t space) {
  ValueId row = builder_.indexValue(position[0].expr + size(shardStart(e, 0)), space);
  ValueId column = builder_.indexValue(position[1].expr + size(shardStart(e, 1)), space);
  return builder_.cast(builder_.point(PointOp::Eq, {row, column}), e.output()->dtype());
}

ValueId Lowering::compute(const TensorView* tensor, const Position& position, int64_t space) {
  if (tensor->definition() == nullptr) {  // formats the description only on failure
    throwInternalError(fmt::format("[lowering] {} has no definition and is no input of the group", tensor->toString()));
  }
  const Expr& e = *tensor->definition();
  switch (e.kind()) {
    case ExprKind::Set:
    case ExprKind::SegmentSet:
    case ExprKind::Expand:
    case ExprKind::Cast:
      return builder_.cast(operand(e.input(0), e.input(0)->dtype(), position, space), tensor->dtype());
    case ExprKind::Full:
      return operand(e.input(0), tensor->dtype(), position, space);
    case ExprKind::Broadcast:
    case ExprKind::Squeeze:
    case ExprKind::Permute:
    case ExprKind::Reshape:
    case ExprKind::Slice:
      return value(e.tensorInputs()[0], toPosition(readOf(e, 0, position).at), space);
    case ExprKind::Point:
      return point(e, position, space);
    case ExprKind::Pad:
      return pad(e, position, space);
    case ExprKind::Cat:
      return cat(e, position, space);
    case ExprKind::Iota:
      return iota(e, position, space);
    case ExprKind::Eye:
      return eye(e, position, space);
    case ExprKind::Random:
      return random(e, position, space);
    case ExprKind::TakeAlongAxis:
    case ExprKind::Gather:
    case ExprKind::IndexSelect:
      return gather(e, position, space);
    case ExprKind::Embedding:
      return embedding(e, position, space);
    default:  // a reduction's result is bound; no other executor's op is in a group
      break;
  }
  throwInternalError(fmt::format("[lowering] kernels do not support {} of {}", e.opName(), tensor->toString()));
}

}  // namespace meshfuse
