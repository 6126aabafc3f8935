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

// Each rank in turn concatenates blocks of these sizes. A function reads the memory of the last `processes` ranks. If a block is far, a read is
// one turn of a block, and it comes after the reads of all earlier turns.
void expectConcatenated(const std::vector<int64_t>& sizes, int64_t processes = 1) {
  std::vector<std::vector<std::byte>> blocks;
  std::vector<std::byte> expected;
  for (const int64_t bytes : sizes) {
    blocks.push_back(pattern(bytes, std::ssize(blocks)));
    expected.insert(expected.end(), blocks.back().begin(), blocks.back().end());
  }
  const int64_t last = std::ssize(sizes) - 1;
  const int64_t largest = std::ranges::max(sizes);
  const int64_t turn = largest >= kFarFrom ? kTurnBytesOfProcess : std::max<int64_t>(largest, 1);
  std::vector<int64_t> turns;  // of the reads, in their order
  const PullCall::ReadProcess read = [&](int64_t process, const std::byte* from, std::byte* to, int64_t bytes) {
    const int64_t at = from - blocks[process].data();
    EXPECT_GT(process, last - processes);
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(at % turn, 0);
    EXPECT_EQ(bytes, std::min(turn, sizes[process] - at));
    turns.push_back(at / turn);
    std::memcpy(to, from, bytes);
  };
  for (int64_t position = 0; position <= last; ++position) {
    for (const CopyOrder order : {CopyOrder::Forward, CopyOrder::Backward}) {
      std::vector<std::byte> out(expected.size() + 1, std::byte{0x5a});
      std::vector<PeerBuffers> peers;
      int64_t at = 0;
      for (const std::vector<std::byte>& block : blocks) {
        const int64_t p = std::ssize(peers);
        const bool isOfProcess = p > last - processes && p != position;
        peers.push_back(
            {.in = block.data(), .out = out.data() + at, .bytes = std::ssize(block), .process = isOfProcess ? p : -1});
        at += std::ssize(block);
      }
      turns.clear();
      const int64_t received = pull(
          {.position = position, .peers = peers, .order = order, .kind = Collective::AllGather, .readProcess = &read});
      EXPECT_EQ(received, at - sizes[position]);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin())) << "rank " << position;
      EXPECT_EQ(out.back(), std::byte{0x5a});
      if (order == CopyOrder::Backward) {
        std::ranges::reverse(turns);
      }
      EXPECT_TRUE(std::ranges::is_sorted(turns)) << "rank " << position;
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
  expectConcatenated({kLarge + 1, kLarge + kTurnBytes + 77, 2 * kLarge + 13}, 3);
}

TEST(Pull, TurnsOfBlocksOfDifferentSizes) { expectConcatenated({3, kLarge + 5, 0, kTurnBytes, kTurnBytes + 1}, 3); }

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
