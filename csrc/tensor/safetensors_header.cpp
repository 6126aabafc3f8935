#include "tensor/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/exact.h"
#include "base/limits.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr std::string_view kMetadata = "__metadata__";

// The number of bytes of the character that `text` begins with; 0 if it is no UTF-8: also a surrogate, a number above 0x10ffff, or one that
// fits in fewer bytes.
size_t utf8Length(std::string_view text) {
  const auto byte = [&](size_t k) { return static_cast<uint32_t>(static_cast<unsigned char>(text[k])); };
  const uint32_t first = byte(0);
  const size_t length = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (length <= 1 || length > text.size()) {
    return length == 1 ? 1 : 0;
  }
  uint32_t code = first & (0x7fU >> length);
  for (size_t k = 1; k < length; k++) {
    if ((byte(k) & 0xc0) != 0x80) {
      return 0;
    }
    code = code << 6 | (byte(k) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool isLegal = code >= kLeast[length] && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
  return isLegal ? length : 0;
}

std::string utf8(uint32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) {
    return {static_cast<char>(code)};
  }
  if (code < 0x800) {
    return {static_cast<char>(0xc0 | code >> 6), tail(0)};
  }
  if (code < 0x10000) {
    return {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  }
  return {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
}

class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  SafetensorsHeader header() {
    SafetensorsHeader h;
    bool hasMetadata = false;
    object([&](std::string key) {
      if (key == kMetadata) {
        expect(!hasMetadata, "a second __metadata__", "one");
        hasMetadata = true;
        object([&](std::string name) {
          expect(!h.metadata.contains(name), fmt::format("a second text {}", name), "one");
          h.metadata.emplace(std::move(name), string());
        });
        return;
      }
      check(!h.entries.contains(key), "[safetensors] {}: the header names the tensor {} twice; give each its own name",
            file_, key);
      SafetensorsEntry e = entry(key);
      h.entries.emplace(std::move(key), std::move(e));
    });
    skipSpace();
    expect(at_ == text_.size(), found(), "the end of the header");
    return h;
  }

 private:
  void expect(bool holds, std::string_view got, std::string_view expected) const {
    check(holds, "[safetensors] {}: byte {} of the header: {}, expected {}; write the file with a safetensors library",
          file_, at_, got, expected);
  }
  std::string found() const { return at_ == text_.size() ? "the header ends" : fmt::format("found '{}'", text_[at_]); }
  void skipSpace() {
    while (at_ < text_.size() && contains(std::string_view(" \t\n\r"), text_[at_])) {
      at_++;
    }
  }
  bool take(char c) {
    skipSpace();
    const bool isThere = at_ < text_.size() && text_[at_] == c;
    at_ += isThere ? 1 : 0;
    return isThere;
  }
  void need(char c) {
    if (!take(c)) {
      expect(false, found(), std::string{'\'', c, '\''});
    }
  }

  // `field` reads the value of each key.
  void object(const std::function<void(std::string key)>& field) {
    need('{');
    if (take('}')) {
      return;
    }
    do {
      std::string key = string();
      need(':');
      field(std::move(key));
    } while (take(','));
    need('}');
  }

  SafetensorsEntry entry(const std::string& name) {
    SafetensorsEntry e;
    std::set<std::string> read;
    object([&](const std::string& key) {
      expect(read.insert(key).second, fmt::format("a second {} of {}", key, name), "one");
      if (key == "dtype") {
        e.dtype = string();
      } else if (key == "shape") {
        e.sizes = numbers(kMostDims);
      } else if (key == "data_offsets") {
        const std::vector<int64_t> offsets = numbers(2);
        expect(offsets.size() == 2, fmt::format("{} data_offsets of {}", offsets.size(), name), "2");
        e.begin = offsets[0];
        e.end = offsets[1];
      } else {
        expect(false, fmt::format("the field {} of {}", key, name), "dtype, shape or data_offsets");
      }
    });
    expect(read.size() == 3, fmt::format("{} has the fields [{}]", name, fmt::join(read, ", ")),
           "dtype, shape and data_offsets");
    return e;
  }

  std::vector<int64_t> numbers(int64_t most) {
    std::vector<int64_t> all;
    need('[');
    if (take(']')) {
      return all;
    }
    do {
      expect(std::ssize(all) < most, "a longer list", fmt::format("at most {} numbers", most));
      skipSpace();
      int64_t& n = all.emplace_back(0);
      const bool isDigit = at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9';
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), n);
      const bool isJson = end == text_.data() + at_ + 1 || text_[at_] != '0';  // no 0 before other digits
      expect(isDigit && error == std::errc() && isJson, found(), "an integer from 0 to 2^63 - 1");
      at_ = end - text_.data();
    } while (take(','));
    need(']');
    return all;
  }

  std::string string() {
    need('"');
    std::string value;
    while (true) {
      if (at_ == text_.size() || static_cast<unsigned char>(text_[at_]) < 0x20) {
        expect(false, found(), "a character of a string");
      }
      const char c = text_[at_];
      if (c == '"') {
        at_++;
        return value;
      }
      if (c == '\\') {
        at_++;
        value += escape();
        continue;
      }
      const size_t length = utf8Length(text_.substr(at_));
      expect(length > 0, "bytes that are no UTF-8", "UTF-8");
      value += text_.substr(at_, length);
      at_ += length;
    }
  }

  std::string escape() {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    expect(at_ < text_.size(), found(), "an escape");
    const char c = text_[at_++];
    if (const size_t k = kLetters.find(c); k != std::string_view::npos) {
      return {kMeanings[k]};
    }
    expect(c == 'u', fmt::format("the escape '\\{}'", c), "one of JSON");
    uint32_t code = fourDigits();
    if (code >= 0xd800 && code < 0xdc00) {  // the first half of a character above 0xffff
      expect(text_.substr(at_).starts_with("\\u"), "half of a character", "both");
      at_ += 2;
      const uint32_t low = fourDigits();
      expect(low >= 0xdc00 && low < 0xe000, "half of a character", "both");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    expect(code < 0xdc00 || code > 0xdfff, "half of a character", "both");
    return utf8(code);
  }

  uint32_t fourDigits() {
    uint32_t code = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    expect(digits.size() == 4 && error == std::errc() && end == digits.data() + 4, "an escape '\\u'", "4 digits");
    at_ += 4;
    return code;
  }

  std::string_view text_;
  std::string_view file_;
  size_t at_ = 0;
};

// The data of a tensor fit its shape, where the size of its type is known.
void checkBytes(const std::string& name, const SafetensorsEntry& e, std::string_view file) {
  check(e.begin <= e.end, "[safetensors] {}: the data of {} end at byte {}, before they begin at {}", file, name, e.end,
        e.begin);
  const std::optional<DataType> type = safetensorsType(e.dtype);
  if (!type) {
    return;
  }
  std::optional<int64_t> needed = dataTypeSize(*type);
  for (const int64_t s : e.sizes) {
    needed = needed ? multipliedIfExact(*needed, std::max<int64_t>(s, 1)) : std::nullopt;
  }
  check(needed.has_value(), "[safetensors] {}: {}, {}[{}], has more than 2^63 bytes; expected fewer", file, name,
        e.dtype, fmt::join(e.sizes, ", "));
  const int64_t bytes = contains(e.sizes, 0) ? 0 : *needed;
  check(e.end - e.begin == bytes, "[safetensors] {}: {}, {}[{}], has {} bytes of data, expected {}", file, name,
        e.dtype, fmt::join(e.sizes, ", "), e.end - e.begin, bytes);
}

// The tensors lie one after the other, without overlap or hole, and fill the data.
void checkOffsets(const SafetensorsHeader& header, int64_t dataBytes, std::string_view file) {
  auto order = mapped(header.entries, [](const auto& e) { return &e; });
  std::ranges::stable_sort(order, {}, [](const auto* e) { return std::pair(e->second.begin, e->second.end); });
  int64_t at = 0;
  std::string before = "the header";
  for (const auto* e : order) {
    const auto& [name, entry] = *e;
    check(entry.begin >= at, "[safetensors] {}: the data of {} begin at byte {}, inside {}, which ends at {}", file,
          name, entry.begin, before, at);
    check(entry.begin == at, "[safetensors] {}: no tensor has the bytes {} to {} of the data, before {}", file, at,
          entry.begin, name);
    check(entry.end <= dataBytes,
          "[safetensors] {}: the data of {} end at byte {}, the file has {} bytes of data; copy it whole", file, name,
          entry.end, dataBytes);
    at = entry.end;
    before = name;
  }
  check(at == dataBytes, "[safetensors] {}: {} bytes of data, expected {}: where {} ends", file, dataBytes, at, before);
}

std::string quoted(std::string_view text, std::string_view file) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8Length(text.substr(at));
    check(length > 0, "[safetensors] {}: byte {} of a name is no UTF-8; name the tensors in UTF-8", file, at);
    const char c = text[at];
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u00{:02x}", static_cast<int>(c));
    } else {
      out += text.substr(at, length);
    }
    at += length;
  }
  return out + '"';
}

}  // namespace

std::string safetensorsName(DataType type) {
  if (type == DataType::Bool) {
    return "BOOL";
  }
  std::string name(info(type).token);
  std::ranges::transform(name, name.begin(), [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; });
  return name;
}

std::optional<DataType> safetensorsType(std::string_view text) {
  const auto* row = std::ranges::find(kDataTypes, text, [](const DataTypeInfo& i) { return safetensorsName(i.type); });
  return row == kDataTypes.end() ? std::nullopt : std::optional(row->type);
}

SafetensorsHeader parseSafetensorsHeader(std::string_view text, int64_t dataBytes, std::string_view file) {
  SafetensorsHeader header = HeaderReader(text, file).header();
  for (const auto& [name, entry] : header.entries) {
    checkBytes(name, entry, file);
  }
  checkOffsets(header, dataBytes, file);
  return header;
}

std::string safetensorsHeaderText(const std::vector<std::pair<std::string, SafetensorsEntry>>& entries,
                                  const std::map<std::string, std::string>& metadata, std::string_view file) {
  std::vector<std::string> fields;
  if (!metadata.empty()) {
    fields.push_back(fmt::format("\"{}\":{{{}}}", kMetadata, joined(metadata, ",", [&](const auto& m) {
                                   return quoted(m.first, file) + ":" + quoted(m.second, file);
                                 })));
  }
  std::set<std::string_view> names;
  for (const auto& [name, e] : entries) {
    check(name != kMetadata, "[safetensors] {}: a tensor named {}, which is the name of the metadata; choose another",
          file, name);
    check(names.insert(name).second, "[safetensors] {}: two tensors named {}; give each its own name", file, name);
    fields.push_back(fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", quoted(name, file),
                                 e.dtype, fmt::join(e.sizes, ","), e.begin, e.end));
  }
  return "{" + joined(fields, ",") + "}";
}

}  // namespace meshfuse
