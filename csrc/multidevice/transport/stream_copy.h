// A copy that goes past the caches: for blocks that would not stay in them, and whose old content need not be read first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meshfuse {

// From here it is faster than memcpy, on processors with 2 MiB of cache for each core.
constexpr size_t kStreamedFrom = size_t{2} << 20;

// From where to where a block is copied. Who takes turns finds in the caches what it touched last, in buffers that do not fit there.
enum class CopyOrder : uint8_t { Forward, Backward };

void copyStreaming(std::byte* to, const std::byte* from, size_t bytes);

// Copies some of a block of `whole` bytes the way that is faster for all of it.
void copyOfBlock(std::byte* to, const std::byte* from, size_t bytes, size_t whole,
                 CopyOrder order = CopyOrder::Forward);

}  // namespace meshfuse
