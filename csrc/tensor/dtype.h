// Element types and what is known of each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace meshfuse {

enum class DataType : uint8_t { Double, Float, Half, BFloat16, Int, Int32, Bool };

struct DataTypeInfo {
  DataType type;
  std::string_view name;   // as printed: `Float`
  std::string_view token;  // as in kernels and files: `f32`
  int size;                // bytes
  bool floating;
  int mantissaBits;  // of a floating type, the implicit one included; else 0
};

inline constexpr std::array<DataTypeInfo, 7> kDataTypes = {{
    {DataType::Double, "Double", "f64", 8, true, 53},
    {DataType::Float, "Float", "f32", 4, true, 24},
    {DataType::Half, "Half", "f16", 2, true, 11},
    {DataType::BFloat16, "BFloat16", "bf16", 2, true, 8},
    {DataType::Int, "Int", "i64", 8, false, 0},
    {DataType::Int32, "Int32", "i32", 4, false, 0},
    {DataType::Bool, "Bool", "b8", 1, false, 0},
}};

constexpr const DataTypeInfo& info(DataType t) { return kDataTypes[static_cast<size_t>(t)]; }
constexpr int dataTypeSize(DataType t) { return info(t).size; }
constexpr std::string_view name(DataType t) { return info(t).name; }
constexpr bool isFloatingPoint(DataType t) { return info(t).floating; }
constexpr bool isIntegral(DataType t) { return t == DataType::Int || t == DataType::Int32; }
constexpr bool isHalfPrecision(DataType t) { return t == DataType::Half || t == DataType::BFloat16; }

// The type whose printed name is `text`, if any.
[[nodiscard]] constexpr std::optional<DataType> parseDataType(std::string_view text) {
  for (const DataTypeInfo& i : kDataTypes) {
    if (i.name == text) {
      return i.type;
    }
  }
  return std::nullopt;
}

}  // namespace meshfuse
