#include "multidevice/transport/host/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace meshfuse {

namespace {

constexpr std::string_view kNamedFolder = "/dev/shm";

std::byte* mapMemory(int fd, size_t bytes, int protection) {
  void* p = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) {
    return nullptr;
  }
  madvise(p, bytes, MADV_DONTDUMP);  // most of it is address space only
  return static_cast<std::byte*>(p);
}

// Containers that share a folder may have processes with equal ids.
uint64_t randomBits() {
  uint64_t bits = 0;
  const ssize_t read = getrandom(&bits, sizeof(bits), 0);
  deviceCheck(read == static_cast<ssize_t>(sizeof(bits)), "[host] the system gives no random bits: {}",
              std::strerror(errno));
  return bits;
}

}  // namespace

SharedMemory SharedMemory::create(size_t bytes, Name name) {
  SharedMemory m;
  if (name == Name::Descriptor) {
    m.fd_ = memfd_create("meshfuse", MFD_CLOEXEC);
    m.path_ = fmt::format("/proc/{}/fd/{}", getpid(), m.fd_);
  } else {
    m.path_ = fmt::format("{}/meshfuse.{}.{:016x}", kNamedFolder, getpid(), randomBits());
    m.fd_ = ::open(m.path_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    m.linked_ = m.fd_ >= 0;
  }
  deviceCheck(m.fd_ >= 0, "[host] cannot create the shared memory {}: {}", m.path_, std::strerror(errno));
  const bool isLarge = ftruncate(m.fd_, static_cast<off_t>(bytes)) == 0;
  deviceCheck(isLarge, "[host] cannot allocate {} bytes of shared memory: {}", bytes, std::strerror(errno));
  m.data_ = mapMemory(m.fd_, bytes, PROT_READ | PROT_WRITE);
  deviceCheck(m.data_ != nullptr, "[host] cannot map {} bytes of shared memory: {}", bytes, std::strerror(errno));
  m.bytes_ = bytes;
  return m;
}

SharedMemory SharedMemory::open(const std::string& path, size_t bytes, Access access) {
  SharedMemory m;
  const bool writes = access == Access::ReadWrite;
  const int fd = ::open(path.c_str(), (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC);
  if (fd >= 0) {
    m.data_ = mapMemory(fd, bytes, PROT_READ | (writes ? PROT_WRITE : 0));
    m.bytes_ = bytes;
    ::close(fd);
  }
  return m;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    close();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
    linked_ = std::exchange(other.linked_, false);
  }
  return *this;
}

SharedMemory::~SharedMemory() { close(); }

void SharedMemory::unlink() {
  if (std::exchange(linked_, false)) {
    ::unlink(path_.c_str());
  }
}

bool SharedMemory::reserve(size_t begin, size_t end) {
  int status = 0;
  do {
    status = fallocate(fd_, 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin));
  } while (status != 0 && errno == EINTR);  // a signal of a profiler, say
  return status == 0;
}

void SharedMemory::close() {
  unlink();
  if (data_ != nullptr) {
    munmap(std::exchange(data_, nullptr), bytes_);
  }
  if (fd_ >= 0) {
    ::close(std::exchange(fd_, -1));
  }
}

}  // namespace meshfuse
