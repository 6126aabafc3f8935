#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace meshfuse {

AtomicFile::AtomicFile(std::string_view what, std::string path) : what_(what), path_(std::move(path)) {
  struct stat status {};
  const bool isOther = stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
  check(!isOther, "[{}] {} exists and is no regular file; choose another name", what_, path_);
  static std::atomic<int> serial = 0;
  unfinished_ = fmt::format("{}.{}.{}.partial", path_, getpid(), serial++);
  descriptor_ = open(unfinished_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (descriptor_ < 0) {
    fail(errno);
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
    unlink(unfinished_.c_str());
  }
}

void AtomicFile::write(const void* data, int64_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(descriptor_, at, bytes);
    if (n < 0 && errno != EINTR) {
      fail(errno);
    }
    at += std::max<ssize_t>(n, 0);
    bytes -= std::max<ssize_t>(n, 0);
  }
}

void AtomicFile::commit() {
  if (fsync(descriptor_) != 0 || rename(unfinished_.c_str(), path_.c_str()) != 0) {
    fail(errno);
  }
  close(std::exchange(descriptor_, -1));
}

void AtomicFile::fail(int error) const {
  throwUserError(
      fmt::format("[{}] cannot write {}: {}; check that the directory exists and is writable, and that the disk has "
                  "space",
                  what_, path_, std::strerror(error)));
}

}  // namespace meshfuse
