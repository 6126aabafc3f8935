#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/disk_cache.h"
#include "base/environment.h"
#include "base/error.h"
#include "decoders/decoders.h"
#include "exec/dumped_passes.h"
#include "multidevice/transport/algorithms.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/star.h"

namespace meshfuse {

namespace {

// A file for the secret of a job, which only this process may read.
std::string secretFile(std::string_view text) {
  static const int memory = memfd_create("secret", MFD_CLOEXEC);
  const bool isWritten = fchmod(memory, S_IRUSR | S_IWUSR) == 0 && ftruncate(memory, 0) == 0 &&
                         pwrite(memory, text.data(), text.size(), 0) == std::ssize(text);
  require(isWritten, "no memory for the file");
  return "/proc/self/fd/" + std::to_string(memory);
}

void readAsSetting(const auto& read) {
  try {
    read();
  } catch (const UserError&) {
  }
}

}  // namespace

// One variable in a line, in the order of this list. A secret `file` is the rest of the bytes, in a file.
void readSettings(std::string_view bytes) {
  static constexpr const char* kVariables[] = {"RANK",          "WORLD_SIZE",        "MASTER_ADDR",
                                               "MASTER_PORT",   "MESHFUSE_SECRET",   "MESHFUSE_ALGORITHMS",
                                               "MESHFUSE_DUMP", "MESHFUSE_CACHE_DIR"};
  for (const char* variable : kVariables) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    std::string value(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    value.resize(std::min(value.find('\0'), value.size()));
    setenv(variable, value.c_str(), 1);
  }
  if (environmentText("MESHFUSE_SECRET") == "file") {
    unsetenv("MESHFUSE_SECRET");
    setenv("MESHFUSE_SECRET_FILE", secretFile(bytes).c_str(), 1);
  }
  readAsSetting([] {
    const RankOfLauncher place = starPlace();
    require(place.rank >= 0 && place.rank < place.size && place.size <= 65'536, "a rank that is none");
  });
  readAsSetting([] { require(masterPort() > 0 && masterPort() < 65'536, "a port that is none"); });
  readAsSetting([] { static_cast<void>(masterIsLocal() || keyForMaster() == Key{}); });
  readAsSetting([] { checkDumpedPasses(); });
  readAsSetting([] { static_cast<void>(defaultCacheDirectory()); });
  readAsSetting([] { static_cast<void>(AlgorithmTable::parse(environmentText("MESHFUSE_ALGORITHMS"))); });
  for (const char* variable : kVariables) {
    unsetenv(variable);
  }
  unsetenv("MESHFUSE_SECRET_FILE");
}

}  // namespace meshfuse
