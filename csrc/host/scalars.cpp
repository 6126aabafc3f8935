#include "host/scalars.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "interpret/scalar_value.h"

namespace meshfuse {

namespace {

int64_t asInteger(const Argument& a) {
  if (const int64_t* i = std::get_if<int64_t>(&a)) {
    return *i;
  }
  if (const bool* b = std::get_if<bool>(&a)) {
    return *b ? 1 : 0;
  }
  return static_cast<int64_t>(std::get<double>(a));
}

// An argument or constant as it is, else computed.
Argument valueOf(const Fusion& fusion, const Val* val, std::span<const Argument> inputs) {
  ScalarConst constant = val->constant();
  if (const double* d = std::get_if<double>(&constant)) {
    return *d;
  }
  if (const int64_t* i = std::get_if<int64_t>(&constant)) {
    return *i;
  }
  if (const bool* b = std::get_if<bool>(&constant)) {
    return *b;
  }
  auto it = std::find(fusion.inputs().begin(), fusion.inputs().end(), val);
  if (it != fusion.inputs().end()) {
    return inputs[static_cast<size_t>(it - fusion.inputs().begin())];
  }
  if (val->dtype() == DataType::Int) {
    return integerValue(fusion, val->intExpr(), inputs);
  }
  return interpretScalar(fusion, val, inputs);
}

}  // namespace

int64_t integerValue(const Fusion& fusion, const IntExpr& expr, std::span<const Argument> inputs) {
  return expr.evaluate([&](std::string_view symbol) -> std::optional<int64_t> {
    for (size_t i = 0; i < fusion.inputs().size(); i++) {
      const Val* in = fusion.inputs()[i];
      if (!in->isTensor() && in->dtype() == DataType::Int && in->intExpr().isSymbol() && in->intExpr().symbolName() == symbol) {
        return asInteger(inputs[i]);
      }
    }
    return std::nullopt;
  });
}

uint64_t scalarBits(const Fusion& fusion, const Val* val, DataType type, std::span<const Argument> inputs) {
  Argument value = valueOf(fusion, val, inputs);
  uint64_t bits = 0;
  if (isIntegral(type) || type == DataType::Bool) {
    int64_t i = asInteger(value);
    if (const double* d = std::get_if<double>(&value)) {
      i = type == DataType::Bool ? *d != 0 : static_cast<int64_t>(*d);
    }
    bits = static_cast<uint64_t>(type == DataType::Bool ? i != 0 : i);
  } else {
    const double* d = std::get_if<double>(&value);
    storeElement(&bits, type, d != nullptr ? *d : static_cast<double>(asInteger(value)));
  }
  return bits;
}

}  // namespace meshfuse
