// Compiled code and plans on disk. The key is a hash of everything that an entry depends on.
//
// Each entry is one file, `<key>.entry`: magic, key, size, checksum, bytes. An entry is written to a temporary file, which is then renamed.
// So a reader sees a complete entry or none, and processes may share a directory. A damaged entry is deleted and counts as absent. The
// directory holds code: only the caller may own and access it.
//
// The directory has a limit, which counts whole blocks of the disk. An entry that is read gets the time of the read; entries whose time is
// oldest are deleted first. Listing a large directory takes longer than a store. So a store of n bytes lists it and deletes entries with a
// probability of n divided by 1/64 of the limit. The key, a hash, decides, so processes need no common counter. The directory exceeds its
// limit by about 1/64 on average. Where the file system has locks, one process at a time lists the directory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"

namespace meshfuse {

struct DiskCacheCounters {
  int64_t hits = 0;
  int64_t misses = 0;  // bad entries included
  int64_t bad = 0;     // entries that load() found damaged or that drop() was given; they were deleted
  int64_t written = 0;
};

inline constexpr int64_t kMostCacheBytes = int64_t{2} << 30;

class DiskCache {
 public:
  // Makes the directory if there is none, with mode 0700. UserError if it cannot be made, is not a directory, belongs to
  // another user, or is accessible to others.
  explicit DiskCache(std::string directory, int64_t mostBytes = kMostCacheBytes);

  const std::string& directory() const { return directory_; }

  // The bytes stored under `key`.
  std::optional<std::string> load(Hash128 key);
  // On a full disk, the entries whose last use is longest ago make room, if all of them would suffice. A failure to write (no space,
  // read-only) is not an error: the entry stays absent.
  void store(Hash128 key, std::string_view bytes);
  // Deletes an entry whose bytes cannot be used.
  void drop(Hash128 key);
  DiskCacheCounters counters() const;

 private:
  std::string pathOf(Hash128 key) const;
  // False if the entry could not be written; errno says why.
  bool write(Hash128 key, std::string_view bytes);

  std::string directory_;
  int64_t mostBytes_;
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> misses_{0};
  std::atomic<int64_t> bad_{0};
  std::atomic<int64_t> written_{0};
  std::atomic<uint64_t> serial_{0};
};

// $MESHFUSE_CACHE_DIR, else $XDG_CACHE_HOME/meshfuse, else $HOME/.cache/meshfuse; empty if none of them is set.
[[nodiscard]] std::string defaultCacheDirectory();
// The cache of all compiled kernels and plans of this process, in the default directory; null if MESHFUSE_CACHE_DIR is "off", or if the directory
// cannot be used: a line on standard error says why, once. It has at most $MESHFUSE_CACHE_BYTES, default kMostCacheBytes.
[[nodiscard]] const std::shared_ptr<DiskCache>& kernelDiskCache();

}  // namespace meshfuse
