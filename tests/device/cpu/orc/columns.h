// Columns of elements, and programs and compiled kernels that go over them.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "device/cpu/orc/cpu_compiler.h"
#include "tensor/half.h"
#include "tile/builder.h"

namespace meshfuse {

using Real = long double;
using Wide = __int128;

// Y[i] = make(values of the inputs at i), over vectors of 16, four at a time, with a masked rest.
[[nodiscard]] tile::Program elementwise(
    const std::string& name, const std::vector<DataType>& inputs, DataType output,
    const std::function<tile::ValueId(tile::Builder&, const std::vector<tile::ValueId>&)>& make);

// Elements of a type as their bits.
class Column {
 public:
  Column(DataType dtype, size_t n) : dtype_(dtype), bytes_(n * static_cast<size_t>(dataTypeSize(dtype)) + 128), n_(n) {}
  void* data() { return bytes_.data() + (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64; }
  size_t size() const { return n_; }
  Real real(size_t i) {
    switch (dtype_) {
      case DataType::Double:
        return at<double>(i);
      case DataType::Float:
        return at<float>(i);
      case DataType::Half:
        return halfToFloat(at<uint16_t>(i));
      case DataType::BFloat16:
        return bfloat16ToFloat(at<uint16_t>(i));
      default:
        return static_cast<Real>(integer(i));
    }
  }
  Wide integer(size_t i) {
    return dtype_ == DataType::Int      ? Wide{at<int64_t>(i)}
           : dtype_ == DataType::Int32  ? Wide{at<int32_t>(i)}
           : dtype_ == DataType::Short  ? Wide{at<int16_t>(i)}
           : dtype_ == DataType::Char   ? Wide{at<int8_t>(i)}
           : dtype_ == DataType::UInt16 ? Wide{at<uint16_t>(i)}
                                        : Wide{at<uint8_t>(i)};
  }
  // The element as a real number of a floating type, or as an integer.
  void set(size_t i, double real, int64_t whole) {
    switch (dtype_) {
      case DataType::Double:
        return put<double>(i, real);
      case DataType::Float:
        return put<float>(i, static_cast<float>(real));
      case DataType::Int:
        return put<int64_t>(i, whole);
      case DataType::Int32:
        return put<int32_t>(i, static_cast<int32_t>(whole));
      case DataType::Short:
        return put<int16_t>(i, static_cast<int16_t>(whole));
      case DataType::UInt16:
        return put<uint16_t>(i, static_cast<uint16_t>(whole));
      case DataType::Char:
      case DataType::Byte:
      case DataType::Bool:
        return put<int8_t>(i, static_cast<int8_t>(whole));
      case DataType::Half:
      case DataType::BFloat16:
        throwInternalError("[columns] 16-bit numbers are put as their bits");
    }
  }
  template <class T>
  T at(size_t i) {
    T v;
    std::memcpy(&v, static_cast<char*>(data()) + i * sizeof(T), sizeof(T));
    return v;
  }
  template <class T>
  void put(size_t i, T v) {
    std::memcpy(static_cast<char*>(data()) + i * sizeof(T), &v, sizeof(T));
  }

 private:
  DataType dtype_;
  std::vector<unsigned char> bytes_;
  size_t n_;
};

void run(const CpuKernel& kernel, std::vector<Column>& columns, Column& output);

}  // namespace meshfuse
