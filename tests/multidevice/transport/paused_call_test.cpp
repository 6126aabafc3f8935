// A call in a fiber: it pauses where its rank would wait for the others, and the rank makes other calls meanwhile.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/fiber.h"
#include "multidevice/multidevice_test.h"

namespace meshfuse {
namespace {

class PausedCall : public MultiDeviceTest {};

bool pausesOn(const Communicator& comm) { return comm.transport() == "loopback" || comm.transport() == "host"; }

// Sums of `count` ones over the ranks, in the lane of all: all sizes of messages. Each rank begins its sum late; the others have begun theirs.
TEST_F(PausedCall, OtherCallsOfTheRankGoOn) {
  runOnRanks([](Communicator& comm) {
    if (comm.size() == 1 || !pausesOn(comm)) {
      return;
    }
    Communicator& lane = *comm.lane(comm.world());
    for (const int64_t count : {1, 1000, 100'000, 3'000'000}) {
      for (int64_t late = 0; late < comm.size(); late++) {
        std::vector<float> sums(count);
        const std::vector<float> ones(count, 1);
        Fiber sum(
            [&] { lane.allReduce(comm.world(), ones.data(), sums.data(), count, DataType::Float, ReduceOp::Sum); });
        bool ended = false;
        const auto start = [&] {  // one rank after the others have paused
          if (comm.rank() != late) {
            ended = sum.start();
            EXPECT_FALSE(ended) << count;
          }
          comm.barrier(comm.world());
          if (comm.rank() == late) {
            ended = sum.start();
          }
        };
        start();
        while (!ended) {
          sched_yield();
          ended = sum.resume();
        }
        EXPECT_EQ(sums, std::vector<float>(count, static_cast<float>(comm.size()))) << count;
        comm.barrier(comm.world());  // some ranks end their sums by finish() in the next round
        std::ranges::fill(sums, -1);
        start();
        if (!ended) {
          sum.finish();
        }
        EXPECT_EQ(sums, std::vector<float>(count, static_cast<float>(comm.size()))) << count;
      }
    }
  });
}

}  // namespace
}  // namespace meshfuse
