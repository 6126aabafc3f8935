// The records that ranks leave when something fails, and what is read from them.
#include "multidevice/transport/flight_recorder.h"
#include "multidevice/transport/call_queue.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

class FlightRecorderTest : public testing::Test {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts ranks of its own; run it without a launcher";
    }
    std::string name = (std::filesystem::temp_directory_path() / "meshfuse_flight_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void expectBlame(const std::vector<std::string>& phrases) const {
    const std::string text = blame(directory_);
    size_t at = 0;
    for (const std::string& phrase : phrases) {  // in this order
      const size_t found = text.find(phrase, at);
      EXPECT_NE(found, std::string::npos) << "missing: " << phrase << "\nin:\n" << text;
      at = found == std::string::npos ? at : found + phrase.size();
    }
  }
  size_t files() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory_)) {
      ++count;
    }
    return count;
  }

  std::string directory_;
};

// The program of the tests: calls of two teams, in which one rank may go its own way.
void manyCalls(Communicator& comm, int calls, const std::function<void(int)>& before) {
  for (int i = 1; i <= calls; ++i) {
    comm.setStep(i, "the sum of T4");
    before(i);
    callAllReduce(comm, comm.world(), 64);
    if (comm.rank() < 2 && i % 3 == 0) {
      callAllReduce(comm, Team{{0, 1}}, 8);
    }
  }
}

TEST_F(FlightRecorderTest, NothingIsWrittenWhereNothingFails) {
  runLoopback(3, [](Communicator& comm) { manyCalls(comm, 20, [](int) {}); }, {.flightDirectory = directory_});
  EXPECT_EQ(files(), 0u);
  EXPECT_THROW(static_cast<void>(blame(directory_)), UserError);
  EXPECT_THROW(static_cast<void>(blame(directory_ + "/none")), UserError);
}

TEST_F(FlightRecorderTest, ACallThatDiffersIsTheFirstDivergence) {
  auto body = [](Communicator& comm) {
    manyCalls(comm, 40, [&](int i) {
      if (i == 18 && comm.rank() == 1) {
        callAllReduce(comm, comm.world(), 65);
      }
    });
  };
  EXPECT_THROW(runLoopback(3, body, {.flightDirectory = directory_}), DeviceError);
  EXPECT_EQ(files(), 3u);
  expectBlame({"3 ranks, transport loopback; records of all", "failure reported by ranks 0, 1, 2", "the counts differ",
               "first divergence: call 18 of the team of ranks 0, 1, 2\n",
               "rank 0: all-reduce(sum) of 64 Float in team {0, 1, 2} at step 18 (the sum of T4)", "not ended",
               "rank 1: all-reduce(sum) of 65 Float", "rank 2: all-reduce(sum) of 64 Float"});
}

// A file system's clock may lag behind that of the records: the record itself names its run.
TEST_F(FlightRecorderTest, ARanksOwnRecordIsKeptWhateverTheTimeOfItsFile) {
  auto ring = std::make_unique<FlightRing>();
  auto peersRing = std::make_unique<FlightRing>();
  const FlightPlace place{.directory = directory_, .world = "w", .transport = "none", .rank = 0, .size = 2};
  const std::string file = directory_ + "/w.rank0.flight";
  FlightRecorder peer(*peersRing, {.directory = directory_, .world = "w", .transport = "none", .rank = 1, .size = 2});
  FlightRecorder(*ring, place).write("its own words");
  std::filesystem::last_write_time(file, std::filesystem::file_time_type::clock::now() - 1h);
  peer.writeFor(0, *ring, "a peer's words");
  EXPECT_EQ(readFlightRecord(file).failure, "its own words");

  const FlightRecorder nextRun(*ring, place);
  peer.writeFor(0, *ring, "a peer's words");
  EXPECT_EQ(readFlightRecord(file).failure, "a peer's words");
}

TEST_F(FlightRecorderTest, ARankThatDoesNotComeIsNamedWithItsLastCall) {
  auto body = [](Communicator& comm) {
    try {
      manyCalls(comm, 40, [&](int i) {
        if (i == 18 && comm.rank() == 1) {
          throw std::string("rank 1 has had enough");
        }
      });
    } catch (const std::string&) {
    }
  };
  EXPECT_THROW(runLoopback(3, body, {.flightDirectory = directory_}), DeviceError);
  expectBlame({"the record of rank 1 was written by rank", "first divergence: call 18 of the team of ranks 0, 1, 2\n",
               "rank 0: all-reduce(sum) of 64",
               "rank 1: did not make this call; its last call, number 22: all-reduce(sum) of 64 Float in team {0, 1, "
               "2} at step 17",
               "ended after", "rank 2: all-reduce"});
}

// Posted calls of a team have records of their own: of its ranks alone.
TEST_F(FlightRecorderTest, ATeamsPostedCallsAreOfItsRanks) {
  auto body = [](Communicator& comm) {
    const Team team{{0, 2}};
    CallQueue queue(comm);
    if (comm.rank() != 1) {
      queue.post(team, [&](Communicator& c) { callAllReduce(c, team, comm.rank() == 0 ? 8 : 16); }).wait();
    }
  };
  EXPECT_THROW(runLoopback(3, body, {.flightDirectory = directory_}), DeviceError);
  expectBlame({".team-0-2: 2 ranks, transport loopback; records of all\n",
               "first divergence: call 1 of the team of ranks 0, 2\n", "rank 0: all-reduce(sum) of 8 Float"});
}

TEST_F(FlightRecorderTest, RanksThatPartInTwoTeamsAreNamedInBoth) {
  // Rank 0 skips a call of the pair: rank 1 waits for it there, and the others for rank 1 in the next call of the world.
  auto body = [](Communicator& comm) {
    for (int i = 1; i <= 10; ++i) {
      callAllReduce(comm, comm.world(), 64);
      if (comm.rank() == 1 || (comm.rank() == 0 && i != 5)) {
        callAllReduce(comm, Team{{0, 1}}, 8);
      }
    }
  };
  EXPECT_THROW(runLoopback(3, body, {.flightDirectory = directory_}), DeviceError);
  expectBlame({"call 5 of the team of ranks 0, 1\n", "rank 0: did not make this call", "in team {0, 1, 2}",
               "rank 1: all-reduce(sum) of 8 Float in team {0, 1}"});
  expectBlame({"call 6 of the team of ranks 0, 1, 2\n", "rank 0: all-reduce(sum) of 64 Float",
               "rank 1: did not make this call", "in team {0, 1},", "rank 2: all-reduce(sum) of 64 Float"});
}

TEST_F(FlightRecorderTest, TheLastThousandCallsAreKept) {
  auto body = [](Communicator& comm) {
    for (int i = 1; i <= 3456; ++i) {
      callAllReduce(comm, comm.world(), i == 3456 && comm.rank() == 1 ? 2 : 1);
    }
  };
  EXPECT_THROW(runLoopback(2, body, {.flightDirectory = directory_}), DeviceError);
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    const FlightRecord record = readFlightRecord(entry.path().string());
    ASSERT_EQ(record.calls.size(), 1000u);
    EXPECT_EQ(record.calls.front().event.sequence, 2457u);
    for (size_t i = 1; i < record.calls.size(); ++i) {
      EXPECT_EQ(record.calls[i].event.sequence, record.calls[i - 1].event.sequence + 1);
      EXPECT_LE(record.calls[i - 1].begin, record.calls[i].begin);
      EXPECT_LE(record.calls[i - 1].begin, record.calls[i - 1].end);
    }
    EXPECT_EQ(record.calls.back().end, 0);
  }
  expectBlame({"first divergence: call 3456 of the team of ranks 0, 1"});
}

TEST_F(FlightRecorderTest, OtherFilesAreRefusedByName) {
  std::ofstream(directory_ + "/strange.flight") << "not a record\n";
  EXPECT_THROW(static_cast<void>(blame(directory_)), UserError);
}

std::string manyCallsUntilFailure(Communicator& comm, const std::function<void(int)>& before) {
  try {
    manyCalls(comm, 1 << 30, before);
  } catch (const DeviceError& e) {
    return e.what();
  }
  return "";
}

TEST_F(FlightRecorderTest, SurvivorsWriteTheRecordOfAKilledRank) {
  for (bool messagesOnly : {false, true}) {
    setenv("MESHFUSE_FLIGHT_DIR", directory_.c_str(), 1);
    runProcesses(3,
                 [](Communicator& comm) {
                   return manyCallsUntilFailure(comm, [&](int i) {
                     if (i == 30 && comm.rank() == 2) {
                       kill(getpid(), SIGKILL);
                     }
                   });
                 },
                 {.deadline = kFailureDeadline, .messagesOnly = messagesOnly});
    unsetenv("MESHFUSE_FLIGHT_DIR");
    if (files() == 0 && messagesOnly) {
      GTEST_SKIP() << "no UCX";
    }
    if (messagesOnly) {  // this process may have opened worlds before, so the number of the world is any
      expectBlame({": 3 ranks, transport network; no record of rank 2", "its process ended"});
    } else {
      expectBlame({": 3 ranks, transport host; records of all", "the record of rank 2 was written by rank",
                   "[rank 2/3] at step 30 (the sum of T4)", "first divergence: call 30 of the team of ranks 0, 1, 2\n",
                   "rank 0: all-reduce(sum) of 64 Float", "at step 30", "not ended",
                   "rank 2: did not make this call; its last call, number 29", "at step 29"});
    }
    TearDown();
    std::filesystem::create_directories(directory_);
  }
}

TEST_F(FlightRecorderTest, AnAbortAndAnExceptionLeaveRecords) {
  for (bool throws : {false, true}) {
    const SharedCounters leftTheCallsBefore(1);
    runProcesses(2,
                 [&](Communicator& comm) {
                   return manyCallsUntilFailure(comm, [&](int i) {
                     if (i == 12) {
                       leftTheCallsBefore.meet(0, 2);
                     }
                     if (i == 12 && comm.rank() == 1) {
                       check(!throws, "[test] had enough");
                       comm.abort("out of memory");
                     }
                   });
                 },
                 {.deadline = kFailureDeadline, .flightDirectory = directory_});
    EXPECT_EQ(files(), 2u);
    expectBlame({throws ? "closed its communicator because of an exception" : "out of memory",
                 "first divergence: call 15 of the team of ranks 0, 1",
                 "rank 0: all-reduce(sum) of 64 Float in team {0, 1} at step 12", "rank 1: did not make this call"});
    TearDown();
    std::filesystem::create_directories(directory_);
  }
}

// Nothing has failed for a world that was closed before: no rank writes records.
TEST_F(FlightRecorderTest, AnExceptionAfterCloseIsNoFailureOfTheWorld) {
  for (bool messagesOnly : {false, true}) {
    if (messagesOnly && !whyNoNetwork().empty()) {
      GTEST_SKIP() << whyNoNetwork();
    }
    const SharedCounters left(1);
    RankProcesses processes(2, [&](int rank) -> std::string {
      try {
        const std::unique_ptr<Communicator> comm =
            openWorld({.deadline = kFailureDeadline, .flightDirectory = directory_, .messagesOnly = messagesOnly});
        comm->close();
        check(rank != 0, "[test] had enough");
        if (!messagesOnly) {  // where there are only messages, the destructors wait for each other
          left.await(0, 1);
        }
      } catch (const UserError& e) {
        left.add(0);
        return e.what();
      }
      return "done";
    });
    expectSay(processes.await(), {0}, {"had enough"});
    expectSay(processes.outcomes(), {1}, {"done"});
    EXPECT_EQ(files(), 0u);
  }
}

// Another thread of the rank that aborts is in a call, or none is and the rank makes no other call.
TEST_F(FlightRecorderTest, AnAbortLeavesTheRecordsToTheCalls) {
  for (bool messagesOnly : {false, true}) {
    if (messagesOnly && !whyNoNetwork().empty()) {
      GTEST_SKIP() << whyNoNetwork();
    }
    for (bool inCall : {false, true}) {
      const SharedCounters opened(1);
      const SharedCounters aborted(1);
      for (const ProcessOutcome& o :
           runProcesses(2,
                        [&](Communicator& comm) -> std::string {
                          opened.meet(0, 2);
                          std::jthread caller;
                          if (inCall && comm.rank() == 0) {
                            caller = std::jthread([&] { static_cast<void>(callUntilFailure(comm)); });
                            std::this_thread::sleep_for(5ms);
                          }
                          if (comm.rank() == 0) {
                            comm.abort("out of memory");
                            aborted.add(0);
                            return "";
                          }
                          aborted.await(0, 1);
                          return callUntilFailure(comm);
                        },
                        {.deadline = kFailureDeadline, .flightDirectory = directory_, .messagesOnly = messagesOnly})) {
        EXPECT_TRUE(o.ended) << o.text;
      }
      EXPECT_EQ(files(), 2U);
      expectBlame({"[rank 0/2]", "aborted: out of memory"});
      TearDown();
      std::filesystem::create_directories(directory_);
    }
  }
}

}  // namespace
}  // namespace meshfuse
