// A file that is read from its beginning. Only regular files: a directory, a device or a pipe, which may have no end, is refused at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace meshfuse {

class RegularFile {
 public:
  // UserError beginning with `[what]` if the file cannot be opened, or is no regular file. Never waits for a writer of a pipe.
  RegularFile(std::string_view what, std::string path);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // bytes, when it was opened
  // The next bytes of the file. UserError if it ends before, or cannot be read.
  void read(void* to, int64_t bytes) const;
  // The whole file as memory; pages are read when they are first used. What is written to the memory does not reach the file. UserError if
  // it cannot be mapped, or is empty. A program that uses bytes of a file that another one has cut short meanwhile is ended by the system.
  std::shared_ptr<char> map() const;

 private:
  std::string what_;
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0;
};

// The bytes of a whole file; UserError as above, and if there are more than `most`.
[[nodiscard]] std::string readRegularFile(std::string_view what, const std::string& path, int64_t most);

}  // namespace meshfuse
