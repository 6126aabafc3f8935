// The functions of the reference interpreter against results that are written down.
#include <gtest/gtest.h>

#include <cstdint>

#include "interpret/array.h"
#include "interpret/point_functions.h"
#include "point_values.h"

namespace meshfuse::reference {
namespace {

TEST(PointFunctions, GiveTheValuesThatAreWrittenDown) {
  for (const DataTypeInfo& type : kDataTypes) {
    const DataType dtype = type.type;
    if (isHalfPrecision(dtype)) {
      continue;
    }
    for (const PointValue& row : pointValues(dtype)) {
      if (isFloatingPoint(dtype)) {
        const auto [a, b, c] = row.real;
        const double got = roundTo(dtype, applyReal(row.op, dtype, a, b, c));
        EXPECT_TRUE(agrees(row, dtype, got, 2)) << name(dtype) << " " << row.text << "got " << got;
      } else {
        const auto [a, b, c] = row.whole;
        const int64_t got =
            wrapInteger(info(row.op).givesBool ? DataType::Bool : dtype, applyWhole(row.op, dtype, a, b, c));
        EXPECT_EQ(got, row.wholeResult) << name(dtype) << " " << row.text;
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse::reference
