#include "interpret/program.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse::reference {

namespace {

std::string_view kindOf(const Argument& argument) {
  constexpr std::string_view kKinds[] = {"a tensor", "a floating number", "an integer", "a bool"};
  return kKinds[argument.index()];
}

}  // namespace

Program::Program(const Fusion& fusion, std::span<const Argument> inputs, const Context& context, Keep keep)
    : fusion_(fusion), context_(context), keep_(keep) {
  const std::vector<Val*>& expected = fusion.inputs();
  check(inputs.size() == expected.size(),
        "[interpret] got {} arguments, the fusion has {} inputs; give one for each in order", inputs.size(),
        expected.size());
  for (int64_t k : indices(inputs)) {
    if (expected[k]->isTensor()) {
      bindTensor(k, expected[k]->asTensor(), inputs[k]);
    } else {
      bindScalar(k, expected[k], inputs[k]);
    }
  }
  for (int64_t k : indices(inputs)) {
    if (expected[k]->isTensor()) {
      checkSizes(k, expected[k]->asTensor(), std::get<Tensor>(inputs[k]));
    }
  }
}

void Program::bindTensor(int64_t k, const TensorView* tv, const Argument& argument) {
  const Tensor* tensor = std::get_if<Tensor>(&argument);
  check(tensor != nullptr, "[interpret] {}: got {}, expected a tensor", inputText(tv->fusion(), k), kindOf(argument));
  check(tensor->defined(), "[interpret] {}: the tensor is undefined, expected one with storage",
        inputText(tv->fusion(), k));
  check(tensor->dtype() == tv->dtype(), "[interpret] {}: got {} elements, expected {}; convert with Tensor::to",
        inputText(tv->fusion(), k), name(tensor->dtype()), name(tv->dtype()));
  std::vector<IntExpr> shape = tv->shape();
  check(tensor->dim() == std::ssize(shape), "[interpret] {}: got {} dims {}, expected {}", inputText(tv->fusion(), k),
        tensor->dim(), describe(tensor->sizes()), shape.size());
  for (int64_t d : indices(shape)) {
    bindSymbol(shape[d], tensor->sizes()[d]);
  }
  arrays_.emplace(tv->id(), toArray(*tensor));
}

void Program::bindScalar(int64_t k, const Val* val, const Argument& argument) {
  check(argument.index() != 0, "[interpret] {}: got a tensor, expected a {} scalar", inputText(val->fusion(), k),
        name(val->dtype()));
  Array array = makeArray(val->dtype(), {});
  if (array.floating()) {
    const auto* number = std::get_if<double>(&argument);
    const auto* integer = std::get_if<int64_t>(&argument);
    check(number != nullptr || integer != nullptr, "[interpret] {}: got {}, expected a {} scalar",
          inputText(val->fusion(), k), kindOf(argument), name(val->dtype()));
    array.setReal(0, number != nullptr ? *number : static_cast<double>(*integer));
  } else {
    bool isBool = val->dtype() == DataType::Bool;
    check(argument.index() == (isBool ? 3 : 2), "[interpret] {}: got {}, expected a {} scalar",
          inputText(val->fusion(), k), kindOf(argument), name(val->dtype()));
    array.setWhole(0, isBool ? (std::get<bool>(argument) ? 1 : 0) : std::get<int64_t>(argument));
  }
  if (val->dtype() == DataType::Int) {
    bindSymbol(val->intExpr(), array.whole[0]);
  }
  arrays_.emplace(val->id(), std::move(array));
}

// The first use of a symbol binds it; disagreements are found by checkSizes once all are bound.
void Program::bindSymbol(const IntExpr& expr, int64_t value) {
  if (expr.isSymbol()) {
    const SymbolFacts& facts = expr.terms()[0].factors[0]->facts;
    check(value >= facts.lower && value <= facts.upper && value % facts.divisor == 0,
          "[interpret] the size {} is {}, but the program declares that it is {} to {} and a multiple of {}",
          expr.symbolName(), value, facts.lower, facts.upper, facts.divisor);
    symbols_.emplace(std::string(expr.symbolName()), value);
  }
}

void Program::checkSizes(int64_t k, const TensorView* tv, const Tensor& tensor) const {
  std::vector<IntExpr> shape = tv->shape();
  for (int64_t d : indices(shape)) {
    int64_t wanted = evaluate(shape[d]);
    check(tensor.sizes()[d] == wanted, "[interpret] {}: dim {} has size {}, expected {}{}; got sizes {}",
          inputText(tv->fusion(), k), d, tensor.sizes()[d], wanted,
          shape[d].isConst() ? "" : " (" + shape[d].toString() + ")", describe(tensor.sizes()));
  }
}

int64_t Program::evaluate(const IntExpr& expr) const {
  if (expr.isConst()) {
    return expr.constValue();
  }
  for (const std::string& symbol : expr.symbols()) {
    check(symbols_.contains(symbol),
          "[interpret] the size {} depends on {}, which occurs in no input; add the tensor or scalar that defines it "
          "as an input",
          expr.toString(), symbol);
  }
  return expr.evaluate(valuesIn(symbols_));
}

Sizes Program::evaluateAll(std::span<const IntExpr> exprs) const {
  return mapped(exprs, [this](const IntExpr& expr) { return evaluate(expr); });
}

Sizes Program::sizesOf(const TensorView* tv) const {
  Sizes sizes = evaluateAll(tv->shape());
  check(std::ranges::all_of(sizes, [](int64_t size) { return size >= 0; }),
        "[interpret] T{} would have sizes {}, expected none below 0", tv->id(), describe(sizes));
  return sizes;
}

const Array& Program::scalar(const Val* val) {
  auto found = arrays_.find(val->id());
  if (found != arrays_.end()) {
    return found->second;
  }
  Array array = makeArray(val->dtype(), {});
  if (val->isConst()) {
    ScalarConst value = val->constant();
    if (const auto* number = std::get_if<double>(&value)) {
      array.setReal(0, *number);
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      array.setWhole(0, *integer);
    } else {
      array.setWhole(0, std::get<bool>(value) ? 1 : 0);
    }
  } else {
    check(val->dtype() == DataType::Int, "[interpret] scalar {} is neither computed nor an input; add it with addInput",
          val->toString());
    array.setWhole(0, evaluate(val->intExpr()));
  }
  return arrays_.emplace(val->id(), std::move(array)).first->second;
}

const Array& Program::operand(const Expr* expr, int64_t k) {
  const Val* val = expr->input(k);
  return val->isTensor() ? array(val) : scalar(val);
}

const Array& Program::array(const Val* tensor) const {
  auto found = arrays_.find(tensor->id());
  check(found != arrays_.end(), "[interpret] {} is neither computed nor an input; add it with addInput",
        tensor->toString());
  return found->second;
}

std::vector<int64_t> Program::ids() const {
  return filtered(mapped(fusion_.tensors(), &Val::id), [this](int64_t id) { return arrays_.contains(id); });
}

void Program::run() {
  const std::vector<Expr*> exprs = fusion_.exprs();
  std::map<const Val*, const Expr*> lastUse;  // null: needed at the end
  for (const Expr* expr : exprs) {
    for (const Val* in : expr->inputs()) {
      lastUse[in] = expr;
    }
  }
  for (const Val* out : fusion_.outputs()) {
    lastUse[out] = nullptr;
  }
  for (const auto& [out, in] : fusion_.aliases()) {
    lastUse[in] = nullptr;
  }
  for (const Expr* expr : exprs) {
    Array result = compute(expr);
    const Val* out = expr->output();
    if (!out->isTensor() && out->dtype() == DataType::Int) {
      bindSymbol(out->intExpr(), result.whole[0]);
    }
    arrays_.insert_or_assign(out->id(), std::move(result));
    for (const Val* in : expr->inputs()) {
      if (keep_ == Keep::Results && in->isTensor() && lastUse[in] == expr) {
        arrays_.erase(in->id());
      }
    }
  }
  checkAliases();
}

void Program::checkAliases() const {
  for (const auto& [out, in] : fusion_.aliases()) {
    const Array& from = array(out);
    const Array& to = array(in);
    check(from.sizes == to.sizes,
          "[interpret] output T{} has sizes {}, the input T{} that it overwrites has {}; expected equal ones",
          out->id(), describe(from.sizes), in->id(), describe(to.sizes));
  }
}

Array Program::compute(const Expr* expr) {
  switch (expr->kind()) {
    case ExprKind::Point:
      return computePoint(expr);
    case ExprKind::Cast:
      return castArray(operand(expr, 0), expr->output()->dtype(), context_);
    case ExprKind::BitCast:
      return bitCastArray(operand(expr, 0), expr->output()->dtype());
    case ExprKind::Set:
    case ExprKind::SegmentSet:
    case ExprKind::Broadcast:
    case ExprKind::Squeeze:
    case ExprKind::Expand:
    case ExprKind::Permute:
    case ExprKind::Reshape:
      return computeShape(expr);
    case ExprKind::Slice:
      return computeSlice(expr);
    case ExprKind::Pad:
      return computePad(expr);
    case ExprKind::Cat:
      return computeCat(expr);
    case ExprKind::Reduce:
      return computeReduce(expr);
    case ExprKind::Matmul:
    case ExprKind::Linear:
      return computeContraction(expr);
    case ExprKind::Full:
    case ExprKind::Iota:
    case ExprKind::Eye:
      return computeFactory(expr);
    case ExprKind::Random:
      return computeRandom(expr);
    case ExprKind::TakeAlongAxis:
    case ExprKind::Gather:
    case ExprKind::IndexSelect:
    case ExprKind::Embedding:
      return computeIndexing(expr);
    case ExprKind::Scan:
      return computeScan(expr);
    case ExprKind::ArgSort:
      return computeArgSort(expr);
    case ExprKind::Scatter:
      return computeScatter(expr);
    case ExprKind::IndexPutAccumulate:
      return computeIndexPut(expr);
    case ExprKind::Redistribute:
      return computeRedistribute(expr);
    case ExprKind::Communicate:
      break;
  }
  throwUserError(fmt::format("[interpret] {} moves data between ranks; interpret the fusion before it is localized",
                             expr->opName()));
}

}  // namespace meshfuse::reference
