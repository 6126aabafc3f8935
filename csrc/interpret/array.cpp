#include "interpret/array.h"

#include <fmt/ranges.h>

#include <cmath>

#include "tensor/half.h"

namespace meshfuse::reference {

double roundTo(DataType dtype, double value) {
  if (isHalfPrecision(dtype)) {
    return float16ToFloat(dtype, floatToFloat16(dtype, roundToOdd(value)));
  }
  return dtype == DataType::Float ? static_cast<float>(value) : value;
}

int64_t Array::numel() const { return product(sizes); }

void Array::setReal(int64_t i, double value) { real[i] = roundTo(dtype, value); }
void Array::setWhole(int64_t i, int64_t value) { whole[i] = wrapInteger(dtype, value); }
void Array::setError(int64_t i, double value) {
  if (error.empty()) {
    error.assign(numel(), 0);
  }
  error[i] = std::isnan(value) ? kInfinity : value;
}
void Array::setUncertain(int64_t i) {
  setError(i, kInfinity);
  uncertain++;
}

Array makeArray(DataType dtype, Sizes sizes) {
  Array result;
  result.dtype = dtype;
  result.sizes = std::move(sizes);
  if (result.floating()) {
    result.real.resize(result.numel());
  } else {
    result.whole.resize(result.numel());
  }
  return result;
}

Array toArray(const Tensor& tensor) {
  Array result = makeArray(tensor.dtype(), Sizes(tensor.sizes().begin(), tensor.sizes().end()));
  std::vector<int64_t> offsets = stridedOffsets(tensor.sizes(), tensor.strides());
  const auto* base = tensor.data_as<const char>();
  for (size_t i = 0; i < offsets.size(); i++) {
    const char* address = base + offsets[i] * dataTypeSize(tensor.dtype());
    if (result.floating()) {
      result.real[i] = loadElement(address, tensor.dtype());
    } else {
      result.whole[i] = loadInteger(address, tensor.dtype());
    }
  }
  return result;
}

Tensor toTensor(const Array& array) {
  Tensor tensor = Tensor::empty(array.sizes, array.dtype);
  auto* base = tensor.data_as<char>();
  for (int64_t i = 0; i < array.numel(); i++) {
    char* address = base + i * dataTypeSize(array.dtype);
    if (array.floating()) {
      storeElement(address, array.dtype, array.real[i]);
    } else {
      storeInteger(address, array.dtype, array.whole[i]);
    }
  }
  return tensor;
}

int64_t product(std::span<const int64_t> sizes) {
  int64_t total = 1;
  for (int64_t size : sizes) {
    total *= size;
  }
  return total;
}

std::string describe(std::span<const int64_t> sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

void forEachPosition(std::span<const int64_t> sizes,
                     const std::function<void(int64_t, std::span<const int64_t>)>& visit) {
  int64_t total = product(sizes);
  std::vector<int64_t> position(sizes.size(), 0);
  for (int64_t i = 0; i < total; i++) {
    visit(i, position);
    for (size_t k = sizes.size(); k-- > 0;) {
      if (++position[k] < sizes[k]) {
        break;
      }
      position[k] = 0;
    }
  }
}

std::vector<int64_t> stridedOffsets(std::span<const int64_t> sizes, std::span<const int64_t> strides, int64_t offset) {
  int64_t total = product(sizes);
  std::vector<int64_t> offsets;
  offsets.reserve(total);
  std::vector<int64_t> position(sizes.size(), 0);
  for (int64_t i = 0; i < total; i++) {
    offsets.push_back(offset);
    for (size_t k = sizes.size(); k-- > 0;) {
      offset += strides[k];
      if (++position[k] < sizes[k]) {
        break;
      }
      offset -= strides[k] * sizes[k];
      position[k] = 0;
    }
  }
  return offsets;
}

Array take(const Array& source, Sizes sizes, std::span<const int64_t> offsets, const Array* fill) {
  Array result = makeArray(source.dtype, std::move(sizes));
  for (size_t i = 0; i < offsets.size(); i++) {
    int64_t from = offsets[i];
    if (result.floating()) {
      result.real[i] = from < 0 ? roundTo(result.dtype, fill->value(0)) : source.real[from];
    } else {
      result.whole[i] = from < 0 ? wrapInteger(result.dtype, fill->integer(0)) : source.whole[from];
    }
    if (from >= 0 && !source.error.empty()) {
      result.setError(static_cast<int64_t>(i), source.error[from]);
    }
  }
  return result;
}

}  // namespace meshfuse::reference
