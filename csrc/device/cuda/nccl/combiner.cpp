#include "device/cuda/nccl/combiner.h"

#include <array>
#include <bit>
#include <vector>

#include "device/device.h"

namespace meshfuse {

void Combiner::prepare(const Combination& of) {
  if (!isReady(of)) {
    const std::vector<tile::Program> programs = {combineProgram(of)};
    kernels_[of] = device_.compile(programs)[0];
  }
}

void Combiner::combine(const Combination& of, const std::byte* operands, int64_t count, int64_t distance,
                       std::byte* result, cuda::Stream stream) const {
  const std::array<uint64_t, 4> slots = {std::bit_cast<uint64_t>(operands), std::bit_cast<uint64_t>(result),
                                         static_cast<uint64_t>(count), static_cast<uint64_t>(distance)};
  launch_(*kernels_.at(of), slots, stream);
}

}  // namespace meshfuse
