#include "multidevice/transport/host/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace meshfuse {

namespace {

constexpr int kSealedSize = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

SharedMemory SharedMemory::create(size_t bytes) {
  SharedMemory m;
  m.descriptor_ = Descriptor(memfd_create("meshfuse", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int fd = m.descriptor_.get();
  deviceCheck(fd >= 0, "[host] cannot create shared memory: {}", std::strerror(errno));
  const bool isLarge = ftruncate(fd, static_cast<off_t>(bytes)) == 0;
  deviceCheck(isLarge, "[host] cannot allocate {} bytes of shared memory: {}", bytes, std::strerror(errno));
  const bool isSealed = fcntl(fd, F_ADD_SEALS, kSealedSize | F_SEAL_SEAL) == 0;
  deviceCheck(isSealed, "[host] cannot seal shared memory: {}", std::strerror(errno));
  const bool isMapped = m.map(fd, bytes, PROT_READ | PROT_WRITE);
  deviceCheck(isMapped, "[host] cannot map {} bytes of shared memory: {}", bytes, std::strerror(errno));
  return m;
}

SharedMemory SharedMemory::open(const Descriptor& descriptor, Access access) {
  SharedMemory m;
  const int fd = descriptor.get();
  const int seals = fcntl(fd, F_GET_SEALS);  // -1 for what is not such memory, a file say
  struct stat about {};
  if (seals >= 0 && (seals & kSealedSize) == kSealedSize && fstat(fd, &about) == 0) {
    const int protection = access == Access::ReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
    m.map(fd, about.st_size, protection);
  }
  return m;
}

bool SharedMemory::map(int fd, size_t bytes, int protection) {
  void* p = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) {
    return false;
  }
  madvise(p, bytes, MADV_DONTDUMP);  // most of it is address space only
  data_ = static_cast<std::byte*>(p);
  bytes_ = bytes;
  return true;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      descriptor_(std::move(other.descriptor_)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
}

bool SharedMemory::reserve(size_t begin, size_t end) {
  int status = 0;
  do {
    status = fallocate(descriptor_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(end - begin));
  } while (status != 0 && errno == EINTR);  // a signal of a profiler, say
  return status == 0;
}

}  // namespace meshfuse
