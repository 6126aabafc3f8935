// Every way to fail, at every place, of the first and the last rank: the others say who it was and what they were doing, become
// a new world and go on. Ranks are child processes; many cases run side by side, for most of their time is spent waiting.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <deque>
#include <memory>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/host_communicator.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

// Long enough that a starved rank of a crowded machine is not taken for a stopped one.
constexpr auto kDeadline = 4000ms;
constexpr auto kPatience = 100s;
constexpr size_t kAtOnce = 16;

enum class Way { Throw, Exit, Kill, Stop };
constexpr Way kWays[] = {Way::Throw, Way::Exit, Way::Kill, Way::Stop};
constexpr std::string_view kWayNames[] = {"throws", "exits", "is killed", "is stopped"};

void fail(Way way) {
  switch (way) {
    case Way::Throw:
      throw std::runtime_error("thrown as planned");
    case Way::Exit:
      _exit(0);
    case Way::Kill:
      kill(getpid(), SIGKILL);
      break;
    case Way::Stop:
      kill(getpid(), SIGSTOP);
      break;
  }
}

// The calls in which a rank may be missed; the last one is the teardown.
struct Call {
  std::string_view name;
  void (*make)(Communicator&, std::vector<float>& in, std::vector<float>& out);
};
constexpr int64_t kCount = 3000;

void sendAround(Communicator& c, std::vector<float>& in, std::vector<float>& out) {
  using Direction = Communicator::Transfer::Direction;
  std::vector<Communicator::Transfer> group;
  for (int p = 0; p < c.size(); ++p) {
    group.push_back({Direction::Send, p, in.data(), kCount * 4});
    group.push_back({Direction::Recv, p, out.data() + p * kCount, kCount * 4});
  }
  c.transfer(group);
}

constexpr Call kCalls[] = {
    {"all-reduce",
     [](Communicator& c, auto& in, auto& out) {
       c.allReduce(c.world(), in.data(), out.data(), kCount, DataType::Float, ReduceOp::Sum);
     }},
    {"all-gather", [](Communicator& c, auto& in,
                      auto& out) { c.allGather(c.world(), in.data(), out.data(), kCount, DataType::Float); }},
    {"reduce-scatter",
     [](Communicator& c, auto& in, auto& out) {
       c.reduceScatter(c.world(), in.data(), out.data(), kCount, DataType::Float, ReduceOp::Sum);
     }},
    {"all-to-all", [](Communicator& c, auto& in,
                      auto& out) { c.allToAll(c.world(), in.data(), out.data(), kCount, DataType::Float); }},
    {"broadcast",
     [](Communicator& c, auto& in, auto&) { c.broadcast(c.world(), in.data(), kCount, DataType::Float, 0); }},
    {"barrier", [](Communicator& c, auto&, auto&) { c.barrier(c.world()); }},
    {"exchange", [](Communicator& c, auto&, auto&) { static_cast<void>(c.exchange("a message")); }},
    {"sends and receives", sendAround},
    {"close", [](Communicator& c, auto&, auto&) { c.close(); }},
};

// "" if the world of survivors is as it should be: its ranks, and all-reduces small and large, in shared and ordinary memory.
std::string checkSurvivors(Communicator& comm, const std::vector<int>& oldRanks, const std::vector<int>& expected) {
  if (oldRanks != expected || comm.size() != static_cast<int>(expected.size())) {
    return fmt::format("{} survivors of {}", oldRanks.size(), expected.size());
  }
  const int old = oldRanks[static_cast<size_t>(comm.rank())];
  float sum = 0;
  for (int r : oldRanks) {
    sum += static_cast<float>(r + 1);
  }
  for (int64_t count : {1, 1000, 100'000}) {
    std::vector<float> in(static_cast<size_t>(count), static_cast<float>(old + 1));
    std::vector<float> out(in.size());
    const auto bytes = in.size() * sizeof(float);
    const std::shared_ptr<void> shared = comm.allocate(2 * bytes);
    auto* sharedIn = static_cast<float*>(shared.get());
    auto* sharedOut = sharedIn + count;
    std::copy(in.begin(), in.end(), sharedIn);
    comm.allReduce(comm.world(), in.data(), out.data(), count, DataType::Float, ReduceOp::Sum);
    comm.allReduce(comm.world(), sharedIn, sharedOut, count, DataType::Float, ReduceOp::Sum);
    if (std::count(out.begin(), out.end(), sum) != count || std::count(sharedOut, sharedOut + count, sum) != count) {
      return fmt::format("an all-reduce of {} is wrong", count);
    }
  }
  return "";
}

// What a rank of a case says at the end: the error it got, and how it went on.
std::string report(std::string_view error, const std::string& wrong) {
  return fmt::format("{}\n{}", error, wrong.empty() ? "survived" : wrong);
}

struct Case {
  std::string title;
  int ranks;
  int victim;
  std::vector<std::string> phrases;  // in the text of every survivor
  std::function<std::string(int)> body;
  bool stops = false;
  bool wakesToError = false;  // the stopped victim, woken up when all is over, gets an error too
  bool oneText = true;        // survivors have the same
  int alsoDies = -1;

  std::vector<int> survivors() const {
    std::vector<int> all;
    for (int r = 0; r < ranks; ++r) {
      if (r != victim && r != alsoDies) {
        all.push_back(r);
      }
    }
    return all;
  }
};

void expectSurvived(const Case& c, const std::vector<ProcessOutcome>& outcomes) {
  SCOPED_TRACE(c.title);
  std::string first;
  for (int r : c.survivors()) {
    const ProcessOutcome& o = outcomes[static_cast<size_t>(r)];
    EXPECT_TRUE(o.ended) << "rank " << r << " after " << o.after.count() << " ms";
    const size_t end = o.text.find('\n');
    const std::string error = o.text.substr(0, end);
    EXPECT_EQ(end == std::string::npos ? "" : o.text.substr(end + 1), "survived") << "rank " << r << ": " << o.text;
    for (const std::string& phrase : c.phrases) {
      EXPECT_NE(error.find(phrase), std::string::npos)
          << "rank " << r << " says: " << error << "\nexpected: " << phrase;
    }
    first = first.empty() ? error : first;
    if (c.oneText) {
      EXPECT_EQ(error, first);
    }
  }
  if (c.wakesToError) {
    EXPECT_NE(outcomes[static_cast<size_t>(c.victim)].text.find("came too late"), std::string::npos)
        << outcomes[static_cast<size_t>(c.victim)].text;
  }
}

void runCases(std::deque<Case> waiting) {
  struct Running {
    Case what;
    RankProcesses processes;
    bool woken = false;
  };
  std::vector<std::unique_ptr<Running>> running;
  auto hasEnded = [](const std::unique_ptr<Running>& r) {
    const bool survivorsEnded = r->processes.haveEnded({r->what.victim});
    if (survivorsEnded && r->what.stops && !r->woken) {
      r->processes.signal(r->what.victim, r->what.wakesToError ? SIGCONT : SIGKILL);
      r->woken = true;
    }
    if (!(survivorsEnded && r->processes.haveEnded()) && r->processes.age() < kPatience) {
      return false;
    }
    expectSurvived(r->what, r->processes.outcomes());
    return true;
  };
  while (!waiting.empty() || !running.empty()) {
    while (!waiting.empty() && running.size() < kAtOnce) {
      RankProcesses processes(waiting.front().ranks, waiting.front().body);
      running.push_back(std::make_unique<Running>(Running{std::move(waiting.front()), std::move(processes)}));
      waiting.pop_front();
    }
    std::erase_if(running, hasEnded);
    std::this_thread::sleep_for(2ms);
  }
}

class FailureTest : public testing::Test {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts processes of its own; run it without a launcher";
    }
  }
};

// One rank of a case in which the victim fails instead of making a call.
std::string missACall(int rank, int victim, Way way, const Call& call, const std::vector<int>& survivors,
                      const SharedCounters& ready) {
  const std::unique_ptr<Communicator> world = openWorld({.deadline = kDeadline});
  std::vector<float> in(kCount * 4, 1);
  std::vector<float> out(kCount * 4);
  for (int64_t step = 0; step < 7; ++step) {
    world->setStep(step, "warming up");
    world->barrier(world->world());
  }
  world->setStep(7, fmt::format("{} of T3", call.name));
  std::string error = "no error";
  try {
    if (rank == victim) {
      ready.await(0, static_cast<int>(survivors.size()));  // else somebody may not have left the last barrier yet
      fail(way);
    }
    ready.add(0);
    call.make(*world, in, out);
    world->barrier(world->world());
  } catch (const DeviceError& e) {
    error = e.what();
  }
  const Communicator::Survivors s = world->shrink();
  const std::string wrong = checkSurvivors(*s.world, s.oldRanks, survivors);
  s.world->close();
  return report(error, wrong);
}

TEST_F(FailureTest, AnyWayInAnyCall) {
  std::deque<Case> cases;
  for (Way way : {Way::Stop, Way::Throw, Way::Exit, Way::Kill}) {  // the slow ones first
    for (const Call& call : kCalls) {
      for (int ranks : {2, 4}) {
        for (int victim : {0, ranks - 1}) {
          Case c{.title = fmt::format("rank {} of {} {} in {}", victim, ranks, kWayNames[static_cast<size_t>(way)],
                                      call.name),
                 .ranks = ranks,
                 .victim = victim,
                 .phrases = {fmt::format("[rank {}/{}] at step 7 ({} of T3)", victim, ranks, call.name)},
                 .body = {},
                 .stops = way == Way::Stop,
                 .wakesToError = way == Way::Stop};
          if (way == Way::Stop) {
            c.phrases.emplace_back(fmt::format("deadline of {} ms expired", kDeadline.count()));
            c.phrases.emplace_back("without a sign of life");
          }
          c.body = [=, survivors = c.survivors(), &call, ready = std::make_shared<SharedCounters>(1)](int rank) {
            return missACall(rank, victim, way, call, survivors, *ready);
          };
          cases.push_back(std::move(c));
        }
      }
    }
  }
  runCases(std::move(cases));
}

// What the ranks do when the world cannot be opened.
std::string surviveOpening(const std::function<void()>& opens, const std::vector<int>& survivors) {
  std::string error = "no error";
  try {
    opens();
  } catch (const DeviceError& e) {
    error = e.what();
  }
  const Communicator::Survivors s = openSurvivors({.deadline = kDeadline});
  const std::string wrong = checkSurvivors(*s.world, s.oldRanks, survivors);
  s.world->close();
  return report(error, wrong);
}

Case openingCase(std::string title, int ranks, int victim) {
  return {.title = std::move(title),
          .ranks = ranks,
          .victim = victim,
          .phrases = {fmt::format("[rank {}/{}]", victim, ranks), "the world"},
          .body = {},
          .oneText = victim != 0};
}

TEST_F(FailureTest, AnyWayBeforeTheWorldIsOpen) {
  std::deque<Case> cases;
  for (Way way : kWays) {
    for (int ranks : {2, 4}) {
      for (int victim : {0, ranks - 1}) {
        Case c = openingCase(fmt::format("rank {} of {} {} before it opens its world", victim, ranks,
                                         kWayNames[static_cast<size_t>(way)]),
                             ranks, victim);
        c.stops = way == Way::Stop;
        c.body = [=, survivors = c.survivors()](int rank) {
          if (rank == victim) {
            fail(way);
          }
          return surviveOpening([] { static_cast<void>(openWorld({.deadline = kDeadline})); }, survivors);
        };
        cases.push_back(std::move(c));
      }
    }
  }
  runCases(std::move(cases));
}

// A bootstrap whose process is killed before one of its gatherings.
class FatalBootstrap final : public Bootstrap {
 public:
  FatalBootstrap(std::unique_ptr<Bootstrap> star, int gatheringsLeft)
      : star_(std::move(star)), gatheringsLeft_(gatheringsLeft) {}
  int rank() const override { return star_->rank(); }
  int size() const override { return star_->size(); }
  std::vector<std::string> allGather(std::string_view mine) override {
    if (gatheringsLeft_-- == 0) {
      fail(Way::Kill);
    }
    return star_->allGather(mine);
  }

 private:
  std::unique_ptr<Bootstrap> star_;
  int gatheringsLeft_;
};

TEST_F(FailureTest, KilledWhileTheWorldIsBeingOpened) {
  std::deque<Case> cases;
  for (int gathering = 0; gathering < 4; ++gathering) {
    for (int victim : {0, 2}) {
      Case c = openingCase(fmt::format("rank {} of 3 is killed before gathering {}", victim, gathering), 3, victim);
      c.body = [=, survivors = c.survivors()](int rank) {
        return surviveOpening(
            [&] {
              const TransportOptions options{.deadline = kDeadline};
              HostCommunicator world(
                  std::make_unique<FatalBootstrap>(connectStar(kDeadline), rank == victim ? gathering : -1), options,
                  "world");
            },
            survivors);
      };
      cases.push_back(std::move(c));
    }
  }
  runCases(std::move(cases));
}

// Rank 3 fails; rank 2 is killed at some moment after that. Who is left agrees on a world, and on another if the first fails.
TEST_F(FailureTest, DeathsWhileTheSurvivorsMeet) {
  std::deque<Case> cases;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    Case c{.title = fmt::format("seed {}", seed),
           .ranks = 4,
           .victim = 3,
           .phrases = {"[rank 3/4]"},
           .body = {},
           .alsoDies = 2};
    c.body = [=](int rank) -> std::string {
      std::unique_ptr<Communicator> world = openWorld({.deadline = kDeadline});
      std::vector<int> names = world->world().ranks;
      std::string error = "no error";
      try {
        world->barrier(world->world());
        if (rank == 3) {
          fail(Way::Throw);
        }
        world->barrier(world->world());
      } catch (const DeviceError& e) {
        error = e.what();
      }
      if (rank == 2) {
        std::thread([=] {
          std::this_thread::sleep_for(std::chrono::microseconds(hashCombine(seed, 1) % 20'000));
          kill(getpid(), SIGKILL);
        }).detach();
      }
      while (names != std::vector<int>{0, 1}) {
        Communicator::Survivors s = world->shrink();
        for (int& r : s.oldRanks) {
          r = names[static_cast<size_t>(r)];
        }
        names = s.oldRanks;
        world = std::move(s.world);
        try {
          for (;;) {
            if (const std::string wrong = checkSurvivors(*world, names, names); !wrong.empty() || names.size() == 2) {
              return report(error, wrong);
            }
          }
        } catch (const DeviceError&) {
          // rank 2 was still there when the new world was made
        }
      }
      return report(error, "");
    };
    cases.push_back(std::move(c));
  }
  runCases(std::move(cases));
}

TEST_F(FailureTest, AnAbortLetsAllGoOn) {
  auto outcomes = runProcesses(3,
                               [](Communicator& comm) {
                                 EXPECT_THROW(static_cast<void>(comm.shrink()), UserError);
                                 comm.barrier(comm.world());
                                 std::string error;
                                 try {
                                   if (comm.rank() == 1) {
                                     comm.abort("a change of plan");
                                   }
                                   for (;;) {
                                     comm.barrier(comm.world());
                                   }
                                 } catch (const DeviceError& e) {
                                   error = e.what();
                                 }
                                 const Communicator::Survivors s = comm.shrink();
                                 return report(error, checkSurvivors(*s.world, s.oldRanks, {0, 1, 2}));
                               },
                               {.deadline = kDeadline});
  for (const ProcessOutcome& o : outcomes) {
    EXPECT_TRUE(o.ended);
    EXPECT_NE(o.text.find("aborted: a change of plan\nsurvived"), std::string::npos) << o.text;
  }
}

}  // namespace
}  // namespace meshfuse
