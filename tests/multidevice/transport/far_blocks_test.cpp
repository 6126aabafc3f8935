// Collectives that only move far blocks, which a rank copies in turns with those of its peers: every place of buffers, both orders of
// copies, and blocks on both sides of the limit.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>

#include "multidevice/multidevice_test.h"
#include "multidevice/transport/check_collectives.h"
#include "multidevice/transport/processes.h"
#include "multidevice/transport/stream_copy.h"

namespace meshfuse {
namespace {

constexpr int64_t kFarCount = 1'100'001;
static_assert(kFarCount * sizeof(float) >= kFarFrom);

// Calls that follow each other write an output forward and backward. Each shall write all of it.
std::string checkBothOrders(std::string_view what, const CallBuffer& out, const Bytes& expected,
                            const std::function<void()>& call) {
  std::string text;
  for (std::string_view which : {"first", "second"}) {
    std::memset(out.data(), 0x5a, expected.size());
    call();
    const int64_t at = firstDifference(out.content(), expected, DataType::Float);
    text += at < 0 ? "" : fmt::format("{}, {} call: element {} differs; ", what, which, at);
  }
  return text;
}

// Collectives of far blocks that only move them; "" if all is well.
std::string checkFarBlocks(Communicator& comm, const Team& team, BufferPlace place) {
  const int64_t n = std::ssize(team.ranks);
  const int64_t me = std::ranges::find(team.ranks, comm.rank()) - team.ranks.begin();
  std::vector<Bytes> inputs;
  std::vector<Bytes> blocks;
  std::vector<int64_t> counts;
  std::vector<Bytes> ragged;
  for (const int r : team.ranks) {
    const Bytes whole = testData(DataType::Float, kFarCount * n, r, 3);
    inputs.push_back(elements(whole, DataType::Float, 0, kFarCount));
    blocks.push_back(elements(whole, DataType::Float, me * kFarCount, kFarCount));
    counts.push_back(r == 1 ? kFarCount - 77'777 : r % 2 == 0 ? kFarCount + r * 70'001 : 5'000);
    ragged.push_back(testData(DataType::Float, counts.back(), r, 4));
  }
  const CallBuffer in(comm, place, inputs[me]);
  const CallBuffer whole(comm, place, testData(DataType::Float, kFarCount * n, comm.rank(), 3));
  const CallBuffer part(comm, place, ragged[me]);
  const CallBuffer out(comm, place, concatenated(inputs));
  const CallBuffer raggedOut(comm, place, concatenated(ragged));
  return checkBothOrders("all-gather", out, concatenated(inputs),
                         [&] { comm.allGather(team, in.data(), out.data(), kFarCount, DataType::Float); }) +
         checkBothOrders("all-to-all", out, concatenated(blocks),
                         [&] { comm.allToAll(team, whole.data(), out.data(), kFarCount, DataType::Float); }) +
         checkBothOrders("all-gather-v", raggedOut, concatenated(ragged),
                         [&] { comm.allGatherV(team, part.data(), raggedOut.data(), counts, DataType::Float); });
}

std::string checkEveryPlace(Communicator& comm) {
  Team reversed = comm.world();
  std::ranges::reverse(reversed.ranks);
  return checkFarBlocks(comm, comm.world(), BufferPlace::Shared) +
         checkFarBlocks(comm, comm.world(), BufferPlace::Ordinary) + checkFarBlocks(comm, reversed, BufferPlace::Mixed);
}

void expectRightOnProcesses(int ranks, const TransportOptions& options) {
  for (const ProcessOutcome& o : runProcesses(
           ranks, [](Communicator& comm) { return std::string(comm.transport()) + checkEveryPlace(comm); }, options)) {
    EXPECT_EQ(o.text, "host") << ranks << " ranks";
  }
}

class FarBlocksTest : public MultiDeviceTest {};

TEST_F(FarBlocksTest, EveryPlaceAndOrder) {
  if (launched()) {
    runOnRanks([](Communicator& comm) { EXPECT_EQ(checkEveryPlace(comm), ""); });
    return;
  }
  expectRightOnProcesses(2, {.deadline = kFailureDeadline});
  expectRightOnProcesses(3, {.deadline = kFailureDeadline});
}

// Without reads by the kernel of the system: ordinary buffers go through stages, also where a peer has a far block in its heap.
TEST_F(FarBlocksTest, PiecesThroughStages) {
  if (launched()) {
    GTEST_SKIP() << "starts ranks of its own; run it without a launcher";
  }
  TransportOptions options{.deadline = kFailureDeadline};
  options.thresholds.readProcess = std::numeric_limits<int64_t>::max();
  expectRightOnProcesses(2, options);
  expectRightOnProcesses(3, options);
}

}  // namespace
}  // namespace meshfuse
