// Blocks that take turns, against a concatenation.
#include "multidevice/transport/pull.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace meshfuse {
namespace {

constexpr int64_t kLarge = kFarFrom;

std::vector<std::byte> pattern(int64_t bytes, int64_t seed) {
  std::vector<std::byte> data(bytes);
  for (int64_t i = 0; i < bytes; ++i) {
    data[i] = std::byte((i + seed) * 131 + i / 251);
  }
  return data;
}

// Each rank in turn concatenates blocks of these sizes. The last rank's memory is read by a function.
void expectConcatenated(const std::vector<int64_t>& sizes) {
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::byte> expected;
  for (const int64_t bytes : sizes) {
    blocks.push_back(pattern(bytes, std::ssize(blocks)));
    expected.insert(expected.end(), blocks.back().begin(), blocks.back().end());
  }
  const int64_t last = std::ssize(sizes) - 1;
  const PullCall::ReadProcess read = [&](int64_t process, const std::byte* from, std::byte* to, int64_t bytes) {
    EXPECT_EQ(process, last);
    EXPECT_GT(bytes, 0);
    std::memcpy(to, from, bytes);
  };
  for (int64_t position = 0; position <= last; ++position) {
    for (const CopyOrder order : {CopyOrder::Forward, CopyOrder::Backward}) {
      std::vector<std::byte> out(expected.size() + 1, std::byte{0x5a});
      std::vector<PeerBuffers> peers;
      int64_t at = 0;
      for (const std::vector<std::byte>& block : blocks) {
        const bool isOfProcess = std::ssize(peers) == last && position != last;
        peers.push_back({.in = block.data(),
                         .out = out.data() + at,
                         .bytes = std::ssize(block),
                         .process = isOfProcess ? last : -1});
        at += std::ssize(block);
      }
      const int64_t received = pull(
          {.position = position, .peers = peers, .order = order, .kind = Collective::AllGather, .readProcess = &read});
      EXPECT_EQ(received, at - sizes[position]);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin())) << "rank " << position;
      EXPECT_EQ(out.back(), std::byte{0x5a});
    }
  }
}

TEST(Pull, SmallBlocks) {
  expectConcatenated({4096, 4096, 4096});
  expectConcatenated({1, 0, 77});
  expectConcatenated({0, 0});
}

TEST(Pull, LargeBlocksTakeTurns) {
  expectConcatenated({kLarge, kLarge});
  expectConcatenated({kLarge + 1, kLarge + kTurnBytes + 77, 2 * kLarge + 13});
}

TEST(Pull, TurnsOfBlocksOfDifferentSizes) { expectConcatenated({3, kLarge + 5, 0, kTurnBytes, kTurnBytes + 1}); }

// An own block that lies in the output already stays as it is.
TEST(Pull, OwnBlockInPlace) {
  std::vector<std::byte> out = pattern(2 * kLarge, 1);
  const std::vector<std::byte> theirs = pattern(kLarge, 2);
  std::vector<std::byte> expected = out;
  std::ranges::copy(theirs, expected.begin() + kLarge);
  const std::vector<PeerBuffers> peers = {{.in = out.data(), .out = out.data(), .bytes = kLarge},
                                          {.in = theirs.data(), .out = out.data() + kLarge, .bytes = kLarge}};
  EXPECT_EQ(pull({.position = 0, .peers = peers, .kind = Collective::AllGather}), kLarge);
  EXPECT_TRUE(out == expected);
}

}  // namespace
}  // namespace meshfuse
