// Calls in flight: those of one team keep their order, those of different teams do not wait for each other, and all fail alike.
#include "multidevice/transport/call_queue.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

class CallQueueTest : public MultiDeviceTest {};

CallQueue::Handle postSum(CallQueue& queue, const Team& team, const std::vector<int64_t>& in,
                          std::vector<int64_t>& out) {
  return queue.post([team, &in, &out](Communicator& c) {
    c.allReduce(team, in.data(), out.data(), std::ssize(in), DataType::Int, ReduceOp::Sum);
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
    for (int i = 0; i < std::ssize(handles); ++i) {
      if (i < 5) {
        handles[i].wait();
        EXPECT_EQ(out[i], std::vector<int64_t>(4, 3));
        continue;
      }
      try {
        handles[i].wait();
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

// The same body on every transport, side by side; each rank says "right" or what is wrong.
using Body = std::function<std::string(Communicator&)>;

void expectRight(int ranks, const Body& body, std::chrono::milliseconds deadline = kFailureDeadline) {
  std::vector<RankProcesses> processes;
  for (bool messages : {false, true}) {
    if (!messages || whyNoNetwork().empty()) {
      processes.emplace_back(ranks,
                             [&](int) { return body(*openWorld({.deadline = deadline, .messagesOnly = messages})); });
    }
  }
  runLoopback(ranks, [&](Communicator& comm) { EXPECT_EQ(body(comm), "right") << "loopback, rank " << comm.rank(); },
              {.deadline = deadline});
  for (size_t p = 0; p < processes.size(); ++p) {
    for (const ProcessOutcome& o : processes[p].await()) {
      EXPECT_TRUE(o.ended);
      EXPECT_EQ(o.text, "right") << (p == 0 ? "host" : "network");
    }
  }
}

class LanesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts ranks of its own; run it without a launcher";
    }
  }
};

CallQueue::Handle postSumOf(CallQueue& queue, const Team& team, const std::vector<int64_t>& in,
                            std::vector<int64_t>& out) {
  return queue.post(team, [team, &in, &out](Communicator& c) {
    c.allReduce(team, in.data(), out.data(), std::ssize(in), DataType::Int, ReduceOp::Sum);
  });
}

// Within half of the deadline, which no healthy machine misses.
bool came(const SharedCounters& counters, size_t which, int value) {
  const auto limit = std::chrono::steady_clock::now() + kFailureDeadline / 2;
  while (!counters.reached(which, value) && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(1ms);
  }
  return counters.reached(which, value);
}

// Rank 1 comes to the first call only when the second has ended on both of its ranks.
std::string secondTeamEndsFirst(Communicator& comm, const SharedCounters& ended, size_t which, int64_t count) {
  const Team teams[] = {{{0, 1}}, {{0, 2}}};
  std::vector<int64_t> in(count, comm.rank() + 1);
  std::vector<int64_t> sums[] = {in, in};
  std::string wrong;
  {
    CallQueue queue(comm);
    std::vector<CallQueue::Handle> handles;
    if (comm.rank() == 1) {
      wrong = came(ended, which, 2) ? "" : "the second team's call waits for the first one's; ";
      handles.push_back(postSumOf(queue, teams[0], in, sums[0]));
    } else if (comm.rank() == 0) {
      handles.push_back(postSumOf(queue, teams[0], in, sums[0]));
    }
    if (comm.rank() != 1) {
      handles.push_back(postSumOf(queue, teams[1], in, sums[1]));
      handles.back().wait();
      ended.add(which);
    }
    queue.waitAll();
  }
  if (comm.rank() != 2 && sums[0] != std::vector<int64_t>(in.size(), 3)) {
    wrong += "a wrong sum of ranks 0 and 1; ";
  }
  if (comm.rank() != 1 && sums[1] != std::vector<int64_t>(in.size(), 4)) {
    wrong += "a wrong sum of ranks 0 and 2; ";
  }
  return wrong;
}

TEST_F(LanesTest, CallsOfOneTeamDoNotWaitForThoseOfAnother) {
  const SharedCounters ended(9);
  auto body = [&](Communicator& comm) {
    const size_t first = comm.transport() == "loopback" ? 0 : comm.transport() == "host" ? 3 : 6;
    std::string wrong;
    for (size_t size = 0; size < 3; ++size) {
      constexpr int64_t kCounts[] = {1, 2000, 300'000};
      wrong += secondTeamEndsFirst(comm, ended, first + size, kCounts[size]);
    }
    return wrong.empty() ? "right" : wrong;
  };
  expectRight(3, body);
}

// With calls of two teams waiting for somebody, the program goes on to use the communicator itself.
TEST_F(LanesTest, TheCommunicatorItselfMayBeCalledMeanwhile) {
  expectRight(3, [](Communicator& comm) -> std::string {
    const Team teams[] = {{{0, 1}}, {{0, 2}}};
    std::vector<int64_t> in(3000, comm.rank() + 1);
    std::vector<int64_t> sums[] = {in, in};
    std::vector<int64_t> all(in.size());
    CallQueue queue(comm);
    for (int round = 0; round < 3; ++round) {
      if (comm.rank() == 0) {
        postSumOf(queue, teams[0], in, sums[0]);
        postSumOf(queue, teams[1], in, sums[1]);
      }
      comm.allReduce(comm.world(), in.data(), all.data(), 3000, DataType::Int, ReduceOp::Sum);
      if (comm.exchange("x").size() != 3 || all != std::vector<int64_t>(in.size(), 6)) {
        return "a call of all ranks is wrong";
      }
      if (comm.rank() != 0) {
        postSumOf(queue, teams[comm.rank() - 1], in, sums[comm.rank() - 1]);
      }
      queue.waitAll();
      for (int t : {0, 1}) {
        if ((comm.rank() == 0 || comm.rank() == t + 1) && sums[t] != std::vector<int64_t>(in.size(), t + 3)) {
          return "a posted call is wrong";
        }
      }
      if (comm.rank() != 0) {
        comm.barrier({{1, 2}});
      }
    }
    return "right";
  });
}

TEST_F(LanesTest, CallsOfOneTeamKeepTheirOrder) {
  expectRight(3, [](Communicator& comm) -> std::string {
    constexpr int kCalls = 40;
    const Team teams[] = {{{0, 1, 2}}, {{2, 0}}, {{1, 0}}};
    std::vector<int> order[3];
    std::vector<int64_t> values[3];
    CallQueue queue(comm);
    for (int i = 0; i < kCalls * 3; ++i) {
      const Team& team = teams[i % 3];
      if (std::find(team.ranks.begin(), team.ranks.end(), comm.rank()) == team.ranks.end()) {
        continue;
      }
      values[i % 3].resize(50, 1);
      queue.post(team, [&, i](Communicator& c) {
        std::vector<int64_t>& x = values[i % 3];  // each works on what the one before has left
        order[i % 3].push_back(i);
        c.allReduce(team, x.data(), x.data(), 50, DataType::Int, ReduceOp::Sum);
        for (int64_t& v : x) {
          v = v % 1'000'003 + i;
        }
      });
    }
    queue.waitAll();
    for (int t = 0; t < 3; ++t) {
      if (!std::is_sorted(order[t].begin(), order[t].end())) {
        return "calls of a team have changed places";
      }
      int64_t expected = 1;
      for (int i = t; i < kCalls * 3; i += 3) {
        expected = expected * std::ssize(teams[t].ranks) % 1'000'003 + i;
      }
      if (!values[t].empty() && values[t] != std::vector<int64_t>(50, expected)) {
        return "a result is wrong";
      }
    }
    return "right";
  });
}

// Each rank waits for calls that nobody else makes, when ranks 0 and 2 disagree about a third.
TEST_F(LanesTest, AFailureReachesTheCallsOfAllTeams) {
  const Body body = [](Communicator& comm) {
    std::vector<int64_t> in(comm.rank() == 2 ? 5 : 4, 1);
    std::vector<int64_t> out[4];
    std::string text;
    {
      CallQueue queue(comm);
      std::vector<CallQueue::Handle> handles;
      int next = 0;
      auto post = [&](const Team& team) {
        out[next].resize(in.size());
        handles.push_back(postSumOf(queue, team, in, out[next++]));
      };
      if (comm.rank() < 2) {
        post(comm.rank() == 0 ? Team{{0, 1}} : Team{{1, 2}});
        post(comm.rank() == 0 ? Team{{0, 1}} : Team{{1, 0, 2}});
      }
      if (comm.rank() != 1) {
        post({{0, 2}});
        post({{0, 2}});
      }
      for (const CallQueue::Handle& handle : handles) {
        try {
          handle.wait();
          text += "a call has no error; ";
        } catch (const DeviceError& e) {
          text = text.empty() || text == e.what() ? e.what() : text + "; another error: " + e.what();
        }
      }
    }
    return text;
  };
  auto expectOneText = [](const std::vector<std::string>& texts) {
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_EQ(texts[0], texts[2]);
    for (const char* phrase : {"disagree: the counts differ", "rank 0 has 4", "rank 2 has 5"}) {
      EXPECT_NE(texts[0].find(phrase), std::string::npos) << texts[0];
    }
    EXPECT_EQ(texts[0].find("another error"), std::string::npos) << texts[0];
  };
  std::vector<std::string> texts(3);
  runLoopback(3, [&](Communicator& comm) { texts[comm.rank()] = body(comm); }, {.deadline = kFailureDeadline});
  expectOneText(texts);
  for (bool messages : {false, true}) {
    if (messages && !whyNoNetwork().empty()) {
      continue;
    }
    texts.clear();
    for (const ProcessOutcome& o : runProcesses(3, body, {.deadline = kFailureDeadline, .messagesOnly = messages})) {
      EXPECT_TRUE(o.ended);
      texts.push_back(o.text);
    }
    expectOneText(texts);
  }
}

// A rank that never comes to a team's call, while the others of the group go on: the deadline ends the wait.
TEST_F(LanesTest, WhoNeverComesIsNamed) {
  auto body = [](Communicator& comm) -> std::string {
    std::vector<int64_t> in(4, 1);
    std::vector<int64_t> out(4);
    std::string text;
    CallQueue queue(comm);
    if (comm.rank() == 0) {
      try {
        postSumOf(queue, {{0, 1}}, in, out).wait();
        return "no error";
      } catch (const DeviceError& e) {
        text = e.what();
      }
      return text.find("[rank 1/2]") != std::string::npos || text.find(" rank 1") != std::string::npos ? "right" : text;
    }
    try {
      for (;;) {  // alive, and in no call
        std::this_thread::sleep_for(10ms);
        comm.barrier({{1}});
      }
    } catch (const DeviceError&) {
      return "right";
    }
  };
  expectRight(2, body, 4s);
}

// The same while another team's calls go on without a pause.
TEST_F(LanesTest, WhoNeverComesIsNamedWhileOthersAreBusy) {
  auto body = [](Communicator& comm) -> std::string {
    std::vector<int64_t> in(4, 1);
    std::vector<int64_t> out(4);
    std::vector<int64_t> others(4);
    CallQueue queue(comm);
    try {
      if (comm.rank() == 1) {
        for (;;) {  // alive, and in no call
          std::this_thread::sleep_for(10ms);
          comm.barrier({{1}});
        }
      }
      if (comm.rank() == 0) {
        postSumOf(queue, {{0, 1}}, in, out);
      }
      for (;;) {
        postSumOf(queue, {{0, 2}}, in, others).wait();
      }
    } catch (const DeviceError& e) {
      return std::string_view(e.what()).find("rank 1") != std::string_view::npos ? "right" : e.what();
    }
  };
  expectRight(3, body, 4s);
}

// Data- and tensor-parallel calls of a mesh, and of all ranks, in the order that all ranks post.
std::string postsOfAMesh(Communicator& comm, int calls) {
  struct Call {
    Team team;
    int kind;
    std::vector<int64_t> in;
    std::vector<int64_t> out;
    std::vector<int64_t> expected;
  };
  const int r = comm.rank();
  const Team teams[] = {{{r / 2 * 2, r / 2 * 2 + 1}}, {{r % 2, r % 2 + 2}}, comm.world()};
  std::deque<Call> all;
  std::vector<CallQueue::Handle> handles;
  CallQueue queue(comm);
  uint64_t random = 3;                                         // the same on all ranks
  uint64_t delay = hashCombine(11, static_cast<uint64_t>(r));  // not
  for (int i = 0; i < calls; ++i) {
    random = hashCombine(random, static_cast<uint64_t>(i));
    delay = hashCombine(delay, static_cast<uint64_t>(i));
    Call& c = all.emplace_back(Call{.team = teams[random % 16 == 0 ? 2 : random / 16 % 2],
                                    .kind = static_cast<int>(random >> 10 & 3),
                                    .in = {},
                                    .out = {},
                                    .expected = {}});
    const auto n = std::ssize(c.team.ranks);
    const int64_t me = std::find(c.team.ranks.begin(), c.team.ranks.end(), r) - c.team.ranks.begin();
    const int64_t count = 1 + static_cast<int64_t>(random >> 20) % ((random >> 40) % 4 == 0 ? 40'000 : 400);
    auto value = [i](int64_t rank, int64_t to) { return i * 100 + rank * 10 + to; };
    const bool blocks = c.kind == 2;
    for (int64_t to = 0; to < (blocks ? n : 1); ++to) {
      c.in.insert(c.in.end(), count, value(r, to));
    }
    if (c.kind == 0) {
      int64_t sum = 0;
      for (int p : c.team.ranks) {
        sum += value(p, 0);
      }
      c.expected.assign(count, sum);
    } else {
      for (int64_t p = 0; p < n; ++p) {
        const int from = c.team.ranks[c.kind == 3 ? 0 : p];
        c.expected.insert(c.expected.end(), count, value(from, blocks ? me : 0));
        if (c.kind == 3) {
          break;
        }
      }
    }
    c.out.resize(c.expected.size());
    if (c.kind == 3) {
      c.out = c.in;
    }
    const uint64_t pause = delay % 8 == 0 ? delay / 8 % 400 : 0;
    handles.push_back(queue.post(c.team, [&c, count, pause](Communicator& lane) {
      std::this_thread::sleep_for(std::chrono::microseconds(pause));
      switch (c.kind) {
        case 0:
          return lane.allReduce(c.team, c.in.data(), c.out.data(), count, DataType::Int, ReduceOp::Sum);
        case 1:
          return lane.allGather(c.team, c.in.data(), c.out.data(), count, DataType::Int);
        case 2:
          return lane.allToAll(c.team, c.in.data(), c.out.data(), count, DataType::Int);
        default:
          return lane.broadcast(c.team, c.out.data(), count, DataType::Int, 0);
      }
    }));
    if (delay % 32 == 1) {
      handles[delay / 32 % handles.size()].wait();
    }
  }
  queue.waitAll();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].out != all[i].expected) {
      return fmt::format("call {} is wrong on rank {}", i, r);
    }
  }
  return "right";
}

TEST_F(CallQueueTest, ACallMayPostAnotherWhileTheQueueEnds) {
  const std::unique_ptr<Communicator> comm = makeSelfCommunicator();
  std::optional<CallQueue::Handle> second;
  {
    CallQueue queue(*comm);
    queue.post([&](Communicator&) {
      std::this_thread::sleep_for(20ms);  // the destructor waits now
      second = queue.post(comm->world(), [](Communicator&) { std::this_thread::sleep_for(5ms); });
    });
  }
  ASSERT_TRUE(second.has_value());
  EXPECT_TRUE(second->hasEnded());
  EXPECT_NO_THROW(second->wait());
}

TEST_F(CallQueueTest, WhatACallCapturesMayPostWhenItIsDestroyed) {
  const std::unique_ptr<Communicator> comm = makeSelfCommunicator();
  bool posted = false;
  CallQueue queue(*comm);
  {
    std::shared_ptr<int> captured(new int(0), [&](int* p) {
      delete p;
      queue.post([&](Communicator&) { posted = true; });
    });
    queue.post([held = std::move(captured)](Communicator&) { std::this_thread::sleep_for(1ms); });
  }
  queue.waitAll();
  EXPECT_TRUE(posted);
}

// Rank 1 never makes the calls that rank 0 has in flight.
TEST_F(LanesTest, AnExceptionEndsTheCallsInFlight) {
  const SharedCounters opened(3);
  const SharedCounters caught(3);
  expectRight(2, [&](Communicator& comm) -> std::string {
    const size_t which = comm.transport() == "loopback" ? 0 : comm.transport() == "host" ? 1 : 2;
    opened.meet(which, 2);
    if (comm.rank() == 1) {
      caught.await(which, 1);
      return "right";
    }
    const std::vector<int64_t> in(4, 1);
    std::vector<int64_t> out[] = {in, in};
    std::vector<CallQueue::Handle> handles;
    std::string wrong = "no exception";
    try {
      CallQueue queue(comm);
      handles.push_back(postSum(queue, comm.world(), in, out[0]));
      handles.push_back(postSumOf(queue, comm.world(), in, out[1]));
      throwUserError("[test] thrown with calls in flight");
    } catch (const UserError&) {
      wrong.clear();
    }
    caught.add(which);
    for (const CallQueue::Handle& handle : handles) {
      try {
        handle.wait();
        wrong += "a call has no error; ";
      } catch (const DeviceError& e) {
        const bool isAborted = std::string_view(e.what()).find("aborted: an exception") != std::string_view::npos;
        wrong += isAborted ? "" : e.what();
      }
    }
    return wrong.empty() ? "right" : wrong;
  });
}

TEST_F(CallQueueTest, CallsOfAMesh) {
  runOnRanks(4, [](Communicator& comm) { EXPECT_EQ(postsOfAMesh(comm, 100), "right"); });
}

TEST_F(LanesTest, TwoHundredCallsOfAMesh) {
  expectRight(4, [](Communicator& comm) { return postsOfAMesh(comm, 200); });
}

// Lanes that wait sleep, whatever the number of cores, and so do those that have nothing to do.
TEST_F(LanesTest, WhoWaitsSleeps) {
  expectRight(4, [](Communicator& comm) -> std::string {
    const Team teams[] = {{{0, 3}}, {{1, 3}}, {{2, 3}}, {{0, 1, 2, 3}}, {{3, 2, 1, 0}}};
    std::vector<int64_t> in(4, 1);
    std::deque<std::vector<int64_t>> out;
    auto processorTime = [] {
      rusage used{};
      getrusage(RUSAGE_SELF, &used);
      return std::chrono::seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
             std::chrono::microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    };
    CallQueue queue(comm);
    auto postAll = [&] {
      for (const Team& team : teams) {
        if (std::find(team.ranks.begin(), team.ranks.end(), comm.rank()) != team.ranks.end()) {
          postSumOf(queue, team, in, out.emplace_back(4));
        }
      }
    };
    postAll();
    queue.waitAll();
    const auto begin = std::chrono::steady_clock::now();
    const auto before = processorTime();
    if (comm.rank() == 3) {
      std::this_thread::sleep_for(1s);
    }
    postAll();
    queue.waitAll();
    const auto used = processorTime() - before;
    const auto took = std::chrono::steady_clock::now() - begin;
    return used < took * 2 / 5 ? "right" : fmt::format("{} us of a core in {} us", used / 1us, took / 1us);
  });
}

TEST_F(LanesTest, OnlyOfTheirTeam) {
  expectRight(3, [](Communicator& comm) -> std::string {
    CallQueue queue(comm);
    auto isRefused = [](const auto& act) {
      try {
        act();
      } catch (const UserError&) {
        return true;
      }
      return false;
    };
    if (!isRefused([&] {
          queue.post(Team{{0, 1, 3}}, [](Communicator&) {});
        }) ||
        !isRefused([&] { queue.post(Team{{(comm.rank() + 1) % 3}}, [](Communicator&) {}); })) {
      return "a team without this rank, or with one that is not there, has a lane";
    }
    const Team own{{0, 1, 2}};
    const auto calls = {
        queue.post(own, [](Communicator& c) { static_cast<void>(c.exchange("x")); }),
        queue.post(own, [](Communicator& c) { c.close(); }),
        queue.post(Team{{comm.rank()}},
                   [](Communicator& c) {
                     c.barrier({{0, 1, 2}});
                   }),
        queue.post(Team{{comm.rank()}}, [](Communicator& c) {
          const Communicator::Transfer send{Communicator::Transfer::Direction::Send, (c.rank() + 1) % 3, nullptr, 0};
          c.transfer({&send, 1});
        })};
    for (const CallQueue::Handle& call : calls) {
      if (!isRefused([&] { call.wait(); })) {
        return "a call that is not the team's";
      }
    }
    // Part of the team may have calls of its own there, as the axes of a mesh do; and messages go within it.
    const Team pair{{0, 1}};
    int64_t in = 1;
    int64_t out = 0;
    int64_t got = 0;
    queue
        .post(own,
              [&](Communicator& c) {
                using Direction = Communicator::Transfer::Direction;
                const Communicator::Transfer around[] = {{Direction::Send, (c.rank() + 1) % 3, &in, sizeof(in)},
                                                         {Direction::Recv, (c.rank() + 2) % 3, &got, sizeof(got)}};
                c.transfer(around);
                if (c.rank() < 2) {
                  c.allReduce(pair, &in, &out, 1, DataType::Int, ReduceOp::Sum);
                }
              })
        .wait();
    return out == (comm.rank() < 2 ? 2 : 0) && got == 1 ? "right" : "wrong";
  });
}

}  // namespace
}  // namespace meshfuse
