// The bytes of an entry of the disk cache as texts, each with its size before it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace meshfuse {

class EntryWriter {
 public:
  void add(std::string_view text);
  void add(const std::vector<std::string>& texts);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Reads what an EntryWriter has written, in the same order. UserError if the bytes are other ones.
class EntryReader {
 public:
  explicit EntryReader(std::string_view bytes) : bytes_(bytes) {}
  // The number that is the whole text, at least 0.
  static int64_t number(std::string_view text);
  // Such numbers with a space between them; none if the text is empty.
  static std::vector<int64_t> numbers(std::string_view text);
  std::string_view text();
  std::vector<std::string> texts();
  // Reads the next text: true if it is `name`, false if it is empty, UserError otherwise.
  bool flag(std::string_view name);
  // UserError if bytes are left.
  void finish() const;

 private:
  std::string_view bytes_;
};

}  // namespace meshfuse
