#include "device/cuda/nccl/combiner.h"

#include <array>
#include <bit>
#include <vector>

#include "device/device.h"

namespace meshfuse {

bool Combiner::isReady(const Combination& of, int64_t bytes) const { return bytes <= bytes_ && kernels_.contains(of); }

void Combiner::prepare(const Combination& of, int64_t bytes) {
  std::shared_ptr<const Kernel>& kernel = kernels_[of];
  if (kernel == nullptr) {
    const std::vector<tile::Program> programs = {combineProgram(of)};
    kernel = device_.compile(programs)[0];
  }
  if (bytes > bytes_) {
    memory_ = nullptr;
    bytes_ = 0;
    memory_ = device_.allocate(bytes);
    bytes_ = bytes;
  }
}

void Combiner::combine(const Combination& of, int64_t count, int64_t distance, std::byte* result,
                       cuda::Stream stream) const {
  const std::array<uint64_t, 4> slots = {std::bit_cast<uint64_t>(memory_.get()), std::bit_cast<uint64_t>(result),
                                         static_cast<uint64_t>(count), static_cast<uint64_t>(distance)};
  launch_(*kernels_.at(of), slots, stream);
}

}  // namespace meshfuse
