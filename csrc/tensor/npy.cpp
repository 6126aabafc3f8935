#include "tensor/npy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <ranges>

#include "base/error.h"
#include "base/ranges.h"

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
  check(at != std::string_view::npos, "[npy] {}: the header has no '{}'", file, key);
  std::string_view value = header.substr(at + key.size() + 3);
  return value.substr(std::min(value.find_first_not_of(' '), value.size()));
}

std::vector<int64_t> parseShape(std::string_view text, std::string_view file) {
  check(text.starts_with('(') && text.find(')') != std::string_view::npos, "[npy] {}: the shape is no tuple", file);
  text = text.substr(1, text.find(')') - 1);
  std::vector<int64_t> sizes;
  while (text.find_first_not_of(" ,") != std::string_view::npos) {
    text.remove_prefix(text.find_first_not_of(" ,"));
    int64_t size = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
    check(error == std::errc() && size >= 0, "[npy] {}: the shape holds something other than sizes", file);
    sizes.push_back(size);
    text.remove_prefix(end - text.data());
  }
  return sizes;
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
  check(bytes.size() >= 12 && bytes.starts_with(kMagic), "[npy] {}: not an .npy file; write it with numpy.save", file);
  int64_t version = bytes[6];
  check(version >= 1 && version <= 3, "[npy] {}: format version {}, expected 1 to 3", file, version);
  auto byte = [&](size_t k) { return static_cast<size_t>(static_cast<unsigned char>(bytes[k])); };
  size_t start = version == 1 ? 10 : 12;
  size_t length = byte(8) | byte(9) << 8 | (version == 1 ? 0 : byte(10) << 16 | byte(11) << 24);
  check(bytes.size() >= start + length, "[npy] {}: the file ends inside the header", file);
  std::string_view header = bytes.substr(start, length);
  std::string_view type = valueOf(header, "descr", file);
  check(type.starts_with('\'') && type.find('\'', 1) != std::string_view::npos,
        "[npy] {}: a structured type; save plain arrays", file);
  type = type.substr(1, type.find('\'', 1) - 1);
  std::optional<DataType> dtype = typeOf(type);
  check(dtype.has_value(), "[npy] {}: type '{}' is none of {}; convert it", file, type,
        fmt::join(std::views::transform(kDataTypes, &DataTypeInfo::npy), ", "));
  bool fortran = valueOf(header, "fortran_order", file).starts_with("True");
  std::vector<int64_t> sizes = parseShape(valueOf(header, "shape", file), file);
  std::vector<int64_t> order;
  if (fortran) {
    std::ranges::reverse(sizes);
    order = mapped<int64_t>(indices(sizes) | std::views::reverse, std::identity());
  }
  // before there is memory for it
  int64_t expected = dataTypeSize(*dtype);
  for (int64_t s : sizes) {
    check(!__builtin_mul_overflow(expected, s, &expected), "[npy] {}: the shape is too large", file);
  }
  std::string_view data = bytes.substr(start + length);
  check(std::ssize(data) >= expected, "[npy] {}: {} bytes of data, the shape needs {}", file, data.size(), expected);
  Tensor t = Tensor::empty(sizes, *dtype, DeviceId::cpu());
  std::memcpy(t.data(), data.data(), expected);
  return fortran ? t.permute(order) : t;
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
  std::ifstream in(path, std::ios::binary);
  check(in.good(), "[npy] cannot open {}; check that it exists and is readable", path);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return parseNpy(bytes, path);
}

}  // namespace meshfuse
