// Memory that one process creates and others map.
//
// Others open a memfd through /proc/<pid>/fd; no file remains, whichever process is killed and when. If the ranks do not see each
// other's /proc (separate PID namespaces, hidepid), a named segment in /dev/shm is used and removed as soon as all have mapped it.
#pragma once

#include <cstddef>
#include <string>

namespace meshfuse {

class SharedMemory {
 public:
  enum class Name { Descriptor, File };
  enum class Access { ReadOnly, ReadWrite };

  SharedMemory() = default;
  // New address space of `bytes`, zero when read and not yet backed by memory. DeviceError if there is none.
  static SharedMemory create(size_t bytes, Name name);
  // Memory of another process by its path(); not valid() if that cannot be opened or mapped.
  static SharedMemory open(const std::string& path, size_t bytes, Access access);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  bool valid() const { return data_ != nullptr; }
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // The path by which another process opens the memory: valid until unlink() or the end of this object.
  const std::string& path() const { return path_; }
  void unlink();
  // Backs [begin, end) with memory, so that no access fails later. False if there is none left.
  bool reserve(size_t begin, size_t end);

 private:
  void close();

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  int fd_ = -1;
  std::string path_;
  bool linked_ = false;
};

}  // namespace meshfuse
