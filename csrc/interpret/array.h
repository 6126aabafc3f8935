// Elements in the wide types in which the interpreter computes (double, int64), with their error bounds.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace meshfuse::reference {

using Sizes = std::vector<int64_t>;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Array {
  DataType dtype = DataType::Double;
  Sizes sizes;
  std::vector<double> real;    // floating types
  std::vector<int64_t> whole;  // integers and Bool
  std::vector<double> error;   // empty: exact
  int64_t uncertain = 0;

  bool floating() const { return isFloatingPoint(dtype); }
  int64_t numel() const;
  double value(int64_t i) const { return floating() ? real[i] : static_cast<double>(whole[i]); }
  int64_t integer(int64_t i) const { return floating() ? static_cast<int64_t>(real[i]) : whole[i]; }
  double errorAt(int64_t i) const { return error.empty() ? 0 : error[i]; }
  // Rounds to dtype and stores.
  void setReal(int64_t i, double value);
  void setWhole(int64_t i, int64_t value);
  void set(int64_t i, const Array& source, int64_t from);  // source's element number `from`, without its error
  void setError(int64_t i, double value);                  // NaN is stored as infinity
  void setUncertain(int64_t i);                            // any value is possible
};

// Zeros of a type and shape.
[[nodiscard]] Array makeArray(DataType dtype, Sizes sizes);
[[nodiscard]] Array toArray(const Tensor& tensor);
[[nodiscard]] Tensor toTensor(const Array& array);

// `value` rounded once to a floating type, to nearest even.
[[nodiscard]] double roundTo(DataType dtype, double value);

[[nodiscard]] std::string describe(std::span<const int64_t> sizes);  // [2, 3]
// Offsets into a source of every position of `sizes` in row-major order: the sum of position[k] * strides[k], plus offset.
[[nodiscard]] std::vector<int64_t> stridedOffsets(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                                                  int64_t offset = 0);

// result[i] = source[offsets[i]], values and bounds; where the offset is negative, fill's only element.
[[nodiscard]] Array take(const Array& source, Sizes sizes, std::span<const int64_t> offsets,
                         const Array* fill = nullptr);

}  // namespace meshfuse::reference
