// Calls in flight: they keep their order, end while the program computes, and fail alike.
#include "multidevice/transport/call_queue.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "base/error.h"
#include "multidevice/multidevice_test.h"

namespace meshfuse {
namespace {

class CallQueueTest : public MultiDeviceTest {};

CallQueue::Handle postSum(CallQueue& queue, const Team& team, const std::vector<int64_t>& in,
                          std::vector<int64_t>& out) {
  return queue.post([team, &in, &out](Communicator& c) {
    c.allReduce(team, in.data(), out.data(), static_cast<int64_t>(in.size()), DataType::Int, ReduceOp::Sum);
  });
}

TEST_F(CallQueueTest, ManyInFlightInAnyOrderOfWaiting) {
  runOnRanks([](Communicator& comm) {
    constexpr size_t kCalls = 60;
    const int64_t n = comm.size();
    const int64_t ranks = n * (n - 1) / 2;
    const Team pair{{1, 0}};
    std::vector<std::vector<int64_t>> in;
    std::vector<std::vector<int64_t>> out;
    for (size_t i = 0; i < kCalls; ++i) {
      in.emplace_back(1 + i * i * 5, static_cast<int64_t>(i) * 100 + comm.rank());
      out.emplace_back(in.back().size());
    }
    CallQueue queue(comm);
    std::vector<CallQueue::Handle> handles;
    for (size_t i = 0; i < kCalls; ++i) {
      const bool ofPair = i % 3 == 2;
      if (!ofPair || comm.rank() < 2) {
        handles.push_back(postSum(queue, ofPair ? pair : comm.world(), in[i], out[i]));
      }
    }
    for (size_t h = handles.size(); h-- > 0;) {
      handles[h].wait();
      EXPECT_TRUE(handles[h].hasEnded());
    }
    for (size_t i = 0; i < kCalls; ++i) {
      const auto index = static_cast<int64_t>(i) * 100;
      if (i % 3 != 2 || comm.rank() < 2) {
        EXPECT_EQ(out[i], std::vector<int64_t>(out[i].size(), i % 3 == 2 ? 2 * index + 1 : n * index + ranks));
      }
    }
    queue.waitAll();
  });
}

TEST_F(CallQueueTest, ACallMayUseTheResultOfTheOneBefore) {
  runOnRanks(2, [](Communicator& comm) {
    std::vector<int64_t> in(100, comm.rank() + 1);
    std::vector<int64_t> out(100);
    std::vector<int64_t> more(100);
    CallQueue queue(comm);
    const CallQueue::Handle first = postSum(queue, comm.world(), in, out);
    const CallQueue::Handle second = postSum(queue, comm.world(), out, more);
    first.wait();
    EXPECT_EQ(out, std::vector<int64_t>(100, 3));
    second.wait();
    EXPECT_EQ(more, std::vector<int64_t>(100, 6));
  });
}

TEST_F(CallQueueTest, OneMistakeDoesNotStopTheOthers) {
  runOnRanks([](Communicator& comm) {
    std::vector<int64_t> in(4, 1);
    std::vector<int64_t> out(4);
    CallQueue queue(comm);
    const CallQueue::Handle mistake = postSum(queue, Team{{comm.size()}}, in, out);
    const CallQueue::Handle good = postSum(queue, comm.world(), in, out);
    EXPECT_THROW(mistake.wait(), UserError);
    good.wait();
    EXPECT_EQ(out[0], comm.size());
    EXPECT_THROW(queue.waitAll(), UserError);
    queue.waitAll();
  });
}

TEST_F(CallQueueTest, AFailureEndsAllThatAreInFlight) {
  if (launched()) {
    GTEST_SKIP() << "fails on purpose";
  }
  std::string texts[3];
  auto body = [&](Communicator& comm) {
    std::vector<int64_t> in(4, 1);
    std::vector<int64_t> out[10];
    std::vector<CallQueue::Handle> handles;
    CallQueue queue(comm);
    for (int i = 0; i < (comm.rank() == 2 ? 5 : 10); ++i) {
      out[i].resize(4);
      handles.push_back(postSum(queue, comm.world(), in, out[i]));
    }
    for (int i = 0; i < static_cast<int>(handles.size()); ++i) {
      if (i < 5) {
        handles[static_cast<size_t>(i)].wait();
        EXPECT_EQ(out[i], std::vector<int64_t>(4, 3));
        continue;
      }
      try {
        handles[static_cast<size_t>(i)].wait();
        ADD_FAILURE() << "call " << i << " has no error";
      } catch (const DeviceError& e) {
        std::string& text = texts[comm.rank()];
        EXPECT_TRUE(text.empty() || text == e.what());
        text = e.what();
      }
    }
  };
  runLoopback(3, body);
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_NE(texts[0].find("[rank 2/3] has ended"), std::string::npos) << texts[0];
}

}  // namespace
}  // namespace meshfuse
