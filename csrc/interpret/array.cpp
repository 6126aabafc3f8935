#include "interpret/array.h"

#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "tensor/half.h"

namespace meshfuse::reference {

double roundTo(DataType dtype, double value) {
  if (isHalfPrecision(dtype)) {
    return float16ToFloat(dtype, floatToFloat16(dtype, roundToOdd(value)));
  }
  return dtype == DataType::Float ? static_cast<float>(value) : value;
}

int64_t Array::numel() const { return productOf(sizes); }

void Array::setReal(int64_t i, double value) { real[i] = roundTo(dtype, value); }
void Array::setWhole(int64_t i, int64_t value) { whole[i] = wrapInteger(dtype, value); }
void Array::set(int64_t i, const Array& source, int64_t from) {
  if (!floating()) {
    setWhole(i, source.integer(from));
  } else if (source.dtype == dtype) {
    real[i] = source.real[from];
  } else {
    setReal(i, source.value(from));
  }
}
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

Array toArray(const Tensor& source) {
  const Tensor tensor = source.to(DeviceId::cpu());
  Array result = makeArray(tensor.dtype(), Sizes(tensor.sizes().begin(), tensor.sizes().end()));
  std::vector<int64_t> offsets = stridedOffsets(tensor.sizes(), tensor.strides());
  const auto* base = tensor.data_as<const char>();
  for (int64_t i : indices(offsets)) {
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
  Tensor tensor = Tensor::empty(array.sizes, array.dtype, DeviceId::cpu());
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

std::string describe(std::span<const int64_t> sizes) { return fmt::format("[{}]", fmt::join(sizes, ", ")); }

std::vector<int64_t> stridedOffsets(std::span<const int64_t> sizes, std::span<const int64_t> strides, int64_t offset) {
  if (productOf(sizes) == 0) {
    return {};
  }
  std::vector<int64_t> offsets = {offset};
  for (int64_t k = 0; k < std::ssize(sizes); k++) {
    std::vector<int64_t> next;
    next.reserve(offsets.size() * sizes[k]);
    for (int64_t first : offsets) {
      for (int64_t i = 0; i < sizes[k]; i++) {
        next.push_back(first + i * strides[k]);
      }
    }
    offsets = std::move(next);
  }
  return offsets;
}

Array take(const Array& source, Sizes sizes, std::span<const int64_t> offsets, const Array* fill) {
  Array result = makeArray(source.dtype, std::move(sizes));
  const int64_t end = source.numel();
  for (int64_t i : indices(offsets)) {
    if (offsets[i] < 0 && fill != nullptr) {
      result.set(i, *fill, 0);
      continue;
    }
    if (offsets[i] < 0 || offsets[i] >= end) [[unlikely]] {
      throwInternalError(fmt::format("[interpret] element {} of {} is read", offsets[i], end));
    }
    result.set(i, source, offsets[i]);
    if (!source.error.empty()) {
      result.setError(i, source.error[offsets[i]]);
    }
  }
  return result;
}

}  // namespace meshfuse::reference
