#include "device/cuda/cuda_kernel.h"

#include <bit>
#include <optional>

#include "base/error.h"

namespace meshfuse {

namespace {

// What a launch asks for at most: known, or what a block of this GPU can have.
int64_t mostSharedBytes(const CudaContext& context, const CudaSource& source) {
  return source.sharedBytes.isConst() ? source.sharedBytes.constValue() : context.sharedBytesOfABlock();
}

}  // namespace

CudaKernel::CudaKernel(const CudaContext& context, const tile::Program& program, CudaSource source,
                       std::string_view cubin)
    : source_(std::move(source)), module_(context, cubin, source_.entry, mostSharedBytes(context, source_)) {
  for (const CudaSlot& slot : source_.slots) {
    sizes_.push_back(slot.kind == CudaSlot::Kind::Size ? program.sizes[slot.index].name : "");
  }
}

void CudaKernel::launch(std::span<const uint64_t> slots, RefusedIndexRecord* refused, cuda::Stream stream) const {
  std::vector<uint64_t> all(slots.begin(), slots.end());
  if (refused != nullptr) {
    all.push_back(std::bit_cast<uint64_t>(refused));
  }
  invariant(all.size() == source_.slots.size(), "[cuda] kernel {} takes {} slots, got {}", source_.entry,
            source_.slots.size(), all.size());
  const auto sizeOf = [&](std::string_view name) -> std::optional<int64_t> {
    for (size_t i = 0; i < sizes_.size(); i++) {
      if (sizes_[i] == name) {
        return static_cast<int64_t>(all[i]);
      }
    }
    return std::nullopt;
  };
  module_.launch({.blocks = source_.blocks.evaluate(sizeOf),
                  .threads = source_.threads,
                  .cluster = source_.cluster,
                  .sharedBytes = source_.sharedBytes.evaluate(sizeOf)},
                 all, stream);
}

}  // namespace meshfuse
