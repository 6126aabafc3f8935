#include "device/cuda/routines/routine.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/ranges.h"

namespace meshfuse {

KernelRoutine::KernelRoutine(const CudaContext& context, RoutineProgram program, const Compile& compile)
    : program_(std::move(program)), modules_(mapped(program_.kernels, [&](const CudaSource& s) {
        return std::make_unique<const CudaModule>(context, compile(s), s.entry, s.sharedBytes.constValue());
      })) {}

void KernelRoutine::run(std::span<void* const> operands, void* out, void* workspace, cuda::Stream stream) const {
  const auto slotOf = [&](const RoutineSlot& s) -> uint64_t {
    switch (s.kind) {
      case RoutineSlot::Kind::Operand:
        return std::bit_cast<uint64_t>(operands[s.value]);
      case RoutineSlot::Kind::Result:
        return std::bit_cast<uint64_t>(out);
      case RoutineSlot::Kind::Workspace:
        return std::bit_cast<uint64_t>(static_cast<char*>(workspace) + s.value);
      case RoutineSlot::Kind::Number:
        return static_cast<uint64_t>(s.value);
    }
    return 0;
  };
  for (const RoutineLaunch& l : program_.launches) {
    const CudaSource& kernel = program_.kernels[l.kernel];
    const CudaLaunchShape shape{
        .blocks = l.blocks, .threads = kernel.threads, .sharedBytes = kernel.sharedBytes.constValue()};
    std::array<uint64_t, RoutineLaunch::kMostSlots> slots{};
    std::ranges::transform(l.slots, slots.begin(), slotOf);
    modules_[l.kernel]->launch(shape, std::span(slots).first(l.slots.size()), stream);
  }
}

}  // namespace meshfuse
