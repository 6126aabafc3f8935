#include "gpu_series.h"

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "figures.h"

namespace meshfuse {

bool isSimulated() {
  const char* const libraries = std::getenv("MESHFUSE_CUDA_LIBRARIES");
  return libraries != nullptr && std::filesystem::exists(std::filesystem::path(libraries) / "simgpu_engine");
}

double secondsOfSeries(const std::function<void()>& call, const std::function<void()>& end) {
  const int calls = isSimulated() ? 2 : 20;
  std::vector<double> seconds;
  for (int round = 0; round < 4; round++) {
    const double all = secondsOf([&] {
      for (int i = 0; i < calls; i++) {
        call();
      }
      end();
    });
    if (round > 0) {
      seconds.push_back(all / calls);
    }
  }
  return median(seconds);
}

}  // namespace meshfuse
