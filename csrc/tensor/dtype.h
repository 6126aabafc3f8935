// Element types. The row in kDataTypes and the line in withElementType define a type; all other code uses the functions below.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace meshfuse {

enum class DataType : uint8_t { Double, Float, Half, BFloat16, Int, Int32, Short, Char, UInt16, Byte, Bool };

enum class TypeCategory : uint8_t { Bool, Integer, Floating };  // in the order of promotion

struct DataTypeInfo {
  DataType type;
  std::string_view name;   // as printed: `Float`
  std::string_view token;  // as in kernels and files: `f32`
  int64_t size;            // bytes
  TypeCategory category;
  int64_t mantissaBits;  // of a floating type, with the implicit bit; else 0
  uint8_t dlpackCode;    // https://dmlc.github.io/dlpack/latest/c_api.html, DLDataTypeCode
  std::string_view npy;  // `descr` of NumPy files; NumPy has no bfloat16: <V2 is how the package ml_dtypes writes it
};

inline constexpr std::array<DataTypeInfo, 11> kDataTypes = {{
    {DataType::Double, "Double", "f64", 8, TypeCategory::Floating, 53, 2, "<f8"},
    {DataType::Float, "Float", "f32", 4, TypeCategory::Floating, 24, 2, "<f4"},
    {DataType::Half, "Half", "f16", 2, TypeCategory::Floating, 11, 2, "<f2"},
    {DataType::BFloat16, "BFloat16", "bf16", 2, TypeCategory::Floating, 8, 4, "<V2"},
    {DataType::Int, "Int", "i64", 8, TypeCategory::Integer, 0, 0, "<i8"},
    {DataType::Int32, "Int32", "i32", 4, TypeCategory::Integer, 0, 0, "<i4"},
    {DataType::Short, "Short", "i16", 2, TypeCategory::Integer, 0, 0, "<i2"},
    {DataType::Char, "Char", "i8", 1, TypeCategory::Integer, 0, 0, "|i1"},
    {DataType::UInt16, "UInt16", "u16", 2, TypeCategory::Integer, 0, 1, "<u2"},
    {DataType::Byte, "Byte", "u8", 1, TypeCategory::Integer, 0, 1, "|u1"},
    {DataType::Bool, "Bool", "b8", 1, TypeCategory::Bool, 0, 6, "|b1"},
}};

constexpr const DataTypeInfo& info(DataType t) { return kDataTypes[static_cast<size_t>(t)]; }
constexpr int64_t dataTypeSize(DataType t) { return info(t).size; }
constexpr int64_t bitWidth(DataType t) { return 8 * info(t).size; }
constexpr std::string_view name(DataType t) { return info(t).name; }
constexpr bool isFloatingPoint(DataType t) { return info(t).category == TypeCategory::Floating; }
constexpr bool isIntegral(DataType t) { return info(t).category == TypeCategory::Integer; }
constexpr bool isUnsigned(DataType t) {
  return info(t).dlpackCode == 1;
}  // integers from 0; all are less than 64 bits wide
constexpr bool isHalfPrecision(DataType t) { return isFloatingPoint(t) && info(t).size == 2; }  // Half, BFloat16

// The type in which elements are computed and added up: Float for 16-bit floating types, else `t`.
constexpr DataType accumulateType(DataType t) { return isHalfPrecision(t) ? DataType::Float : t; }
// The type of scalars in the category of `t`, its widest type: Double, Int or Bool.
constexpr DataType wideType(DataType t) {
  return isFloatingPoint(t) ? DataType::Double : isIntegral(t) ? DataType::Int : DataType::Bool;
}

// `value` modulo 2^width, in the range of an integer type; of Bool whether it is not 0.
constexpr int64_t wrapInteger(DataType t, int64_t value) {
  const int64_t unused = 64 - bitWidth(t);
  const uint64_t high = static_cast<uint64_t>(value) << unused;
  return t == DataType::Bool ? (value != 0 ? 1 : 0)
         : isUnsigned(t)     ? static_cast<int64_t>(high >> unused)
                             : static_cast<int64_t>(high) >> unused;
}
// The range of an integer type; of Bool 0 and 1.
constexpr int64_t lowestInteger(DataType t) {
  return t == DataType::Bool || isUnsigned(t) ? 0 : INT64_MIN >> (64 - bitWidth(t));
}
constexpr int64_t highestInteger(DataType t) {
  return isUnsigned(t) ? wrapInteger(t, -1) : t == DataType::Bool ? 1 : INT64_MAX >> (64 - bitWidth(t));
}
// The integer type that a floating value is truncated to on its way to integer type `t`: `t`, but Int for unsigned types, which keep the
// low bits of it. So -1.5 becomes 255 as a Byte, as in PyTorch.
constexpr DataType truncationType(DataType t) { return isUnsigned(t) ? DataType::Int : t; }

// The bits of an element of a 16-bit floating type.
struct Float16Bits {
  uint16_t bits;
};

// Calls visit.operator()<T>() with the C++ type T of an element. C++ has no 16-bit floating types: there T is Float16Bits.
template <class Visit>
constexpr decltype(auto) withElementType(DataType t, Visit&& visit) {
  switch (t) {
    case DataType::Double:
      return visit.template operator()<double>();
    case DataType::Float:
      return visit.template operator()<float>();
    case DataType::Half:
    case DataType::BFloat16:
      return visit.template operator()<Float16Bits>();
    case DataType::Int:
      return visit.template operator()<int64_t>();
    case DataType::Int32:
      return visit.template operator()<int32_t>();
    case DataType::Short:
      return visit.template operator()<int16_t>();
    case DataType::Char:
      return visit.template operator()<int8_t>();
    case DataType::UInt16:
      return visit.template operator()<uint16_t>();
    case DataType::Byte:
      return visit.template operator()<uint8_t>();
    case DataType::Bool:
      break;
  }
  return visit.template operator()<bool>();
}

// The type whose printed name is `text`, if any.
[[nodiscard]] constexpr std::optional<DataType> parseDataType(std::string_view text) {
  const auto* row = std::ranges::find(kDataTypes, text, &DataTypeInfo::name);
  return row == kDataTypes.end() ? std::nullopt : std::optional(row->type);
}

}  // namespace meshfuse
