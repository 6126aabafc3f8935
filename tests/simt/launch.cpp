#include "simt/launch.h"

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace meshfuse::simt {

LaunchPlan planLaunch(const Launch& launch) {
  const tile::Program& p = *launch.kernel.program;
  const CudaSource& source = launch.kernel.source;
  const size_t given = source.slots.size() - (p.checksIndices() ? 1 : 0);
  invariant(launch.slots.size() == given, "[simt] kernel {} takes {} slots, got {}", p.name, given,
            launch.slots.size());
  auto sizeOf = [&](std::string_view name) -> std::optional<int64_t> {
    for (size_t i = 0; i < source.slots.size(); i++) {
      const CudaSlot& s = source.slots[i];
      if (s.kind == CudaSlot::Kind::Size && p.sizes[s.index].name == name) {
        return static_cast<int64_t>(launch.slots[i]);
      }
    }
    return std::nullopt;
  };
  LaunchPlan plan;
  plan.blocks = source.blocks.evaluate(sizeOf);
  plan.sharedBytes = source.sharedBytes.evaluate(sizeOf);
  for (size_t i = 0; i < source.slots.size(); i++) {
    if (source.slots[i].kind != CudaSlot::Kind::Tensor) {
      continue;
    }
    const tile::TensorParam& t = p.tensors[source.slots[i].index];
    int64_t lowest = 0;
    int64_t highest = 0;
    bool empty = false;
    for (size_t k = 0; k < t.extents.size(); k++) {
      int64_t extent = t.extents[k].evaluate(sizeOf);
      int64_t reach = (extent - 1) * t.strides[k].evaluate(sizeOf);
      empty = empty || extent == 0;
      (reach < 0 ? lowest : highest) += reach;
    }
    int64_t size = dataTypeSize(t.dtype);
    TensorMemory b{.slot = i, .tensor = source.slots[i].index};
    b.bytes = empty ? 0 : (highest - lowest + 1) * size;
    b.below = empty ? 0 : -lowest * size;
    b.begin = std::bit_cast<char*>(launch.slots[i]) - b.below;
    plan.tensors.push_back(b);
  }
  return plan;
}

}  // namespace meshfuse::simt
