#include "base/sweep_entries.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

namespace meshfuse {

namespace {

constexpr int64_t kSecondsOfAUse = 60;
constexpr int64_t kSecondsOfAWriter = 3600;
constexpr int64_t kBytesOfABlock = 512;  // of stat::st_blocks
constexpr std::chrono::milliseconds kBetweenTries{2};
constexpr int64_t kTriesForRoom = 500;  // a second: listing a large directory takes less

// A name that DiskCache gives an entry, or a file that becomes one: 32 digits, then .entry or .entry.PROCESS.NUMBER.partial
bool isOurs(std::string_view name) {
  constexpr size_t kDigits = 32;
  return name.size() > kDigits && name.find_first_not_of("0123456789abcdef") == kDigits &&
         name.substr(kDigits).starts_with(".entry");
}

struct EntryFile {
  int64_t seconds = 0;
  int64_t nanoseconds = 0;
  std::string name;
  int64_t bytes = 0;
};

// The bytes that entries may have after a sweep: a function of the bytes that they have. Not less than these: nothing is deleted.
using LeftBytes = std::function<int64_t(int64_t)>;

// False while another process has it, for `tries` tries. True on file systems without locks: several may sweep.
bool lockFor(int64_t tries, int directory) {
  for (int64_t k = 0; flock(directory, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; k++) {
    if (k + 1 >= tries) {
      return false;
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  return true;
}

void sweep(const std::string& directory, int64_t tries, const LeftBytes& mayStay) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(directory.c_str()), closedir);
  if (open == nullptr) {
    return;
  }
  const int at = dirfd(open.get());
  if (!lockFor(tries, at)) {
    return;
  }
  std::vector<EntryFile> entries;
  int64_t bytes = 0;
  const int64_t now = std::time(nullptr);
  while (const dirent* file = readdir(open.get())) {
    const std::string_view name = file->d_name;
    struct stat status {};
    if (!isOurs(name) || (!name.ends_with(".entry") && !name.ends_with(".partial")) ||
        fstatat(at, file->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) {
      continue;
    }
    if (name.ends_with(".partial")) {
      if (status.st_mtim.tv_sec < now - kSecondsOfAWriter) {
        unlinkat(at, file->d_name, 0);
      }
      continue;
    }
    // a time that a wrong clock gave would keep an entry for long
    const int64_t seconds = status.st_mtim.tv_sec > now + kSecondsOfAUse ? 0 : status.st_mtim.tv_sec;
    const int64_t taken = std::max<int64_t>(status.st_size, status.st_blocks * kBytesOfABlock);
    entries.push_back({seconds, status.st_mtim.tv_nsec, std::string(name), taken});
    bytes += taken;
  }
  const int64_t left = mayStay(bytes);
  if (left >= bytes) {
    return;
  }
  std::ranges::sort(entries, {}, [](const EntryFile& e) { return std::tie(e.seconds, e.nanoseconds, e.name); });
  for (const EntryFile& e : entries) {
    if (bytes <= left) {
      break;
    }
    if (unlinkat(at, e.name.c_str(), 0) == 0 || errno == ENOENT) {
      bytes -= e.bytes;
    }
  }
}

}  // namespace

void sweepEntries(const std::string& directory, int64_t mostBytes) {
  sweep(directory, 1, [&](int64_t bytes) { return bytes <= mostBytes ? bytes : mostBytes - mostBytes / 8; });
}

void freeEntries(const std::string& directory, int64_t bytes, const std::function<int64_t()>& freeBytes) {
  sweep(directory, kTriesForRoom, [&](int64_t all) {
    const int64_t missing = blockBytes(bytes) - freeBytes();
    const bool helps = missing >= 0 && missing <= all;  // not below 0: the file system may need a block of its own
    return helps ? all - std::max(missing, all / 8) : all;
  });
}

int64_t freeBytesOf(const std::string& directory) {
  struct statvfs status {};
  if (statvfs(directory.c_str(), &status) != 0 || (status.f_files > 0 && status.f_favail == 0)) {
    return 0;
  }
  return static_cast<int64_t>(status.f_bavail * status.f_frsize);
}

void noteUse(int descriptor, int64_t seconds) {
  const int64_t sinceThen = std::time(nullptr) - seconds;
  if (sinceThen > kSecondsOfAUse || sinceThen < 0) {
    const std::array<timespec, 2> now = {timespec{0, UTIME_OMIT}, timespec{0, UTIME_NOW}};
    (void)futimens(descriptor, now.data());
  }
}

}  // namespace meshfuse
