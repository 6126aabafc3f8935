// What loopback does when ranks disagree, deadlock, fail, leave or are late.
#include "multidevice/transport/loopback/loopback.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "multidevice/transport/processes.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

// Runs the body on `ranks` ranks and returns the text of the error that each of them met; "" where there was none.
std::vector<std::string> errorsOn(int ranks, const std::function<void(Communicator&)>& body,
                                  LoopbackOptions options = {}) {
  if (options.deadline > 60s) {
    options.deadline = 60s;
  }
  std::vector<std::string> errors(ranks);
  runLoopback(
      ranks,
      [&](Communicator& comm) {
        try {
          body(comm);
        } catch (const DeviceError& e) {
          errors[comm.rank()] = e.what();
        }
      },
      options);
  return errors;
}

void expectAllSay(const std::vector<std::string>& errors, const std::vector<std::string>& phrases) {
  for (size_t r = 0; r < errors.size(); ++r) {
    for (const std::string& phrase : phrases) {
      EXPECT_NE(errors[r].find(phrase), std::string::npos)
          << "rank " << r << " says: " << errors[r] << "\nexpected: " << phrase;
    }
  }
}

TEST(LoopbackTest, SetsTheDefaultWorldOfEachThread) {
  Communicator& before = defaultWorld();
  runLoopback(3, [](Communicator& comm) { EXPECT_EQ(&defaultWorld(), &comm); });
  EXPECT_EQ(&defaultWorld(), &before);
}

TEST(LoopbackTest, DifferentCountsAreAnErrorOnAllRanks) {
  auto errors = errorsOn(3, [](Communicator& comm) { callAllReduce(comm, comm.world(), comm.rank() == 1 ? 65 : 64); });
  expectAllSay(errors, {"the counts differ", "rank 1", "65", "64"});
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_EQ(errors[0], errors[2]);
}

TEST(LoopbackTest, DifferentTypesOperationsRootsAndKindsAreErrors) {
  expectAllSay(errorsOn(2,
                        [](Communicator& comm) {
                          callAllReduce(comm, comm.world(), 8, comm.rank() == 0 ? DataType::Float : DataType::Int32);
                        }),
               {"the types differ", "Float", "Int32"});
  expectAllSay(errorsOn(2,
                        [](Communicator& comm) {
                          callAllReduce(comm, comm.world(), 8, DataType::Float,
                                        comm.rank() == 0 ? ReduceOp::Max : ReduceOp::Min);
                        }),
               {"the operations differ", "max", "min"});
  expectAllSay(errorsOn(2,
                        [](Communicator& comm) {
                          int x = 0;
                          comm.broadcast(comm.world(), &x, 1, DataType::Int32, comm.rank());
                        }),
               {"the roots differ"});
  expectAllSay(errorsOn(2,
                        [](Communicator& comm) {
                          comm.setStep(7, "sum of T3");
                          comm.rank() == 0 ? callAllReduce(comm, comm.world(), 8) : comm.barrier(comm.world());
                        }),
               {"the calls differ", "all-reduce(sum) of 8 Float", "barrier", "step 7 (sum of T3)"});
}

TEST(LoopbackTest, DifferentTeamsAreErrors) {
  expectAllSay(
      errorsOn(3,
               [](Communicator& comm) {
                 comm.rank() == 0 ? callAllReduce(comm, Team{{0, 1}}, 8) : callAllReduce(comm, comm.world(), 8);
               }),
      {"the teams differ", "{0, 1}", "{0, 1, 2}"});
  expectAllSay(errorsOn(2,
                        [](Communicator& comm) {
                          callAllReduce(comm, comm.rank() == 0 ? Team{{0, 1}} : Team{{1, 0}}, 8);
                        }),
               {"different orders"});
}

TEST(LoopbackTest, OrderMayNotDifferAmongTeams) {
  auto errors = errorsOn(3, [](Communicator& comm) {
    const Team a{{0, 1}};
    const Team b{{1, 2}};
    const Team c{{0, 2}};
    const std::vector<std::pair<const Team*, const Team*>> orders = {{&a, &c}, {&b, &a}, {&c, &b}};
    auto [first, second] = orders[comm.rank()];
    callAllReduce(comm, *first, 4);
    callAllReduce(comm, *second, 4);
  });
  expectAllSay(errors, {"[loopback] deadlock: ", "waits for rank"});
}

TEST(LoopbackTest, ARankThatThrowsFailsTheOthersAndItsErrorIsTheOneRethrown) {
  std::vector<std::string> errors(2);
  try {
    runLoopback(2, [&](Communicator& comm) {
      comm.setStep(3, "softmax");
      check(comm.rank() == 0, "[test] rank 1 had enough");
      try {
        callAllReduce(comm, comm.world(), 8);
      } catch (const DeviceError& e) {
        errors[0] = e.what();
        throw;
      }
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "[test] rank 1 had enough");
  }
  EXPECT_NE(errors[0].find("[rank 1/2] at step 3 (softmax)"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("had enough"), std::string::npos) << errors[0];
}

TEST(LoopbackTest, ARankThatLeavesEarlyIsNamed) {
  auto errors = errorsOn(3, [](Communicator& comm) {
    if (comm.rank() != 2) {
      callAllReduce(comm, comm.world(), 8);
    }
  });
  errors.pop_back();
  expectAllSay(errors, {"[rank 2/3] has ended", "waits for rank 2"});
}

TEST(LoopbackTest, AStuckRankIsNamedAtTheDeadline) {
  LoopbackOptions options{.deadline = 100ms};
  std::atomic<bool> failed = false;
  auto errors = errorsOn(
      2,
      [&](Communicator& comm) {
        while (comm.rank() == 1 && !failed) {
          std::this_thread::sleep_for(1ms);
        }
        try {
          callAllReduce(comm, comm.world(), 8);
        } catch (const DeviceError&) {
          failed = true;
          throw;
        }
      },
      options);
  expectAllSay(errors, {"deadline of 100 ms expired", "[rank 1/2] outside any call", "[rank 0/2] in all-reduce"});
}

TEST(LoopbackTest, ABusyRankIsWaitedFor) {
  LoopbackOptions options{.deadline = 200ms};
  std::atomic<bool> busy = false;
  auto errors = errorsOn(
      3,
      [&](Communicator& comm) {
        if (comm.rank() == 1) {
          comm.setBusy(true);
          busy = true;
          std::this_thread::sleep_for(900ms);
        }
        while (!busy) {
          std::this_thread::yield();
        }
        callAllReduce(comm, comm.world(), 8);
      },
      options);
  EXPECT_EQ(errors, std::vector<std::string>(3));
}

TEST(LoopbackTest, AbortReachesThePeersWithItsReason) {
  auto errors = errorsOn(2, [](Communicator& comm) {
    if (comm.rank() == 1) {
      comm.abort("out of memory in step 5");
    }
    callAllReduce(comm, comm.world(), 8);
  });
  expectAllSay(errors, {"[rank 1/2]", "aborted: out of memory in step 5"});
}

TEST(LoopbackTest, ADroppedCallIsFound) {
  LoopbackOptions options;
  options.faults = {{.kind = LoopbackFault::Kind::Drop, .rank = 1, .call = 1}};
  auto errors = errorsOn(
      2,
      [](Communicator& comm) {
        for (int64_t count : {4, 5, 6}) {
          callAllReduce(comm, comm.world(), count);
        }
      },
      options);
  expectAllSay(errors, {"the counts differ", "rank 0 has 5", "rank 1 has 6"});
}

TEST(LoopbackTest, AThrowAtACallAndADelayAreInjected) {
  LoopbackOptions options;
  options.faults = {{.kind = LoopbackFault::Kind::Delay, .rank = 0, .call = 0, .delay = 20ms},
                    {.kind = LoopbackFault::Kind::Throw, .rank = 0, .call = 2}};
  std::atomic<int> done = 0;
  auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(runLoopback(
                   2,
                   [&](Communicator& comm) {
                     for (int i = 0; i < 3; ++i) {
                       comm.barrier(comm.world());
                       ++done;
                     }
                   },
                   options),
               UserError);
  EXPECT_EQ(done, 4);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 20ms);
}

TEST(LoopbackTest, ACorruptMessageArrivesChanged) {
  LoopbackOptions options;
  options.faults = {{.kind = LoopbackFault::Kind::CorruptExchange, .rank = 1, .call = 0}};
  runLoopback(
      3,
      [](Communicator& comm) {
        std::vector<std::string> all = comm.exchange("abc");
        EXPECT_EQ(all[0], "abc");
        EXPECT_NE(all[1], "abc");
        EXPECT_EQ(all[2], "abc");
      },
      options);
}

TEST(LoopbackTest, RanksThatDisagreeAboutTheRootAreToldSo) {
  auto errors = errorsOn(2, [](Communicator& comm) {
    float x[2] = {};
    float y[2] = {};
    comm.gather(comm.world(), x, y, 1, DataType::Float, comm.rank());
  });
  expectAllSay(errors, {"the roots differ", "rank 0 has 0", "rank 1 has 1", "gather of 1 Float to position 0"});
}

// A position of 2^32 is not that of rank 0, and no bytes of a buffer are as many as 64 bits cannot count.
TEST(LoopbackTest, RootsAndCountsThatDoNotFitAreRefused) {
  runLoopback(1, [](Communicator& comm) {
    constexpr int64_t kFar = int64_t{1} << 32;
    float x[2] = {};
    float y[2] = {};
    const Team& team = comm.world();
    EXPECT_THROW(comm.broadcast(team, x, 1, DataType::Float, kFar), UserError);
    EXPECT_THROW(comm.gather(team, x, y, 1, DataType::Float, kFar), UserError);
    EXPECT_THROW(comm.scatter(team, x, y, 1, DataType::Float, kFar), UserError);
    EXPECT_THROW(comm.reduce(team, x, y, 1, DataType::Float, {.op = ReduceOp::Sum, .root = -kFar}), UserError);
    EXPECT_THROW(comm.allReduce(team, x, y, INT64_MAX, DataType::Float, ReduceOp::Sum), UserError);
    EXPECT_THROW(comm.allGather(team, x, y, int64_t{1} << 62, DataType::Float), UserError);
    const std::vector<int64_t> counts{INT64_MAX};
    EXPECT_THROW(comm.allGatherV(team, x, y, counts, DataType::Float), UserError);
    EXPECT_NO_THROW(comm.broadcast(team, x, 1, DataType::Float, 0));
    if (!kSanitized) {  // AddressSanitizer ends a process that asks for more than there is
      EXPECT_THROW((void)comm.allocate(size_t{1} << 49), UserError);
    }
    EXPECT_THROW((void)comm.allocate(~size_t{0}), UserError);
  });
}

TEST(LoopbackTest, TransfersOfDifferentSizesAreAnError) {
  auto errors = errorsOn(2, [](Communicator& comm) {
    std::byte buffer[8] = {};
    Communicator::Transfer t{.direction = comm.rank() == 0 ? Communicator::Transfer::Direction::Send
                                                           : Communicator::Transfer::Direction::Recv,
                             .peer = 1 - comm.rank(),
                             .data = buffer,
                             .bytes = comm.rank() == 0 ? 8 : 4};
    comm.transfer(std::span(&t, 1));
  });
  expectAllSay(errors, {"rank 0 sends 8 bytes, rank 1 receives 4"});
}

TEST(LoopbackTest, AReceiveThatNobodySendsIsADeadlock) {
  auto errors = errorsOn(2, [](Communicator& comm) {
    std::byte buffer[8] = {};
    Communicator::Transfer t{
        .direction = Communicator::Transfer::Direction::Recv, .peer = 1 - comm.rank(), .data = buffer, .bytes = 8};
    comm.transfer(std::span(&t, 1));
  });
  expectAllSay(errors, {"[loopback] deadlock: ", "[rank 0/2] in a group of 1 sends and receives waits for rank 1"});
}

class ThrowingPrograms final : public Communicator::Programs {
 public:
  std::optional<std::string> difference(const Call&, const Call&) const override {
    throw std::runtime_error("[test] no words");
  }
};

// One of the ranks finds the deadlock and leaves its call by the exception; it stays until the other has got an error.
TEST(LoopbackTest, AnExceptionOfAnyKindEndsTheCallsOfAllRanks) {
  std::vector<std::string> texts(2);
  std::atomic<int> ended = 0;
  runLoopback(2, [&](Communicator& comm) {
    comm.setPrograms(std::make_shared<ThrowingPrograms>());
    std::byte buffer[8] = {};
    const Communicator::Transfer t{
        .direction = Communicator::Transfer::Direction::Recv, .peer = 1 - comm.rank(), .data = buffer, .bytes = 8};
    try {
      comm.transfer(std::span(&t, 1));
    } catch (const std::runtime_error& e) {
      texts[comm.rank()] = e.what();
    }
    ++ended;
    while (ended < 2) {
      std::this_thread::sleep_for(1ms);
    }
  });
  std::sort(texts.begin(), texts.end());
  EXPECT_NE(texts[0].find("left its call because of an exception"), std::string::npos) << texts[0];
  EXPECT_EQ(texts[1], "[test] no words");
}

TEST(LoopbackTest, TheTraceListsTheCallsOfEveryRank) {
  std::vector<std::vector<std::string>> trace;
  LoopbackOptions options{.trace = &trace};
  errorsOn(
      2,
      [](Communicator& comm) {
        callAllReduce(comm, comm.world(), 4);
        comm.exchange("x");
        comm.barrier(comm.world());
      },
      options);
  const std::vector<std::string> calls = {"all-reduce(sum) of 4 Float in team {0, 1}", "exchange",
                                          "barrier in team {0, 1}"};
  EXPECT_EQ(trace, (std::vector<std::vector<std::string>>{calls, calls}));
}

TEST(LoopbackTest, CallersMistakesAreUserErrors) {
  auto misuse = [](const std::function<void(Communicator&)>& body) { EXPECT_THROW(runLoopback(2, body), UserError); };
  misuse([](Communicator& comm) { callAllReduce(comm, Team{{0, 0}}, 1); });
  misuse([](Communicator& comm) { callAllReduce(comm, Team{{0, 2}}, 1); });
  misuse([](Communicator& comm) { callAllReduce(comm, Team{{1 - comm.rank()}}, 1); });
  misuse([](Communicator& comm) {
    float x = 0;
    comm.broadcast(comm.world(), &x, -1, DataType::Float, 0);
  });
  misuse([](Communicator& comm) {
    float x = 0;
    comm.broadcast(comm.world(), &x, 1, DataType::Float, 2);
  });
  misuse([](Communicator& comm) {
    float x[2] = {};
    float y[2] = {};
    comm.gather(comm.world(), x, y, 1, DataType::Float, -1);
  });
  misuse([](Communicator& comm) { comm.scatter(comm.world(), nullptr, nullptr, 1, DataType::Float, comm.rank()); });
  misuse([](Communicator& comm) {
    float x = 0;
    comm.reduce(comm.world(), &x, nullptr, 1, DataType::Float, {.op = ReduceOp::Sum, .root = comm.rank()});
  });
  misuse([](Communicator& comm) { comm.allGather(comm.world(), nullptr, nullptr, 1, DataType::Float); });
}

// Ways for a rank to be missed, as far as a thread can: it throws, ends, or is stuck until the others have gone on.
enum class Ending { Throw, End, Stuck };

void goOnWithout(Ending way, int ranks, int victim, const std::function<void(Communicator&)>& call) {
  std::vector<std::string> errors(ranks);
  std::atomic<int> goneOn = 0;
  auto body = [&](Communicator& comm) {
    comm.setStep(7, "the call");
    if (comm.rank() == victim) {
      check(way != Ending::Throw, "[test] had enough");
      while (way == Ending::Stuck && goneOn < ranks - 1) {
        std::this_thread::sleep_for(1ms);
      }
      if (way == Ending::Stuck) {
        EXPECT_THROW(call(comm), DeviceError);
        EXPECT_THROW(static_cast<void>(comm.shrink()), DeviceError);
      }
      return;
    }
    try {
      call(comm);
      comm.barrier(comm.world());
    } catch (const DeviceError& e) {
      errors[comm.rank()] = e.what();
    }
    const Communicator::Survivors s = comm.shrink();
    EXPECT_EQ(s.oldRanks.size(), ranks - 1);
    EXPECT_EQ(std::count(s.oldRanks.begin(), s.oldRanks.end(), victim), 0);
    EXPECT_EQ(s.oldRanks[s.world->rank()], comm.rank());
    EXPECT_EQ(s.world->size(), ranks - 1);
    std::vector<int64_t> in(1000, comm.rank() + 1);
    std::vector<int64_t> out(1000);
    s.world->allReduce(s.world->world(), in.data(), out.data(), 1000, DataType::Int, ReduceOp::Sum);
    EXPECT_EQ(out, std::vector<int64_t>(1000, ranks * (ranks + 1) / 2 - victim - 1));
    s.world->close();
    EXPECT_THROW(comm.barrier(comm.world()), DeviceError);
    ++goneOn;
  };
  const LoopbackOptions options{.deadline = way == Ending::Stuck ? 4s : 60s};
  if (way == Ending::Throw) {
    EXPECT_THROW(runLoopback(ranks, body, options), UserError);
  } else {
    runLoopback(ranks, body, options);
  }
  errors.erase(errors.begin() + victim);
  expectAllSay(errors, {fmt::format("[rank {}/{}] at step 7 (the call)", victim, ranks)});
}

TEST(LoopbackTest, SurvivorsOfAnyFailureGoOn) {
  const std::function<void(Communicator&)> calls[] = {
      [](Communicator& comm) { callAllReduce(comm, comm.world(), 100); },
      [](Communicator& comm) { comm.barrier(comm.world()); },
      [](Communicator& comm) { static_cast<void>(comm.exchange("a message")); },
      [](Communicator& comm) { comm.close(); }};
  for (Ending way : {Ending::Throw, Ending::End}) {
    for (int ranks : {2, 4}) {
      for (int victim : {0, ranks - 1}) {
        for (const auto& call : calls) {
          SCOPED_TRACE(fmt::format("rank {} of {}, way {}", victim, ranks, static_cast<int>(way)));
          goOnWithout(way, ranks, victim, call);
        }
      }
    }
  }
  goOnWithout(Ending::Stuck, 3, 0, calls[0]);
}

TEST(LoopbackTest, NothingIsShrunkBeforeItFails) {
  runLoopback(2, [](Communicator& comm) { EXPECT_THROW(static_cast<void>(comm.shrink()), UserError); });
}

}  // namespace
}  // namespace meshfuse
