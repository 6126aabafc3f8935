#include "tile/call.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tile/interpreter.h"
#include "tile/scalar.h"

namespace meshfuse::tile {

namespace {

constexpr size_t kGuard = 128;
constexpr char kGuardByte = 0x5a;

int64_t bytes(const Program& p, int tensor, int64_t elements) {
  return elements * dataTypeSize(p.tensors[tensor].dtype);
}

}  // namespace

Call::Call(const Example& example, uint64_t seed)
    : program_(example.program), sizes_(example.sizes), scalars_(example.scalars) {
  std::mt19937_64 random(seed);
  auto valueOf = [&](std::string_view name) -> std::optional<int64_t> {
    for (size_t i = 0; i < sizes_.size(); i++) {
      if (program_.sizes[i].name == name) {
        return sizes_[i];
      }
    }
    return std::nullopt;
  };
  for (size_t i = 0; i < program_.tensors.size(); i++) {
    const TensorParam& t = program_.tensors[i];
    if (t.memory == Memory::Scratch) {
      elements_.push_back(0);
      data_.push_back(nullptr);
      continue;
    }
    int64_t count = 1;
    for (size_t d = 0; d < t.extents.size(); d++) {
      int64_t extent = t.extents[d].evaluate(valueOf);
      count = extent == 0 || count == 0 ? 0 : count + (extent - 1) * t.strides[d].evaluate(valueOf);
    }
    auto size = static_cast<size_t>(bytes(program_, static_cast<int>(i), count));
    storage_.emplace_back(new char[size + 2 * kGuard + 64]);
    char* begin = storage_.back().get();
    std::memset(begin, kGuardByte, size + 2 * kGuard + 64);
    char* base = begin + kGuard;
    base += (64 - reinterpret_cast<uintptr_t>(base) % 64) % 64;
    elements_.push_back(count);
    data_.push_back(base);
    bool input = t.memory == Memory::Input || t.memory == Memory::InOut;
    for (int64_t e = 0; e < count; e++) {
      double value = isFloatingPoint(t.dtype) ? std::numeric_limits<double>::quiet_NaN() : -1;
      if (input) {
        value = isFloatingPoint(t.dtype) ? std::uniform_real_distribution<double>(-2, 2)(random)
                                         : static_cast<double>(random() % (t.dtype == DataType::Bool ? 2 : 10));
      }
      set(static_cast<int>(i), e, t.zeroed ? 0 : value);
    }
  }
}

std::vector<uint64_t> Call::slots() const {
  std::vector<void*> pointers;
  for (size_t i = 0; i < data_.size(); i++) {
    if (program_.tensors[i].memory != Memory::Scratch) {
      pointers.push_back(data_[i]);
    }
  }
  return packSlots(program_, pointers, sizes_, scalars_);
}

std::vector<double> Call::values(int tensor) const {
  DataType dtype = program_.tensors[tensor].dtype;
  std::vector<double> values;
  for (int64_t e = 0; e < elements(tensor); e++) {
    Scalar s = readElement(static_cast<const char*>(data(tensor)) + bytes(program_, tensor, e), dtype);
    values.push_back(isFloatingPoint(dtype) ? s.real : static_cast<double>(s.integer));
  }
  return values;
}

void Call::set(int tensor, int64_t element, double value) {
  DataType dtype = program_.tensors[tensor].dtype;
  Scalar s = isFloatingPoint(dtype) ? castScalar(realScalar(value), DataType::Double, dtype)
                                    : integerScalar(static_cast<int64_t>(value));
  writeElement(static_cast<char*>(data(tensor)) + bytes(program_, tensor, element), dtype, s);
}

bool Call::guardsIntact() const {
  size_t next = 0;
  for (size_t i = 0; i < data_.size(); i++) {
    if (data_[i] == nullptr) {
      continue;
    }
    const char* begin = storage_[next++].get();
    const char* first = static_cast<const char*>(data_[i]);
    const char* last = first + bytes(program_, static_cast<int>(i), elements_[i]);
    auto intact = [](char c) { return c == kGuardByte; };
    if (!std::all_of(begin, first, intact) || !std::all_of(last, last + kGuard - 64, intact)) {
      return false;
    }
  }
  return true;
}

}  // namespace meshfuse::tile
