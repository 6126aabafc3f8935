#include "multidevice/transport/stream_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace meshfuse {
namespace {

TEST(StreamCopy, AnySizeAtAnyAddress) {
  std::vector<std::byte> from(1 << 16);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = std::byte(i * 131 + i / 251);
  }
  for (size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 1000, 4096, 65'000}) {
    for (size_t begin : {0, 1, 16, 63}) {
      for (size_t end : {0, 7, 64}) {
        std::vector<std::byte> to(begin + bytes + end + 64, std::byte{0x5a});
        const std::vector<std::byte> before = to;
        copyStreaming(to.data() + begin, from.data() + end, bytes);
        std::vector<std::byte> expected = before;
        std::copy_n(from.begin() + end, bytes, expected.begin() + begin);
        ASSERT_EQ(to, expected) << bytes << " bytes to " << begin;
      }
    }
  }
}

// Both ways, of blocks that go through the caches and of those that go past them, and nothing beside the block.
TEST(StreamCopy, BlocksForwardAndBackward) {
  constexpr size_t kRoom = 5 << 20;
  constexpr size_t kMargin = 100;
  std::vector<std::byte> from(kRoom);
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = std::byte(i * 131 + i / 251);
  }
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{8191}, size_t{8192}, size_t{8193}, size_t{100'000},
                       kStreamedFrom - 1, kStreamedFrom, size_t{kFarFrom} - 1, size_t{kFarFrom} + 77}) {
    for (CopyOrder order : {CopyOrder::Forward, CopyOrder::Backward}) {
      for (size_t begin : {0, 5, 64}) {
        std::vector<std::byte> to(begin + bytes + kMargin, std::byte{0x5a});
        std::vector<std::byte> expected = to;
        copyOfBlock(to.data() + begin, from.data() + 3, bytes, bytes, order);
        std::copy_n(from.begin() + 3, bytes, expected.begin() + begin);
        ASSERT_TRUE(to == expected) << bytes << " bytes to " << begin;
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
