#include "tensor/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <ranges>

#include "base/error.h"
#include "base/exact.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "tensor/allocator.h"

namespace meshfuse {

namespace {

std::string listText(std::span<const int64_t> values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

// The bytes of an array without gaps. Dims of size 0 count as 1: then no product of some of the sizes overflows, and so no stride.
std::optional<int64_t> bytesOf(std::span<const int64_t> sizes, DataType dtype) {
  std::optional<int64_t> bytes = dataTypeSize(dtype);
  for (const int64_t s : sizes) {
    bytes = bytes ? multipliedIfExact(*bytes, std::max<int64_t>(s, 1)) : std::nullopt;
  }
  return bytes;
}

// The number of elements, of sizes that a tensor may have: no size is negative, and the bytes of its elements fit in 64 bits.
int64_t countElements(std::span<const int64_t> sizes, DataType dtype) {
  if (std::ranges::any_of(sizes, [](int64_t s) { return s < 0; })) [[unlikely]] {
    throwUserError(fmt::format("[tensor] sizes {} contain a negative size; expected at least 0", listText(sizes)));
  }
  if (!bytesOf(sizes, dtype)) [[unlikely]] {
    throwUserError(
        fmt::format("[tensor] sizes {} of {} have more than 2^63 bytes; expected fewer", listText(sizes), name(dtype)));
  }
  return productOf(sizes);
}

// The offsets of all elements, in bytes, must fit in 64 bits.
void checkOffsets(std::span<const int64_t> sizes, std::span<const int64_t> strides, DataType dtype) {
  std::optional<int64_t> farthest = 0;
  for (const int64_t k : indices(sizes)) {
    const std::optional<int64_t> offset = multipliedIfExact(std::max<int64_t>(sizes[k] - 1, 0), strides[k]);
    const std::optional<int64_t> size =
        offset && *offset != INT64_MIN ? std::optional(std::abs(*offset)) : std::nullopt;
    farthest = size && farthest ? addedIfExact(*farthest, *size) : std::nullopt;
  }
  const bool fits = farthest && *farthest < INT64_MAX && multipliedIfExact(*farthest + 1, dataTypeSize(dtype));
  if (!fits) [[unlikely]] {
    throwUserError(
        fmt::format("[tensor] strides {} for sizes {} of {} lead to offsets of more than 2^63 bytes; expected fewer",
                    listText(strides), listText(sizes), name(dtype)));
  }
}

// The host reads the memory of another device from the first element on.
void checkStrides(const DeviceMemory* memory, std::span<const int64_t> strides) {
  if (memory != nullptr && std::ranges::any_of(strides, [](int64_t s) { return s < 0; })) {
    throwUserError(fmt::format("[tensor] strides {} of a tensor that is not on the CPU; expected none below 0",
                               listText(strides)));
  }
}

int64_t wrapAxis(int64_t axis, int64_t dim, const char* what) {
  check(axis >= -dim && axis < dim, "[{}] axis {} of a tensor of {} dims; expected {} to {}", what, axis, dim, -dim,
        dim - 1);
  return axis < 0 ? axis + dim : axis;
}

// Calls body(from, to) for each row of the innermost dim, in row-major order, with the offsets of its first element under both strides.
template <class Body>
void forEachRow(std::span<const int64_t> sizes, std::span<const int64_t> fromStrides,
                std::span<const int64_t> toStrides, Body body) {
  if (contains(sizes, 0)) {
    return;
  }
  int64_t from = 0;
  int64_t to = 0;
  std::array<int64_t, 16> few{};
  std::vector<int64_t> many(sizes.size() > few.size() ? sizes.size() : 0);
  const std::span<int64_t> position(many.empty() ? std::span<int64_t>(few) : std::span<int64_t>(many));
  int64_t d = 0;
  do {
    body(from, to);
    for (d = std::ssize(sizes) - 2; d >= 0; d--) {
      from += fromStrides[d];
      to += toStrides[d];
      if (++position[d] < sizes[d]) {
        break;
      }
      from -= fromStrides[d] * sizes[d];
      to -= toStrides[d] * sizes[d];
      position[d] = 0;
    }
  } while (d >= 0);
}

template <class T>
void copyRow(const char* from, int64_t fromStride, char* to, int64_t toStride, int64_t n) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < n; i++) {
    target[i * toStride] = source[i * fromStride];
  }
}

void copySameType(const char* from, int64_t fromStride, char* to, int64_t toStride, int64_t n, int64_t size) {
  if (fromStride == 1 && toStride == 1) {
    std::memcpy(to, from, n * size);
    return;
  }
  switch (size) {
    case 1:
      return copyRow<uint8_t>(from, fromStride, to, toStride, n);
    case 2:
      return copyRow<uint16_t>(from, fromStride, to, toStride, n);
    case 4:
      return copyRow<uint32_t>(from, fromStride, to, toStride, n);
    default:
      return copyRow<uint64_t>(from, fromStride, to, toStride, n);
  }
}

// Strides of an array without gaps, whose dims are listed from the innermost one on.
template <class Dims>
std::vector<int64_t> stridesOf(std::span<const int64_t> sizes, const Dims& dims) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (int64_t dim : dims) {
    strides[dim] = stride;
    stride = mulExact(stride, std::max<int64_t>(sizes[dim], 1));
  }
  return strides;
}

// The address `offset` elements after the first one.
char* elementAt(const Tensor& t, int64_t offset) {
  return static_cast<char*>(t.data()) + offset * dataTypeSize(t.dtype());
}

struct Row {
  const char* data;
  int64_t stride;  // elements
  DataType type;
};

void convertRow(const Row& from, char* to, int64_t toStride, DataType toType, int64_t n) {
  const int64_t fromStep = from.stride * dataTypeSize(from.type);
  const int64_t toStep = toStride * dataTypeSize(toType);
  for (int64_t i = 0; i < n; i++) {
    const char* source = from.data + i * fromStep;
    char* target = to + i * toStep;
    if (isFloatingPoint(from.type)) {
      storeElement(target, toType, loadElement(source, from.type));
    } else {
      storeInteger(target, toType, loadInteger(source, from.type));
    }
  }
}

}  // namespace

std::vector<int64_t> contiguousStrides(std::span<const int64_t> sizes) {
  return stridesOf(sizes, indices(sizes) | std::views::reverse);
}

std::vector<int64_t> contiguousStrides(std::span<const int64_t> sizes, std::span<const int64_t> order) {
  return stridesOf(sizes, order | std::views::reverse);
}

bool liesInOrder(std::span<const int64_t> sizes, std::span<const int64_t> strides, std::span<const int64_t> order) {
  auto several = order | std::views::filter([&](int64_t dim) { return sizes[dim] != 1; });
  return contains(sizes, 0) ||
         std::ranges::is_sorted(several, std::greater(), [&](int64_t dim) { return strides[dim]; });
}

Tensor::Tensor(std::shared_ptr<void> storage, void* data, DataType dtype, std::vector<int64_t> sizes,
               std::vector<int64_t> strides, DeviceMemory* memory)
    : storage_(std::move(storage)),
      data_(data),
      memory_(memory),
      dtype_(dtype),
      sizes_(std::move(sizes)),
      strides_(std::move(strides)) {}

Tensor Tensor::empty(std::vector<int64_t> sizes, DataType dtype, DeviceId device) {
  const int64_t bytes = countElements(sizes, dtype) * dataTypeSize(dtype);
  std::vector<int64_t> strides = contiguousStrides(sizes);
  if (device != DeviceId::cpu()) {
    DeviceMemory& memory = registeredDevice(device);
    std::shared_ptr<void> storage = memory.allocate(bytes);
    void* const data = storage.get();
    return {std::move(storage), data, dtype, std::move(sizes), std::move(strides), &memory};
  }
  void* data = hostPool().allocate(bytes);
  std::shared_ptr<void> storage(data, [bytes](void* p) { hostPool().deallocate(p, bytes); });
  return {std::move(storage), data, dtype, std::move(sizes), std::move(strides), nullptr};
}

Tensor Tensor::zeros(std::vector<int64_t> sizes, DataType dtype) {
  Tensor t = empty(std::move(sizes), dtype, DeviceId::cpu());
  std::memset(t.data_, 0, t.nbytes());
  return t.to(defaultDevice());
}

Tensor Tensor::full(std::vector<int64_t> sizes, DataType dtype, double value) {
  Tensor one = empty({}, dtype, DeviceId::cpu());
  storeElement(one.data_, dtype, value);
  return one.expand(std::move(sizes)).clone().to(defaultDevice());
}

Tensor Tensor::wrap(void* data, std::vector<int64_t> sizes, std::vector<int64_t> strides, DataType dtype,
                    std::shared_ptr<void> owner, DeviceId device) {
  int64_t count = countElements(sizes, dtype);
  check(sizes.size() == strides.size(), "[tensor] wrap: {} sizes and {} strides; give one stride for each dim",
        sizes.size(), strides.size());
  checkOffsets(sizes, strides, dtype);
  check(data != nullptr || count == 0, "[tensor] wrap: the data is null, expected the address of {} elements", count);
  DeviceMemory* const memory = device == DeviceId::cpu() ? nullptr : &registeredDevice(device);
  checkStrides(memory, strides);
  if (memory != nullptr && count > 0) {
    memory->expectOwn(data);
    check(
        std::bit_cast<uintptr_t>(data) % dataTypeSize(dtype) == 0,
        "[tensor] wrap: the address {} of {} is no multiple of the {} bytes of a {}; copy the elements to memory that "
        "is aligned",
        data, memory->id().toString(), dataTypeSize(dtype), name(dtype));
  }
  return {std::move(owner), data, dtype, std::move(sizes), std::move(strides), memory};
}

Tensor Tensor::of(std::span<const double> values, std::vector<int64_t> sizes, DataType dtype) {
  Tensor t = empty(std::move(sizes), dtype, DeviceId::cpu());
  check(std::ssize(values) == t.numel(), "[tensor] of: got {} values for sizes {}, expected {}", values.size(),
        listText(t.sizes_), t.numel());
  for (int64_t i : indices(values)) {
    storeElement(elementAt(t, i), dtype, values[i]);
  }
  return t.to(defaultDevice());
}

Tensor Tensor::of(std::initializer_list<double> values, std::vector<int64_t> sizes, DataType dtype) {
  return of(std::span<const double>(values.begin(), values.size()), std::move(sizes), dtype);
}

Tensor Tensor::scalar(double value, DataType dtype) { return of({value}, {}, dtype); }

int64_t Tensor::size(int64_t axis) const { return sizes_[wrapAxis(axis, dim(), "size")]; }

int64_t Tensor::numel() const { return productOf(sizes_); }

bool StridedElements::isContiguous() const {
  if (contains(sizes, 0)) {
    return true;
  }
  int64_t stride = 1;
  for (int64_t k = std::ssize(sizes) - 1; k >= 0; k--) {
    if (sizes[k] != 1 && strides[k] != stride) {
      return false;
    }
    stride *= sizes[k];
  }
  return true;
}

Tensor Tensor::view(std::vector<int64_t> sizes) const {
  check(isContiguous(), "[view] the tensor of sizes {} and strides {} is not contiguous; call contiguous() first",
        listText(sizes_), listText(strides_));
  const auto unknown = std::ranges::find(sizes, -1);
  if (unknown != sizes.end()) {
    *unknown = 1;
    const int64_t known = countElements(sizes, dtype_);
    *unknown = -1;
    check(known != 0 && numel() % known == 0,
          "[view] got sizes {} for {} elements, expected other sizes than the -1 whose product divides them",
          listText(sizes), numel());
    *unknown = numel() / known;
  }
  const int64_t count = countElements(sizes, dtype_);
  check(count == numel(), "[view] sizes {} hold {} elements, the tensor {}; expected equal numbers", listText(sizes),
        count, numel());
  std::vector<int64_t> strides = contiguousStrides(sizes);
  return strided(std::move(sizes), std::move(strides));
}

Tensor Tensor::strided(std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset) const {
  return {storage_, elementAt(*this, offset), dtype_, std::move(sizes), std::move(strides), memory_};
}

Tensor Tensor::asStrided(std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset) const {
  countElements(sizes, dtype_);
  check(sizes.size() == strides.size(), "[asStrided] {} sizes and {} strides; give one stride for each dim",
        sizes.size(), strides.size());
  checkOffsets(sizes, strides, dtype_);
  check(offset >= 0 && multipliedIfExact(offset, dataTypeSize(dtype_)),
        "[asStrided] offset {}; expected at least 0 and less than 2^63 bytes", offset);
  checkStrides(memory_, strides);
  return strided(std::move(sizes), std::move(strides), offset);
}

Tensor Tensor::slice(int64_t axis, int64_t start, int64_t stop, int64_t step) const {
  const int64_t k = wrapAxis(axis, dim(), "slice");
  check(step >= 1, "[slice] step {}; expected at least 1", step);
  check(start >= 0 && start <= stop && stop <= sizes_[k],
        "[slice] {} to {} of axis {} of size {}; expected 0 <= start <= stop <= size", start, stop, axis, sizes_[k]);
  std::vector<int64_t> sizes = sizes_;
  std::vector<int64_t> strides = strides_;
  sizes[k] = start == stop ? 0 : (stop - start - 1) / step + 1;
  strides[k] *= sizes[k] > 1 ? step : 1;  // a dim of one element has no second one to step to
  return strided(std::move(sizes), std::move(strides), start == stop ? 0 : start * strides_[k]);
}

Tensor Tensor::permute(const std::vector<int64_t>& order) const {
  check(std::ssize(order) == dim(), "[permute] got {} positions for a tensor of {} dims; expected one for each",
        order.size(), dim());
  std::vector<int64_t> sizes(order.size());
  std::vector<int64_t> strides(order.size());
  std::vector<bool> seen(order.size(), false);
  for (int64_t k : indices(order)) {
    const int64_t old = wrapAxis(order[k], dim(), "permute");
    check(!seen[old], "[permute] axis {} is listed twice in the order; list each once", old);
    seen[old] = true;
    sizes[k] = sizes_[old];
    strides[k] = strides_[old];
  }
  return strided(std::move(sizes), std::move(strides));
}

Tensor Tensor::transpose(int64_t a, int64_t b) const {
  const int64_t i = wrapAxis(a, dim(), "transpose");
  const int64_t j = wrapAxis(b, dim(), "transpose");
  Tensor t = strided(sizes_, strides_);
  std::swap(t.sizes_[i], t.sizes_[j]);
  std::swap(t.strides_[i], t.strides_[j]);
  return t;
}

Tensor Tensor::expand(std::vector<int64_t> sizes) const {
  check(sizes.size() >= sizes_.size(), "[expand] to {} dims from {}; expected at least as many", sizes.size(),
        sizes_.size());
  size_t lead = sizes.size() - sizes_.size();
  std::vector<int64_t> strides(sizes.size(), 0);
  for (int64_t k = lead; k < std::ssize(sizes); k++) {
    int64_t old = sizes_[k - lead];
    if (sizes[k] == -1) {
      sizes[k] = old;
    }
    check(old == sizes[k] || old == 1, "[expand] dim {} from {} to {}; only dims of size 1 stretch", k, old, sizes[k]);
    strides[k] = old == sizes[k] ? strides_[k - lead] : 0;
  }
  countElements(sizes, dtype_);
  return strided(std::move(sizes), std::move(strides));
}

Tensor Tensor::contiguous() const { return isContiguous() ? *this : clone(); }

Tensor Tensor::withGlobalShape(std::vector<int64_t> sizes) const {
  check(sizes.size() == sizes_.size(), "[withGlobalShape] got {} for a part of sizes {}; give one size for each dim",
        listText(sizes), listText(sizes_));
  countElements(sizes, dtype_);
  Tensor t = *this;
  t.globalShape_ = std::make_shared<const std::vector<int64_t>>(std::move(sizes));
  return t;
}

Tensor Tensor::clone() const {
  Tensor t = empty(sizes_, dtype_, device());
  t.globalShape_ = globalShape_;
  t.copyFrom(*this);
  return t;
}

void Tensor::throwNotOnHost() const {
  throwUserError(
      fmt::format("[tensor] the elements of a tensor on {} are not in host memory; copy it with to(DeviceId::cpu())",
                  device().toString()));
}

int64_t Tensor::spannedBytes() const {
  const int64_t last = sumOf(indices(sizes_), [&](int64_t d) { return (sizes_[d] - 1) * strides_[d]; });
  return numel() == 0 ? 0 : (last + 1) * dataTypeSize(dtype_);
}

Tensor Tensor::onHost() const {
  if (memory_ == nullptr) {
    return *this;
  }
  const int64_t bytes = spannedBytes();
  const Tensor copy = empty({bytes}, DataType::Bool, DeviceId::cpu());
  memory_->read(copy.data_, data_, bytes);
  Tensor t{copy.storage_, copy.data_, dtype_, sizes_, strides_, nullptr};
  t.globalShape_ = globalShape_;
  return t;
}

Tensor Tensor::to(DeviceId device) const {
  if (device == this->device()) {
    return *this;
  }
  check(defined(), "[to] the tensor is undefined; give one with data");
  const Tensor source = onHost();
  if (device == DeviceId::cpu()) {
    return source;
  }
  Tensor t = empty(sizes_, dtype_, device);
  t.globalShape_ = globalShape_;
  t.copyFrom(source);
  return t;
}

Tensor Tensor::to(DataType dtype) const {
  if (dtype == dtype_) {
    return *this;
  }
  Tensor t = empty(sizes_, dtype, device());
  t.copyFrom(*this);
  return t;
}

void Tensor::copyFrom(const Tensor& source) {
  check(sizes_ == source.sizes_, "[copyFrom] sizes differ: the destination has {}, the source {}; expected equal ones",
        listText(sizes_), listText(source.sizes_));
  if (memory_ == nullptr && source.memory_ == nullptr) {
    return copyElements(elements(), source.elements());
  }
  const Tensor from = source.onHost();
  if (memory_ == nullptr) {
    copyElements(elements(), from.elements());
  } else if (isContiguous()) {
    memory_->write(data_, from.to(dtype_).contiguous().data_, nbytes());
  } else {
    const Tensor mine = onHost();  // elements between those of the tensor stay as they are
    copyElements(mine.elements(), from.elements());
    memory_->write(data_, mine.data_, spannedBytes());
  }
}

void copyElements(const StridedElements& to, const StridedElements& from) {
  const int64_t fromSize = dataTypeSize(from.dtype);
  const int64_t toSize = dataTypeSize(to.dtype);
  const auto* source = static_cast<const char*>(from.data);
  auto* target = static_cast<char*>(to.data);
  if (to.dtype == from.dtype && to.isContiguous() && from.isContiguous()) {
    const int64_t bytes = productOf(to.sizes) * toSize;
    if (bytes != 0) {
      std::memmove(target, source, bytes);
    }
    return;
  }
  const int64_t n = to.sizes.empty() ? 1 : to.sizes.back();
  const int64_t fromStride = to.sizes.empty() ? 1 : from.strides.back();
  const int64_t toStride = to.sizes.empty() ? 1 : to.strides.back();
  forEachRow(to.sizes, from.strides, to.strides, [&](int64_t fromOffset, int64_t toOffset) {
    const char* fromRow = source + fromOffset * fromSize;
    char* toRow = target + toOffset * toSize;
    if (to.dtype == from.dtype) {
      copySameType(fromRow, fromStride, toRow, toStride, n, fromSize);
    } else {
      convertRow({fromRow, fromStride, from.dtype}, toRow, toStride, to.dtype, n);
    }
  });
}

namespace {

// One element, as a tensor without dims.
Tensor elementOf(const Tensor& t, std::span<const int64_t> position) {
  check(std::ssize(position) == t.dim(), "[tensor] got {} indices for a tensor of {} dims; give one for each dim",
        position.size(), t.dim());
  int64_t offset = 0;
  for (int64_t k : indices(position)) {
    check(position[k] >= 0 && position[k] < t.sizes()[k],
          "[tensor] got index {}, expected one from 0 to below the sizes {}", listText(position), listText(t.sizes()));
    offset += position[k] * t.strides()[k];
  }
  return t.asStrided({}, {}, offset);
}

// Nested lists of the dims from `axis` on, of the elements from `offset` on.
std::string valuesText(const Tensor& t, int64_t axis, int64_t offset) {
  if (axis == t.dim()) {
    const char* address = elementAt(t, offset);
    return isFloatingPoint(t.dtype()) ? fmt::format("{}", static_cast<float>(loadElement(address, t.dtype())))
                                      : fmt::format("{}", loadInteger(address, t.dtype()));
  }
  const auto text = [&](int64_t i) { return valuesText(t, axis + 1, offset + i * t.strides()[axis]); };
  return "[" + joined(std::views::iota(int64_t{0}, t.sizes()[axis]), ", ", text) + "]";
}

}  // namespace

double Tensor::at(std::span<const int64_t> position) const {
  return loadElement(elementOf(*this, position).onHost().data_, dtype_);
}

double Tensor::at(std::initializer_list<int64_t> position) const {
  return at(std::span<const int64_t>(position.begin(), position.size()));
}

void Tensor::set(std::span<const int64_t> position, double value) {
  Tensor element = elementOf(*this, position);
  const Tensor onHost = memory_ == nullptr ? element : empty({}, dtype_, DeviceId::cpu());
  storeElement(onHost.data_, dtype_, value);
  if (memory_ != nullptr) {
    element.copyFrom(onHost);
  }
}

double Tensor::item() const {
  check(numel() == 1, "[item] a tensor of sizes {} has {} elements; expected one", listText(sizes_), numel());
  return loadElement(onHost().data_, dtype_);
}

std::vector<double> Tensor::toVector() const {
  const Tensor dense = onHost().contiguous();
  const auto value = [&](int64_t i) { return loadElement(elementAt(dense, i), dtype_); };
  return mapped(std::views::iota(int64_t{0}, numel()), value);
}

std::string Tensor::toString() const {
  if (!defined()) {
    return "undefined";
  }
  constexpr int64_t kMostPrinted = 64;
  const std::string place = memory_ == nullptr ? "" : " on " + device().toString();
  const std::string text = fmt::format("{}{}{}", name(dtype_), listText(sizes_), place);
  return numel() > kMostPrinted || data_ == nullptr ? text : text + " " + valuesText(onHost(), 0, 0);
}

Tensor randomTensor(std::vector<int64_t> sizes, DataType dtype, uint64_t seed, double low, double high) {
  Tensor t = Tensor::empty(std::move(sizes), dtype, DeviceId::cpu());
  const int64_t count = t.numel();
  char* to = elementAt(t, 0);
  for (int64_t i = 0; i < count; i++, to += dataTypeSize(dtype)) {
    uint64_t bits = hashCombine(hashCombine(0, seed), static_cast<uint64_t>(i));
    double value = low + static_cast<double>(bits >> 11) * 0x1p-53 * (high - low);
    storeElement(to, dtype, isFloatingPoint(dtype) ? value : std::floor(value));
    if (loadElement(to, dtype) >= high && dtype != DataType::Bool) {
      storeElement(to, dtype, low);  // rounded up to the excluded end
    }
  }
  return t.to(defaultDevice());
}

}  // namespace meshfuse
