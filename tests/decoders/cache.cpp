#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/disk_cache.h"
#include "decoders/decoders.h"

namespace meshfuse {

namespace {

// Of this process, removed at its end.
struct CacheFolder {
  std::string path = "/tmp/meshfuse_decoder_cache." + std::to_string(getpid());
  ~CacheFolder() {
    std::error_code error;
    std::filesystem::remove_all(path, error);
  }
};

}  // namespace

// The first byte chooses: the rest is the file of an entry; or an entry that was stored, changed at one place.
void readCacheEntry(std::string_view bytes) {
  static const CacheFolder folder;
  DiskCache cache(folder.path);
  const Hash128 key{1, 2};
  const std::string file = folder.path + "/" + key.hex() + ".entry";
  const bool isWhole = !bytes.empty() && bytes[0] % 2 != 0;
  if (isWhole && bytes.size() > 3) {
    const std::string stored(bytes.substr(3));
    cache.store(key, stored);
    require(cache.load(key) == stored, "an entry that was stored is not loaded");
    std::fstream entry(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto size = static_cast<size_t>(std::filesystem::file_size(file));
    const size_t at = (static_cast<uint8_t>(bytes[1]) * size_t{256} + static_cast<uint8_t>(bytes[2])) % size;
    entry.seekg(static_cast<std::streamoff>(at));
    const int old = entry.get();
    entry.seekp(static_cast<std::streamoff>(at));
    entry.put(static_cast<char>(old ^ 1));
    entry.close();
    require(!cache.load(key).has_value(), "a changed entry is loaded");
  } else {
    std::ofstream(file, std::ios::binary) << bytes;
    if (!cache.load(key)) {
      require(!cache.load(key).has_value(), "a refused entry comes back");
    }
  }
}

}  // namespace meshfuse
