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
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(end), bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(begin));
        ASSERT_EQ(to, expected) << bytes << " bytes to " << begin;
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
