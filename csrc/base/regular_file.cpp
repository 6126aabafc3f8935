#include "base/regular_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace meshfuse {

namespace {

std::string_view kindOf(mode_t mode) {
  return S_ISDIR(mode) ? "directory" : S_ISFIFO(mode) ? "pipe" : S_ISSOCK(mode) ? "socket" : "device";
}

}  // namespace

RegularFile::RegularFile(std::string_view what, std::string path) : what_(what), path_(std::move(path)) {
  // O_NONBLOCK: else open() of a pipe waits for a writer
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  const int error = errno;
  check(descriptor_ >= 0, "[{}] cannot open {}: {}; check that it exists and is readable", what_, path_,
        std::strerror(error));
  struct stat status {};
  const bool isRegular = fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  if (!isRegular) {
    close(descriptor_);
    throwUserError(
        fmt::format("[{}] {} is a {}, expected a regular file; give a file", what_, path_, kindOf(status.st_mode)));
  }
  size_ = status.st_size;
}

RegularFile::~RegularFile() { close(descriptor_); }

void RegularFile::read(void* to, int64_t bytes) const {
  auto* at = static_cast<char*>(to);
  for (int64_t left = bytes; left > 0;) {
    const ssize_t n = ::read(descriptor_, at, left);
    const int error = errno;
    if (n < 0 && error == EINTR) {
      continue;
    }
    check(n >= 0, "[{}] cannot read {}: {}; check the disk that holds it", what_, path_, std::strerror(error));
    check(n > 0, "[{}] {} ended while it was read; expected {} more bytes; read it when it is complete", what_, path_,
          left);
    at += n;
    left -= n;
  }
}

std::shared_ptr<char> RegularFile::map() const {
  // MAP_NORESERVE: a file may be larger than the memory
  void* begin = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, descriptor_, 0);
  const int error = errno;
  check(begin != MAP_FAILED,
        "[{}] cannot map {}, {} bytes: {}; allow more address space (ulimit -v), or copy it to a local disk", what_,
        path_, size_, std::strerror(error));
  return {static_cast<char*>(begin), [size = size_](char* p) { munmap(p, size); }};
}

std::string readRegularFile(std::string_view what, const std::string& path, int64_t most) {
  const RegularFile file(what, path);
  check(file.size() <= most, "[{}] {} has {} bytes, expected at most {}; give a smaller file", what, path, file.size(),
        most);
  std::string bytes(file.size(), '\0');
  file.read(bytes.data(), file.size());
  return bytes;
}

}  // namespace meshfuse
