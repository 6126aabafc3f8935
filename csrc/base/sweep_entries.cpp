#include "base/sweep_entries.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

namespace meshfuse {

namespace {

constexpr int64_t kSecondsOfAUse = 60;
constexpr int64_t kSecondsOfAWriter = 3600;

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
  while (const dirent* file = readdir(open.get())) {
    const std::string_view name = file->d_name;
    struct stat status {};
    if ((!name.ends_with(".entry") && !name.ends_with(".partial")) ||
        fstatat(at, file->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) {
      continue;
    }
    if (name.ends_with(".partial")) {
      if (status.st_mtim.tv_sec < std::time(nullptr) - kSecondsOfAWriter) {
        unlinkat(at, file->d_name, 0);
      }
      continue;
    }
    entries.push_back({status.st_mtim.tv_sec, status.st_mtim.tv_nsec, std::string(name), status.st_size});
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
    unlinkat(at, e.name.c_str(), 0);
    bytes -= e.bytes;
  }
}

void noteUse(int descriptor, int64_t seconds) {
  if (seconds < std::time(nullptr) - kSecondsOfAUse) {
    const std::array<timespec, 2> now = {timespec{0, UTIME_OMIT}, timespec{0, UTIME_NOW}};
    (void)futimens(descriptor, now.data());
  }
}

}  // namespace meshfuse
