// Waits for work that ranks do together outside of their communicator: it ends, a rank fails meanwhile, a rank leaves, it does not end.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fiber.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/failure_cases.h"
#include "multidevice/transport/loopback/loopback.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

bool never() { return false; }

// True from `after` on.
std::function<bool()> readyAfter(std::chrono::milliseconds after) {
  return [end = std::chrono::steady_clock::now() + after] { return std::chrono::steady_clock::now() >= end; };
}

// Runs a body on ranks of one transport; the texts of the ranks: what the body returned, or the error.
using Body = std::function<std::string(Communicator&)>;
using Run = std::vector<std::string> (*)(int ranks, const Body& body, std::chrono::milliseconds deadline);

std::vector<std::string> onLoopback(int ranks, const Body& body, std::chrono::milliseconds deadline) {
  std::vector<std::string> texts(ranks);
  try {
    runLoopback(ranks,
                [&](Communicator& comm) {
                  try {
                    texts[comm.rank()] = body(comm);
                  } catch (const std::exception& e) {
                    texts[comm.rank()] = e.what();
                    throw;
                  }
                },
                {.deadline = deadline});
  } catch (const std::exception&) {  // is in the texts
  }
  return texts;
}

std::vector<std::string> onProcesses(int ranks, const Body& body, const TransportOptions& options) {
  std::vector<std::string> texts;
  for (const ProcessOutcome& o : runProcesses(ranks, body, options)) {
    texts.push_back(o.text);
  }
  return texts;
}

std::vector<std::string> onHost(int ranks, const Body& body, std::chrono::milliseconds deadline) {
  return onProcesses(ranks, body, {.deadline = deadline});
}

std::vector<std::string> onNetwork(int ranks, const Body& body, std::chrono::milliseconds deadline) {
  return onProcesses(ranks, body, {.deadline = deadline, .messagesOnly = true});
}

struct Transport {
  const char* name;
  Run run;
};

class AwaitTest : public testing::TestWithParam<Transport> {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts ranks of its own; run it without a launcher";
    }
    if (const std::string why = GetParam().run == onNetwork ? whyNoNetwork() : ""; !why.empty()) {
      GTEST_SKIP() << why;
    }
  }
};

TEST_P(AwaitTest, EndsWhenTheWorkHasEnded) {
  const std::vector<std::string> texts = GetParam().run(
      3,
      [](Communicator& comm) {
        comm.await(comm.world(), [] { return true; });
        comm.await(comm.world(), readyAfter(30ms * (comm.rank() + 1)));
        comm.barrier(comm.world());
        return std::string("done");
      },
      kFailureDeadline);
  EXPECT_EQ(texts, std::vector<std::string>(3, "done"));
}

// On a network it does not pause: it fails when it starts. Else the rank fails after the others have started theirs.
TEST_P(AwaitTest, APausedCallEndsWhenARankFails) {
  const std::vector<std::string> texts = GetParam().run(
      3,
      [](Communicator& comm) -> std::string {
        const bool pauses = comm.transport() != "network";
        Communicator& calls = pauses ? *comm.lane(comm.world()) : comm;
        comm.barrier(comm.world());
        if (comm.rank() == 1) {
          pauses ? comm.barrier(comm.world()) : std::this_thread::sleep_for(20ms);
          throwUserError("cannot go on");
        }
        Fiber call([&] { calls.barrier(comm.world()); });
        if (call.start()) {
          return "it did not pause";
        }
        comm.barrier(comm.world());
        while (!call.resume()) {
          std::this_thread::sleep_for(1ms);
        }
        return "no error";
      },
      kFailureDeadline);
  for (const int rank : {0, 2}) {
    EXPECT_NE(texts[rank].find("rank 1/3"), std::string::npos) << texts[rank];
    EXPECT_EQ(texts[rank].find("deadline"), std::string::npos) << texts[rank];
  }
}

TEST_P(AwaitTest, EndsWhenARankFails) {
  const std::vector<std::string> texts = GetParam().run(
      3,
      [](Communicator& comm) -> std::string {
        comm.barrier(comm.world());
        if (comm.rank() == 1) {
          throwUserError("cannot go on");
        }
        comm.await(comm.world(), never);
        return "no error";
      },
      kFailureDeadline);
  for (const int rank : {0, 2}) {
    EXPECT_NE(texts[rank].find("rank 1/3"), std::string::npos) << texts[rank];
    EXPECT_EQ(texts[rank].find("deadline"), std::string::npos) << texts[rank];
  }
}

TEST_P(AwaitTest, EndsWhenAProcessDies) {
  if (GetParam().run == onLoopback) {
    GTEST_SKIP() << "its ranks are threads of one process";
  }
  const std::vector<std::string> texts = GetParam().run(
      3,
      [](Communicator& comm) -> std::string {
        comm.barrier(comm.world());
        if (comm.rank() == 2) {
          fail(Way::Kill);
        }
        comm.await(comm.world(), never);
        return "no error";
      },
      kFailureDeadline);
  for (const int rank : {0, 1}) {
    EXPECT_NE(texts[rank].find("rank 2/3"), std::string::npos) << texts[rank];
    EXPECT_EQ(texts[rank].find("deadline"), std::string::npos) << texts[rank];
  }
}

// The work of a rank may end before that of its peers.
TEST_P(AwaitTest, ARankMayLeave) {
  const std::vector<std::string> texts = GetParam().run(
      2,
      [](Communicator& comm) {
        comm.barrier(comm.world());
        if (comm.rank() == 0) {
          comm.await(comm.world(), readyAfter(500ms));
        }
        return std::string("done");
      },
      kFailureDeadline);
  EXPECT_EQ(texts, std::vector<std::string>(2, "done"));
}

TEST_P(AwaitTest, WorkThatDoesNotEndIsAnErrorThatNamesTheRanks) {
  const std::vector<std::string> texts = GetParam().run(
      2,
      [](Communicator& comm) -> std::string {
        comm.barrier(comm.world());
        comm.setStep(7, "all-reduce T3");
        comm.await(comm.world(), never);
        return "no error";
      },
      500ms);
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("a deadline of 500 ms expired"), std::string::npos) << text;
    EXPECT_NE(text.find("step 7 (all-reduce T3)"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 0/2"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 1/2"), std::string::npos) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, AwaitTest,
                         testing::Values(Transport{"Loopback", onLoopback}, Transport{"Host", onHost},
                                         Transport{"Network", onNetwork}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshfuse
