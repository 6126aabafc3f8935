#include "device/cuda/cuda_kernel.h"

#include <algorithm>
#include <array>
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
  if (source_.blocks.isConst() && source_.sharedBytes.isConst()) {
    knownShape_ = shapeFor({});
  }
}

CudaLaunchShape CudaKernel::shapeFor(std::span<const uint64_t> slots) const {
  const auto sizeOf = [&](std::string_view name) -> std::optional<int64_t> {
    for (size_t i = 0; i < slots.size(); i++) {
      if (sizes_[i] == name) {
        return static_cast<int64_t>(slots[i]);
      }
    }
    return std::nullopt;
  };
  return {.blocks = source_.blocks.evaluate(sizeOf),
          .threads = source_.threads,
          .cluster = source_.cluster,
          .sharedBytes = source_.sharedBytes.evaluate(sizeOf)};
}

template <class Use>
void CudaKernel::withArguments(std::span<const uint64_t> slots, RefusedIndexRecord* refused, const Use& use) const {
  std::array<uint64_t, 64> few;
  std::vector<uint64_t> many;
  const size_t count = slots.size() + (refused != nullptr ? 1 : 0);
  invariant(count == source_.slots.size(), "[cuda] kernel {} takes {} slots, got {}", source_.entry,
            source_.slots.size(), count);
  std::span<const uint64_t> all = slots;
  if (refused != nullptr) {
    std::span<uint64_t> own = few;
    if (count > few.size()) {
      many.resize(count);
      own = many;
    }
    std::ranges::copy(slots, own.begin());
    own[count - 1] = std::bit_cast<uint64_t>(refused);
    all = own.first(count);
  }
  use(knownShape_ ? *knownShape_ : shapeFor(all), all);
}

void CudaKernel::launch(std::span<const uint64_t> slots, RefusedIndexRecord* refused, cuda::Stream stream) const {
  withArguments(slots, refused, [&](const CudaLaunchShape& shape, std::span<const uint64_t> all) {
    module_.launch(shape, all, stream);
  });
}

void CudaKernel::set(cuda::GraphExec graph, cuda::GraphNode node, std::span<const uint64_t> slots,
                     RefusedIndexRecord* refused) const {
  withArguments(slots, refused, [&](const CudaLaunchShape& shape, std::span<const uint64_t> all) {
    module_.set(graph, node, shape, all);
  });
}

}  // namespace meshfuse
