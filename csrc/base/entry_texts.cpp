#include "base/entry_texts.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/error.h"

namespace meshfuse {

void EntryWriter::add(std::string_view text) { bytes_ += fmt::format("{}\n{}", text.size(), text); }

void EntryWriter::add(const std::vector<std::string>& texts) {
  add(std::to_string(texts.size()));
  for (const std::string& text : texts) {
    add(text);
  }
}

int64_t EntryReader::number(std::string_view text) {
  int64_t n = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  check(error == std::errc() && end == text.data() + text.size() && n >= 0,
        "[disk cache] an entry has \"{}\", expected a number", text);
  return n;
}

std::vector<int64_t> EntryReader::numbers(std::string_view text) {
  std::vector<int64_t> result;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    result.push_back(number(text.substr(0, space)));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return result;
}

std::string_view EntryReader::text() {
  const size_t line = std::min(bytes_.find('\n'), bytes_.size());
  const auto size = static_cast<size_t>(number(bytes_.substr(0, line)));
  bytes_.remove_prefix(std::min(line + 1, bytes_.size()));
  check(size <= bytes_.size(), "[disk cache] a text of an entry has {} bytes, {} are left", size, bytes_.size());
  const std::string_view result = bytes_.substr(0, size);
  bytes_.remove_prefix(size);
  return result;
}

std::vector<std::string> EntryReader::texts() {
  std::vector<std::string> result;
  for (int64_t left = number(text()); left > 0; left--) {
    result.emplace_back(text());
  }
  return result;
}

bool EntryReader::flag(std::string_view name) {
  const std::string_view got = text();
  check(got == name || got.empty(), "[disk cache] an entry has \"{}\", expected \"{}\" or nothing", got, name);
  return !got.empty();
}

void EntryReader::finish() const {
  check(bytes_.empty(), "[disk cache] {} bytes follow the last text of an entry", bytes_.size());
}

}  // namespace meshfuse
