// The rows of point_tables.h as operands and results.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/point_op.h"
#include "point_tables.h"
#include "tensor/dtype.h"

namespace meshfuse {

// The operands and the result of a row as real numbers, or as integers.
struct PointValue {
  PointOp op;
  std::array<double, 3> real{};
  std::array<int64_t, 3> whole{};
  double realResult = 0;
  int64_t wholeResult = 0;
  bool isExact = true;
  std::string text;  // the row
};

// A number of a table; L, H, M (one below H), V and W of the type `dtype`.
inline int64_t wholeOf(const std::string& text, DataType dtype) {
  static constexpr struct {
    DataType dtype;
    int64_t bits, least, greatest;
  } kRanges[] = {{DataType::Char, 8, -128, 127},
                 {DataType::Short, 16, -32768, 32767},
                 {DataType::Int32, 32, -2147483648, 2147483647},
                 {DataType::Int, 64, -9223372036854775807 - 1, 9223372036854775807},
                 {DataType::Byte, 8, 0, 255},
                 {DataType::UInt16, 16, 0, 65535}};
  for (const auto& [of, bits, least, greatest] : kRanges) {
    if (of == dtype && text.find_first_of("LHMVW") != std::string::npos) {
      return text == "L" ? least : text == "H" ? greatest : text == "M" ? greatest - 1 : text == "W" ? bits : bits - 1;
    }
  }
  return std::strtoll(text.c_str(), nullptr, 10);
}

// Whether `got` is the result of the row: to the bit, or within so many units in the last place of a rounded one.
inline bool agrees(const PointValue& row, DataType dtype, double got, double ulps) {
  const double result = row.realResult;
  if (std::isnan(result) || std::isnan(got)) {
    return std::isnan(result) && std::isnan(got);
  }
  if (row.isExact) {
    return got == result && std::signbit(got) == std::signbit(result);
  }
  return std::abs(got - result) <= (ulps + 0.5) * std::ldexp(1, std::ilogb(result) + 1 - info(dtype).mantissaBits);
}

// The rows of a type's tables.
inline std::vector<PointValue> pointValues(DataType dtype) {
  std::string tables = dtype == DataType::Bool     ? kBoolValues
                       : dtype == DataType::Float  ? std::string(kRealValues) + kFloatValues
                       : dtype == DataType::Double ? std::string(kRealValues) + kDoubleValues
                       : isUnsigned(dtype)         ? kUnsignedValues
                                                   : std::string(kIntegerValues) + kIntegerEnds;
  std::vector<PointValue> values;
  std::istringstream words(tables);
  PointValue row;
  int64_t operand = 0;
  for (std::string word; words >> word;) {
    row.text += word + " ";
    if (word == "=" || word == "~") {
      row.isExact = word == "=";
      operand = 3;
    } else if (word.back() == ':') {
      const std::optional<PointOp> op = parsePointOp(word.substr(0, word.size() - 1));
      check(op.has_value(), "[point values] no op is called {}", word);
      row = {.op = *op, .text = word + " "};
      operand = 0;
    } else {
      const bool isLast = operand == 3;
      (isLast ? row.realResult : row.real.at(operand)) = std::strtod(word.c_str(), nullptr);
      word.erase(word.find_last_not_of(",;") + 1);
      (isLast ? row.wholeResult : row.whole.at(operand)) = wholeOf(word, dtype);
      operand++;
      if (isLast) {
        values.push_back(row);
        row = {.op = row.op, .text = std::string(info(row.op).name) + ": "};
        operand = 0;
      }
    }
  }
  return values;
}

}  // namespace meshfuse
