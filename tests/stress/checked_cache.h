// A fusion run by FusionExecutorCache, every step verified, and held against the reference interpreter call by call.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/fusion_executor_cache.h"
#include "ir/fusion.h"

namespace meshfuse {

using BuildFusion = std::function<void(Fusion&)>;

class CheckedCache {
 public:
  explicit CheckedCache(const BuildFusion& build, ExecutorOptions options = {.verify = Verify::Always});

  // What differs from the reference, on this call and an equal second one; empty if nothing does. Inputs that outputs alias
  // are updated once: the second call is left out then.
  std::string call(const std::vector<Argument>& inputs);
  // Results of the last call.
  const std::vector<Tensor>& results() const { return results_; }
  FusionExecutorCache& cache() { return *cache_; }

 private:
  std::unique_ptr<FusionExecutorCache> cache_;
  std::vector<Tensor> results_;
};

// One cache called with each list of inputs in turn, as gtest expectations.
void expectAgrees(const BuildFusion& build, const std::vector<std::vector<Argument>>& calls);

// What a function throws: "UserError: text", "" if nothing.
std::string errorOf(const std::function<void()>& body);

}  // namespace meshfuse
