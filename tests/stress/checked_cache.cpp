#include "stress/checked_cache.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "interpret/bounds.h"
#include "ir/read_program.h"

namespace meshfuse {

CheckedCache::CheckedCache(const BuildFusion& build, ExecutorOptions options) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    build(*fusion);
  }
  // what runs can be read from its text
  const std::string text = fusion->toString();
  EXPECT_EQ(readProgram(text, "fusion")->toString(), text);
  cache_ = std::make_unique<FusionExecutorCache>(std::move(fusion), options);
}

std::string CheckedCache::call(const std::vector<Argument>& inputs) {
  std::vector<BoundedTensor> expected = interpretWithBounds(cache_->fusion(), inputs);
  int calls = cache_->fusion().aliases().empty() ? 2 : 1;
  for (int k = 0; k < calls; k++) {
    results_ = cache_->runFusionWithInputs(inputs);
    if (results_.size() != expected.size()) {
      return "another number of outputs";
    }
    for (size_t i = 0; i < results_.size(); i++) {
      if (std::optional<std::string> difference = compare(results_[i], expected[i])) {
        return "output " + std::to_string(i) + " of call " + std::to_string(k) + ": " + *difference;
      }
    }
  }
  return "";
}

void expectAgrees(const BuildFusion& build, const std::vector<std::vector<Argument>>& calls) {
  CheckedCache checked(build);
  for (size_t i = 0; i < calls.size(); i++) {
    try {
      EXPECT_EQ(checked.call(calls[i]), "") << "arguments " << i;
    } catch (const Error& e) {
      ADD_FAILURE() << "arguments " << i << ": " << e.what();
    }
  }
}

std::string errorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const UserError& e) {
    return std::string("UserError: ") + e.what();
  } catch (const DeviceError& e) {
    return std::string("DeviceError: ") + e.what();
  } catch (const std::exception& e) {
    return std::string("another error: ") + e.what();
  }
  return "";
}

}  // namespace meshfuse
