// The algorithms that cuBLASLt's heuristic chose, kept on disk: a second process need not ask again.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "device/cuda/api/cublaslt.h"

namespace meshfuse {

class DiskCache;
struct DeviceInfo;

struct ProductAlgorithm {
  cublaslt::Algorithm algorithm = {};
  int64_t workspaceBytes = 0;
};

struct AlgorithmCounters {
  int64_t chosen = 0;    // by the heuristic
  int64_t fromDisk = 0;  // and found to serve their product
};

// Thread-safe.
class ProductAlgorithms {
 public:
  // For the device, and the version of the loaded library. `cache` is optional and outlives this.
  ProductAlgorithms(const DeviceInfo& device, DiskCache* cache);

  // The algorithm on disk for a product, if `serves` accepts it, else the one that `choose` gives, which is then kept. `problem`: a text of all
  // that the choice depends on besides the device and the library.
  ProductAlgorithm get(std::string_view problem, const std::function<bool(const ProductAlgorithm&)>& serves,
                       const std::function<ProductAlgorithm()>& choose);
  // Under which an entry is on disk.
  Hash128 keyOf(std::string_view problem) const;
  AlgorithmCounters counters() const { return {chosen_.load(), fromDisk_.load()}; }

 private:
  std::optional<ProductAlgorithm> load(Hash128 key) const;

  const std::string platform_;
  DiskCache* const cache_;
  std::atomic<int64_t> chosen_{0};
  std::atomic<int64_t> fromDisk_{0};
};

}  // namespace meshfuse
