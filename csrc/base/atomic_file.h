// A file that appears under its name whole or not at all: it is written beside its place and then renamed. Readers of an older file with this
// name keep the older file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace meshfuse {

class AtomicFile {
 public:
  // UserError beginning with `[what]`, here and below, if the file cannot be written, or if there is something else than a regular file
  // under its name.
  AtomicFile(std::string_view what, std::string path);
  ~AtomicFile();  // without commit() nothing remains
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, int64_t bytes);
  void commit();  // gives the file its name, once all its bytes are on the disk

 private:
  [[noreturn]] void fail(int error) const;

  std::string what_;
  std::string path_;
  std::string unfinished_;
  int descriptor_ = -1;
};

}  // namespace meshfuse
