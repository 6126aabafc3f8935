#include "tensor/npy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <ranges>

#include "base/error.h"
#include "base/exact.h"
#include "base/limits.h"
#include "base/ranges.h"
#include "base/regular_file.h"

namespace meshfuse {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;  // of the data in the file

std::optional<DataType> typeOf(std::string_view text) {
  if (text == "|V2" || text == "bfloat16") {  // other spellings of ml_dtypes
    text = "<V2";
  }
  const auto* row = std::ranges::find(kDataTypes, text, &DataTypeInfo::npy);
  return row == kDataTypes.end() ? std::nullopt : std::optional(row->type);
}

// The text after 'key': in the header, a Python dict.
std::string_view valueOf(std::string_view header, std::string_view key, std::string_view file) {
  size_t at = header.find(fmt::format("'{}':", key));
  check(at != std::string_view::npos, "[npy] {}: the header has no '{}'; write the file with numpy.save", file, key);
  std::string_view value = header.substr(at + key.size() + 3);
  return value.substr(std::min(value.find_first_not_of(' '), value.size()));
}

// (2, 3)    (3,)    ()
std::vector<int64_t> parseShape(std::string_view text, std::string_view file) {
  check(text.starts_with('(') && text.find(')') != std::string_view::npos,
        "[npy] {}: the shape is no tuple; write the file with numpy.save", file);
  text = text.substr(1, text.find(')') - 1);
  std::vector<int64_t> sizes;
  while (text.find_first_not_of(' ') != std::string_view::npos) {
    check(std::ssize(sizes) < kMostDims, "[npy] {}: the shape has more than {} dims; reshape the array", file,
          kMostDims);
    const size_t comma = std::min(text.find(','), text.size());
    std::string_view number = text.substr(0, comma);
    number.remove_prefix(std::min(number.find_first_not_of(' '), number.size()));
    number = number.substr(0, number.find_last_not_of(' ') + 1);
    int64_t size = -1;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), size);
    check(error == std::errc() && end == number.data() + number.size() && size >= 0,
          "[npy] {}: the shape has the size '{}', expected 0 or more, below 2^63", file, number.substr(0, 40));
    sizes.push_back(size);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return sizes;
}

bool parseOrder(std::string_view text, std::string_view file) {
  const bool fortran = text.starts_with("True");
  check(fortran || text.starts_with("False"), "[npy] {}: 'fortran_order' is '{}', expected True or False", file,
        text.substr(0, 10));
  return fortran;
}

constexpr size_t kMostPreface = 12;              // magic, version, length of the header
constexpr size_t kMostHeader = size_t{1} << 16;  // numpy.load refuses more than 10,000 bytes

struct Header {
  DataType dtype = DataType::Float;
  std::vector<int64_t> sizes;  // as the bytes lie: of a Fortran array in reverse
  bool isFortran = false;
  size_t dataBegin = 0;
  int64_t dataBytes = 0;
};

// `bytes`: the file, or its beginning that holds the header; `fileBytes`: of the whole file.
Header parseHeader(std::string_view bytes, int64_t fileBytes, std::string_view file) {
  check(bytes.size() >= kMostPreface && bytes.starts_with(kMagic),
        "[npy] {}: not an .npy file; write it with numpy.save", file);
  int64_t version = bytes[6];
  check(version >= 1 && version <= 3, "[npy] {}: format version {}, expected 1 to 3", file, version);
  auto byte = [&](size_t k) { return static_cast<size_t>(static_cast<unsigned char>(bytes[k])); };
  const size_t start = version == 1 ? 10 : 12;
  const size_t length = byte(8) | byte(9) << 8 | (version == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  check(length <= kMostHeader, "[npy] {}: a header of {} bytes, expected at most {}; write the file with numpy.save",
        file, length, kMostHeader);
  check(bytes.size() >= start + length, "[npy] {}: the file ends inside the header; copy it whole", file);
  const std::string_view header = bytes.substr(start, length);
  std::string_view type = valueOf(header, "descr", file);
  check(type.starts_with('\'') && type.find('\'', 1) != std::string_view::npos,
        "[npy] {}: got a structured type, expected numbers; save plain arrays", file);
  type = type.substr(1, type.find('\'', 1) - 1);
  const std::optional<DataType> dtype = typeOf(type);
  check(dtype.has_value(), "[npy] {}: type '{}' is none of {}; convert it", file, type.substr(0, 40),
        fmt::join(std::views::transform(kDataTypes, &DataTypeInfo::npy), ", "));
  Header h{.dtype = *dtype,
           .sizes = parseShape(valueOf(header, "shape", file), file),
           .isFortran = parseOrder(valueOf(header, "fortran_order", file), file),
           .dataBegin = start + length,
           .dataBytes = 0};
  // before there is memory for it
  std::optional<int64_t> needed = dataTypeSize(*dtype);
  for (const int64_t s : h.sizes) {
    needed = needed ? multipliedIfExact(*needed, std::max<int64_t>(s, 1)) : std::nullopt;
  }
  check(needed.has_value(), "[npy] {}: an array of sizes [{}] of {} has more than 2^63 bytes; expected fewer", file,
        fmt::join(h.sizes, ", "), name(*dtype));
  h.dataBytes = contains(h.sizes, 0) ? 0 : *needed;
  const int64_t data = fileBytes - static_cast<int64_t>(h.dataBegin);
  check(data >= h.dataBytes, "[npy] {}: {} bytes of data, the shape needs {}; copy the file whole", file, data,
        h.dataBytes);
  if (h.isFortran) {
    std::ranges::reverse(h.sizes);
  }
  return h;
}

Tensor ordered(const Tensor& t, bool isFortran) {
  return isFortran ? t.permute(mapped<int64_t>(indices(t.sizes()) | std::views::reverse, std::identity())) : t;
}

}  // namespace

std::string npyBytes(const Tensor& tensor) {
  check(tensor.defined(), "[npy] the tensor is undefined; give one with data");
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", info(tensor.dtype()).npy,
                  fmt::join(tensor.sizes(), ", "), tensor.dim() == 1 ? "," : "");
  size_t before = kMagic.size() + 4;
  header.append(kAlignment - (before + header.size() + 1) % kAlignment, ' ');
  header += '\n';
  std::string bytes(kMagic);
  bytes += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  bytes += header;
  const Tensor dense = tensor.to(DeviceId::cpu()).contiguous();
  bytes.append(static_cast<const char*>(dense.data()), dense.nbytes());
  return bytes;
}

Tensor parseNpy(std::string_view bytes, std::string_view file) {
  const Header h = parseHeader(bytes, std::ssize(bytes), file);
  Tensor t = Tensor::empty(h.sizes, h.dtype, DeviceId::cpu());
  std::memcpy(t.data(), bytes.data() + h.dataBegin, h.dataBytes);
  return ordered(t, h.isFortran);
}

void writeNpy(const std::string& path, const Tensor& tensor) {
  std::string bytes = npyBytes(tensor);
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  check(out.good(),
        "[npy] cannot write {}; check that the directory exists and is writable, and that the disk has space", path);
}

Tensor readNpy(const std::string& path) {
  const RegularFile file("npy", path);
  std::string begin(std::min<size_t>(file.size(), kMostPreface + kMostHeader), '\0');
  file.read(begin.data(), std::ssize(begin));
  const Header h = parseHeader(begin, file.size(), path);
  Tensor t = Tensor::empty(h.sizes, h.dtype, DeviceId::cpu());
  const int64_t known = std::min(h.dataBytes, std::ssize(begin) - static_cast<int64_t>(h.dataBegin));
  std::memcpy(t.data(), begin.data() + h.dataBegin, known);
  file.read(t.data_as<char>() + known, h.dataBytes - known);
  return ordered(t, h.isFortran);
}

}  // namespace meshfuse
