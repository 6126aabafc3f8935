// What the rest of the code asks of element types.
#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace meshfuse {
namespace {

using enum DataType;

TEST(DType, RowsStandInTheOrderOfTheEnum) {
  for (size_t i = 0; i < kDataTypes.size(); i++) {
    EXPECT_EQ(static_cast<size_t>(kDataTypes[i].type), i);
    EXPECT_EQ(parseDataType(kDataTypes[i].name), kDataTypes[i].type);
  }
  EXPECT_FALSE(parseDataType("Int16").has_value());
}

TEST(DType, RangesAndWrapping) {
  EXPECT_EQ(lowestInteger(Int), INT64_MIN);
  EXPECT_EQ(highestInteger(Int), INT64_MAX);
  EXPECT_EQ(lowestInteger(Int32), INT32_MIN);
  EXPECT_EQ(highestInteger(Short), 32767);
  EXPECT_EQ(lowestInteger(Char), -128);
  EXPECT_EQ(highestInteger(Char), 127);
  EXPECT_EQ(lowestInteger(Bool), 0);
  EXPECT_EQ(highestInteger(Bool), 1);
  EXPECT_EQ(wrapInteger(Char, 128), -128);
  EXPECT_EQ(wrapInteger(Char, -129), 127);
  EXPECT_EQ(wrapInteger(Short, 65535), -1);
  EXPECT_EQ(wrapInteger(Int32, int64_t{1} << 31), INT32_MIN);
  EXPECT_EQ(wrapInteger(Int, INT64_MIN), INT64_MIN);
  EXPECT_EQ(wrapInteger(Bool, 256), 1);
  EXPECT_EQ(lowestInteger(Byte), 0);
  EXPECT_EQ(highestInteger(Byte), 255);
  EXPECT_EQ(lowestInteger(UInt16), 0);
  EXPECT_EQ(highestInteger(UInt16), 65535);
  EXPECT_EQ(wrapInteger(Byte, -1), 255);
  EXPECT_EQ(wrapInteger(Byte, 256), 0);
  EXPECT_EQ(wrapInteger(UInt16, -32768), 32768);
}

TEST(DType, WiderTypes) {
  EXPECT_EQ(accumulateType(Half), Float);
  EXPECT_EQ(accumulateType(BFloat16), Float);
  EXPECT_EQ(accumulateType(Char), Char);
  EXPECT_EQ(wideType(BFloat16), Double);
  EXPECT_EQ(wideType(Short), Int);
  EXPECT_EQ(wideType(Bool), Bool);
}

TEST(DType, ElementsHaveTheSizeOfTheirCppType) {
  for (const DataTypeInfo& row : kDataTypes) {
    withElementType(row.type, [&]<class T>() {
      EXPECT_EQ(static_cast<int>(sizeof(T)), row.size) << row.name;
      constexpr bool kFloating = std::is_floating_point_v<T> || std::is_same_v<T, Float16Bits>;
      EXPECT_EQ(kFloating, isFloatingPoint(row.type)) << row.name;
    });
  }
}

}  // namespace
}  // namespace meshfuse
