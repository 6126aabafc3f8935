#include "base/disk_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/environment.h"
#include "base/error.h"
#include "base/sweep_entries.h"

namespace meshfuse {

namespace {

struct Header {
  std::array<char, 8> magic;
  Hash128 key;
  uint64_t size;
  Hash128 check;
};

constexpr uint64_t kMostEntryBytes = uint64_t{1} << 30;
constexpr int64_t kSweepsOfALimit = 64;  // while so many bytes are stored

constexpr std::array<char, 8> kMagic = {'m', 'f', 'c', 'a', 'c', 'h', 'e', '1'};

// The key is part of the checksum: an entry under another entry's name is bad, too.
Hash128 checksum(Hash128 key, std::string_view bytes) {
  Hash128 h = hashText(bytes);
  return {hashCombine(hashCombine(h.hi, key.hi), key.lo), hashCombine(hashCombine(h.lo, key.lo), key.hi)};
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool isOpen() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  bool write(const void* data, size_t bytes) const { return transfer(::write, static_cast<const char*>(data), bytes); }
  bool read(void* data, size_t bytes) const { return transfer(::read, static_cast<char*>(data), bytes); }

 private:
  // Calls read or write until all bytes have moved.
  template <class Call, class Byte>
  bool transfer(Call call, Byte* at, size_t bytes) const {
    while (bytes > 0) {
      const ssize_t n = call(descriptor_, at, bytes);
      if (n < 0 && errno == EINTR) {
        continue;
      }
      if (n <= 0) {
        return false;
      }
      at += n;
      bytes -= n;
    }
    return true;
  }

  int descriptor_;
};

}  // namespace

DiskCache::DiskCache(std::string directory, int64_t mostBytes)
    : directory_(std::move(directory)), mostBytes_(mostBytes) {
  check(!directory_.empty(), "[disk cache] no directory given; name one, or set MESHFUSE_CACHE_DIR");
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(directory_).parent_path(), error);
  if (mkdir(directory_.c_str(), 0700) != 0) {
    check(errno == EEXIST, "[disk cache] cannot create the directory {}: {}; choose another directory", directory_,
          std::strerror(errno));
  }
  struct stat status {};
  const bool isKnown = lstat(directory_.c_str(), &status) == 0;  // first: arguments have no order, and errno is one
  check(isKnown, "[disk cache] cannot examine {}: {}; choose another directory", directory_, std::strerror(errno));
  check(S_ISDIR(status.st_mode), "[disk cache] {} is not a directory; choose another one", directory_);
  check(status.st_uid == geteuid(),
        "[disk cache] {} belongs to user {}, this process runs as user {}; the directory holds executable code: use a "
        "directory of your own",
        directory_, status.st_uid, geteuid());
  check((status.st_mode & 077) == 0,
        "[disk cache] {} has mode {:o}, expected 700, because it holds executable code; run chmod 700 on it",
        directory_, static_cast<unsigned>(status.st_mode & 0777));
}

std::string DiskCache::pathOf(Hash128 key) const { return directory_ + "/" + key.hex() + ".entry"; }

std::optional<std::string> DiskCache::load(Hash128 key) {
  std::string path = pathOf(key);
  File file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));  // does not wait for the writer of a pipe
  if (!file.isOpen()) {
    misses_++;
    return std::nullopt;
  }
  Header header{};
  struct stat status {};
  std::string bytes;
  bool good = fstat(file.descriptor(), &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
              file.read(&header, sizeof header) && header.magic == kMagic &&
              header.size == static_cast<uint64_t>(status.st_size) - sizeof header && header.size <= kMostEntryBytes;
  if (good) {
    bytes.resize(header.size);
    good = file.read(bytes.data(), bytes.size());
  }
  if (!good || header.key != key || header.check != checksum(key, bytes)) {
    drop(key);
    misses_++;
    return std::nullopt;
  }
  noteUse(file.descriptor(), status.st_mtim.tv_sec);
  hits_++;
  return bytes;
}

void DiskCache::drop(Hash128 key) {
  unlink(pathOf(key).c_str());
  bad_++;
}

bool DiskCache::write(Hash128 key, std::string_view bytes) {
  const std::string path = pathOf(key);
  const std::string temporary = path + "." + std::to_string(getpid()) + "." + std::to_string(serial_++) + ".partial";
  const Header header{kMagic, key, bytes.size(), checksum(key, bytes)};
  bool written = false;
  int error = 0;
  {
    File file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    written = file.isOpen() && file.write(&header, sizeof header) && file.write(bytes.data(), bytes.size());
    error = errno;
  }
  if (written && rename(temporary.c_str(), path.c_str()) == 0) {
    return true;
  }
  error = written ? errno : error;
  unlink(temporary.c_str());
  errno = error;
  return false;
}

void DiskCache::store(Hash128 key, std::string_view bytes) {
  const int64_t size = blockBytes(static_cast<int64_t>(sizeof(Header) + bytes.size()));
  bool written = write(key, bytes);
  if (!written && (errno == ENOSPC || errno == EDQUOT) && size <= mostBytes_) {
    const bool isQuota = errno == EDQUOT;  // the disk may have room for others
    freeEntries(directory_, size, [&] { return isQuota ? 0 : freeBytesOf(directory_); });
    written = write(key, bytes);
  }
  if (written) {
    written_++;
    if (key.lo % static_cast<uint64_t>(mostBytes_ / kSweepsOfALimit + 1) < static_cast<uint64_t>(size)) {
      sweepEntries(directory_, mostBytes_);
    }
  }
}

DiskCacheCounters DiskCache::counters() const {
  return {.hits = hits_, .misses = misses_, .bad = bad_, .written = written_};
}

std::string defaultCacheDirectory() {
  auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string own = variable("MESHFUSE_CACHE_DIR"); !own.empty()) {
    return own;
  }
  if (std::string caches = variable("XDG_CACHE_HOME"); !caches.empty()) {
    return caches + "/meshfuse";
  }
  std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/meshfuse";
}

const std::shared_ptr<DiskCache>& kernelDiskCache() {
  static const std::shared_ptr<DiskCache> cache = [] {
    const std::string directory = defaultCacheDirectory();
    try {
      const std::optional<int64_t> most = environmentNumber("MESHFUSE_CACHE_BYTES", 1, INT64_MAX, "a number of bytes");
      return directory.empty() || directory == "off"
                 ? nullptr
                 : std::make_shared<DiskCache>(directory, most.value_or(kMostCacheBytes));
    } catch (const UserError& e) {
      fmt::print(stderr, "meshfuse: kernels are compiled without a disk cache: {}\n", e.what());
      return std::shared_ptr<DiskCache>();
    }
  }();
  return cache;
}

}  // namespace meshfuse
