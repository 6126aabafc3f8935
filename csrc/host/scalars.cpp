#include "host/scalars.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "interpret/array.h"
#include "interpret/point_functions.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

// Rounds towards zero; a value that does not fit, or NaN, gives the minimum. Unsigned types keep the low bits.
int64_t truncated(DataType type, double value) {
  const DataType first = truncationType(type);
  const double limit = std::ldexp(1.0, static_cast<int>(bitWidth(first)) - 1);
  const double whole = std::trunc(value);
  return wrapInteger(type, whole >= -limit && whole < limit ? static_cast<int64_t>(whole) : lowestInteger(first));
}

int64_t asInteger(const Argument& a) {
  if (const int64_t* i = std::get_if<int64_t>(&a)) {
    return *i;
  }
  if (const bool* b = std::get_if<bool>(&a)) {
    return *b ? 1 : 0;
  }
  return truncated(DataType::Int, std::get<double>(a));
}

// Whether an input is the Int scalar with this symbol.
bool isInteger(const Val& in, std::string_view symbol) {
  return !in.isTensor() && in.dtype() == DataType::Int && in.intExpr().isSymbol() &&
         in.intExpr().symbolName() == symbol;
}

}  // namespace

bool isRunTimeInteger(const Fusion& fusion, std::string_view symbol) {
  return std::ranges::any_of(fusion.inputs(), [&](const Val* in) { return isInteger(*in, symbol); });
}

int64_t integerValue(const Fusion& fusion, const IntExpr& expr, std::span<const Argument> inputs) {
  return expr.evaluate([&](std::string_view symbol) -> std::optional<int64_t> {
    for (int64_t i = 0; i < std::ssize(fusion.inputs()); i++) {
      if (isInteger(*fusion.inputs()[i], symbol)) {
        return asInteger(inputs[i]);
      }
    }
    return std::nullopt;
  });
}

int64_t ScalarSteps::add(const Fusion& fusion, const Val* val, const std::map<std::string, int64_t>& values) {
  if (auto it = numberOf_.find(val->id()); it != numberOf_.end()) {
    return it->second;
  }
  Step step;
  step.dtype = val->dtype();
  ScalarConst constant = val->constant();
  auto input = std::find(fusion.inputs().begin(), fusion.inputs().end(), val);
  const Expr* e = val->definition();
  if (const double* d = std::get_if<double>(&constant)) {
    assign(step, *d);
  } else if (const int64_t* i = std::get_if<int64_t>(&constant)) {
    assign(step, *i);
  } else if (const bool* b = std::get_if<bool>(&constant)) {
    assign(step, *b);
  } else if (input != fusion.inputs().end()) {
    step.kind = Kind::Input;
    step.input = input - fusion.inputs().begin();
  } else if (val->dtype() == DataType::Int && (e == nullptr || val->intExpr().isSymbol() == false)) {
    step.kind = Kind::Integer;
    step.integer = val->intExpr().substitute(valuesIn(values));
  } else {
    bool cast = e != nullptr && (e->kind() == ExprKind::Cast || e->kind() == ExprKind::Set);
    invariant(cast || (e != nullptr && e->kind() == ExprKind::Point),
              "[host program] the scalar {} is not computed by a scalar op", val->toString());
    step.kind = cast ? Kind::Cast : Kind::Point;
    for (int64_t k = 0; k < std::ssize(e->inputs()); k++) {
      step.operands[k] = add(fusion, e->input(k), values);
    }
    if (!cast) {
      step.op = e->attributes().point;
      step.type = info(step.op).givesBool ? e->input(0)->dtype() : val->dtype();
    }
  }
  steps_.push_back(step);
  return numberOf_[val->id()] = std::ssize(steps_) - 1;
}

double ScalarSteps::realOf(int64_t number) const {
  const Step& s = steps_[number];
  return isFloatingPoint(s.dtype) ? s.real : static_cast<double>(s.whole);
}

int64_t ScalarSteps::wholeOf(int64_t number) const {
  const Step& s = steps_[number];
  return isFloatingPoint(s.dtype) ? truncated(DataType::Int, s.real) : s.whole;
}

void ScalarSteps::assign(Step& step, const Argument& value) {
  const double* real = std::get_if<double>(&value);
  if (isFloatingPoint(step.dtype)) {
    step.real = reference::roundTo(step.dtype, real != nullptr ? *real : static_cast<double>(asInteger(value)));
  } else if (real != nullptr && step.dtype == DataType::Bool) {
    step.whole = *real != 0 ? 1 : 0;
  } else if (real != nullptr) {
    step.whole = truncated(step.dtype, *real);
  } else {
    step.whole = wrapInteger(step.dtype, asInteger(value));
  }
}

void ScalarSteps::compute(Step& step) const {
  const bool cast = step.kind == Kind::Cast;
  const auto real = [&](size_t k) { return step.operands[k] < 0 ? 0 : realOf(step.operands[k]); };
  const auto whole = [&](size_t k) { return step.operands[k] < 0 ? 0 : wholeOf(step.operands[k]); };
  if (isFloatingPoint(cast ? steps_[step.operands[0]].dtype : step.type)) {
    return assign(step, cast ? real(0) : reference::applyReal(step.op, step.type, real(0), real(1), real(2)));
  }
  assign(step, cast ? whole(0) : reference::applyWhole(step.op, step.type, whole(0), whole(1), whole(2)));
}

void ScalarSteps::run(const Fusion& fusion, std::span<const Argument> inputs) {
  for (Step& step : steps_) {
    switch (step.kind) {
      case Kind::Constant:
        break;
      case Kind::Input:
        assign(step, inputs[step.input]);
        break;
      case Kind::Integer:
        assign(step, integerValue(fusion, step.integer, inputs));
        break;
      case Kind::Cast:
      case Kind::Point:
        compute(step);
        break;
    }
  }
}

uint64_t ScalarSteps::bits(int64_t number, DataType type) const {
  uint64_t bits = 0;
  if (type == DataType::Bool) {
    bits = realOf(number) != 0 ? 1 : 0;
  } else if (isIntegral(type)) {
    bits = static_cast<uint64_t>(wholeOf(number));
  } else {
    storeElement(&bits, type, realOf(number));
  }
  return bits;
}

}  // namespace meshfuse
