#include "device/cuda/cublaslt/algorithms.h"

#include <fmt/core.h>

#include <cstring>

#include "base/disk_cache.h"
#include "device/cuda/cublaslt/library.h"
#include "device/device_info.h"

namespace meshfuse {

ProductAlgorithms::ProductAlgorithms(const DeviceInfo& device, DiskCache* cache)
    // the choice depends on the number of multiprocessors, and an algorithm serves the version of the library that chose it
    : platform_(fmt::format("cublaslt algorithm {} {} {}", cublasLtLibrary().version(), device.architecture,
                            device.gpu.processors)),
      cache_(cache) {}

Hash128 ProductAlgorithms::keyOf(std::string_view problem) const {
  return hashText(fmt::format("{}\n{}", platform_, problem));
}

std::optional<ProductAlgorithm> ProductAlgorithms::load(Hash128 key) const {
  const std::optional<std::string> bytes = cache_ == nullptr ? std::nullopt : cache_->load(key);
  ProductAlgorithm found;
  if (!bytes || bytes->size() != sizeof found.algorithm + sizeof found.workspaceBytes) {
    return std::nullopt;
  }
  std::memcpy(&found.algorithm, bytes->data(), sizeof found.algorithm);
  std::memcpy(&found.workspaceBytes, bytes->data() + sizeof found.algorithm, sizeof found.workspaceBytes);
  return found;
}

ProductAlgorithm ProductAlgorithms::get(std::string_view problem,
                                        const std::function<bool(const ProductAlgorithm&)>& serves,
                                        const std::function<ProductAlgorithm()>& choose) {
  const Hash128 key = keyOf(problem);
  if (const std::optional<ProductAlgorithm> found = load(key); found && serves(*found)) {
    fromDisk_++;
    return *found;
  }
  const ProductAlgorithm chosen = choose();
  chosen_++;
  if (cache_ != nullptr) {
    std::string bytes(sizeof chosen.algorithm + sizeof chosen.workspaceBytes, '\0');
    std::memcpy(bytes.data(), &chosen.algorithm, sizeof chosen.algorithm);
    std::memcpy(bytes.data() + sizeof chosen.algorithm, &chosen.workspaceBytes, sizeof chosen.workspaceBytes);
    cache_->store(key, bytes);
  }
  return chosen;
}

}  // namespace meshfuse
