#include "base/sweep_entries.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

namespace meshfuse {

namespace {

constexpr int64_t kSecondsOfAUse = 60;
constexpr int64_t kSecondsOfAWriter = 3600;

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

}  // namespace

void sweepEntries(const std::string& directory, int64_t mostBytes) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(directory.c_str()), closedir);
  if (open == nullptr) {
    return;
  }
  const int at = dirfd(open.get());
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
    entries.push_back({seconds, status.st_mtim.tv_nsec, std::string(name), status.st_size});
    bytes += status.st_size;
  }
  if (bytes <= mostBytes) {
    return;
  }
  std::ranges::sort(entries, {}, [](const EntryFile& e) { return std::tie(e.seconds, e.nanoseconds, e.name); });
  for (const EntryFile& e : entries) {
    if (bytes <= mostBytes - mostBytes / 8) {
      break;
    }
    if (unlinkat(at, e.name.c_str(), 0) == 0 || errno == ENOENT) {
      bytes -= e.bytes;
    }
  }
}

void noteUse(int descriptor, int64_t seconds) {
  const int64_t sinceThen = std::time(nullptr) - seconds;
  if (sinceThen > kSecondsOfAUse || sinceThen < 0) {
    const std::array<timespec, 2> now = {timespec{0, UTIME_OMIT}, timespec{0, UTIME_NOW}};
    (void)futimens(descriptor, now.data());
  }
}

}  // namespace meshfuse
