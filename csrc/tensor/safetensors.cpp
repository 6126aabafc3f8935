#include "tensor/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/exact.h"
#include "base/nearest_word.h"
#include "base/ranges.h"
#include "base/regular_file.h"

namespace meshfuse {

namespace {

constexpr int64_t kLengthBytes = 8;                // the length of the header, little-endian
constexpr int64_t kMostHeaderBytes = 100'000'000;  // the limit of the format
constexpr int64_t kDataAlignment = 64;             // of the data in files that are written here

void checkBools(const Tensor& t, std::string_view file, std::string_view name) {
  const auto* begin = static_cast<const unsigned char*>(t.data());
  const auto* bad = std::find_if(begin, begin + t.numel(), [](unsigned char b) { return b > 1; });
  check(bad == begin + t.numel(), "[safetensors] {}: element {} of {}, BOOL, is the byte {}, expected 0 or 1", file,
        bad - begin, name, *bad);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  const RegularFile file("safetensors", path);
  check(file.size() >= kLengthBytes, "[safetensors] {} has {} bytes, expected {} or more; copy it whole", path,
        file.size(), kLengthBytes);
  bytes_ = file.map();
  uint64_t length = 0;
  for (int64_t k = kLengthBytes - 1; k >= 0; k--) {
    length = length << 8 | static_cast<unsigned char>(bytes_.get()[k]);
  }
  check(length <= kMostHeaderBytes,
        "[safetensors] {}: a header of {} bytes, expected at most {}; is it a safetensors file?", path, length,
        kMostHeaderBytes);
  const int64_t dataBytes = file.size() - kLengthBytes - static_cast<int64_t>(length);
  check(dataBytes >= 0, "[safetensors] {} has {} bytes and ends inside the header of {} bytes; copy it whole", path,
        file.size(), length);
  data_ = bytes_.get() + kLengthBytes + length;
  header_ = parseSafetensorsHeader({bytes_.get() + kLengthBytes, length}, dataBytes, path);
}

std::vector<std::string> SafetensorsFile::names() const {
  return mapped(header_.entries, [](const auto& e) { return e.first; });
}

Tensor SafetensorsFile::get(std::string_view name) const {
  const auto found = header_.entries.find(name);
  if (found == header_.entries.end()) {
    const std::vector<std::string> all = names();
    throwUserError(fmt::format("[safetensors] {} has no tensor named {}{}; it has {} tensors: {}{}", path_, name,
                               nearestWord(name, all), all.size(), fmt::join(all | std::views::take(8), ", "),
                               all.size() > 8 ? ", ..." : ""));
  }
  const SafetensorsEntry& e = found->second;
  const std::optional<DataType> type = safetensorsType(e.dtype);
  check(type.has_value(), "[safetensors] {}: the type of {} is {}, expected one of {}; convert the tensor", path_, name,
        e.dtype, joined(kDataTypes, ", ", [](const DataTypeInfo& i) { return safetensorsName(i.type); }));
  char* begin = data_ + e.begin;
  Tensor t;
  if (reinterpret_cast<uintptr_t>(begin) % static_cast<uintptr_t>(dataTypeSize(*type)) == 0) {
    t = Tensor::wrap(begin, e.sizes, contiguousStrides(e.sizes), *type, bytes_);
  } else {
    t = Tensor::empty(e.sizes, *type, DeviceId::cpu());
    std::memcpy(t.data(), begin, e.end - e.begin);
  }
  if (*type == DataType::Bool) {
    checkBools(t, path_, name);
  }
  return t;
}

void writeSafetensors(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  // wide types first: with no bytes between tensors, each is then aligned to its type
  auto order = mapped(tensors, [](const auto& t) { return &t; });
  for (const auto* t : order) {
    check(t->second.defined(), "[safetensors] {}: the tensor {} is undefined; give one with data", path, t->first);
  }
  std::ranges::stable_sort(order, std::greater(), [](const auto* t) { return dataTypeSize(t->second.dtype()); });
  int64_t at = 0;
  std::vector<std::pair<std::string, SafetensorsEntry>> entries;
  for (const auto* t : order) {
    const auto& [name, tensor] = *t;
    const int64_t end = addExact(at, tensor.nbytes());
    entries.emplace_back(name, SafetensorsEntry{.dtype = safetensorsName(tensor.dtype()),
                                                .sizes = {tensor.sizes().begin(), tensor.sizes().end()},
                                                .begin = at,
                                                .end = end});
    at = end;
  }
  std::string header = safetensorsHeaderText(entries, metadata, path);
  header.append(
      static_cast<size_t>((kDataAlignment - (kLengthBytes + std::ssize(header)) % kDataAlignment) % kDataAlignment),
      ' ');
  check(std::ssize(header) <= kMostHeaderBytes,
        "[safetensors] {}: a header of {} bytes, expected at most {}; write fewer tensors", path, header.size(),
        kMostHeaderBytes);
  std::string prefix;
  for (int64_t k = 0; k < kLengthBytes; k++) {
    prefix += static_cast<char>(header.size() >> (8 * k) & 0xff);
  }
  AtomicFile file("safetensors", path);
  file.write(prefix.data(), kLengthBytes);
  file.write(header.data(), std::ssize(header));
  for (const auto* t : order) {
    const Tensor dense = t->second.to(DeviceId::cpu()).contiguous();
    file.write(dense.data(), dense.nbytes());
  }
  file.commit();
}

}  // namespace meshfuse
