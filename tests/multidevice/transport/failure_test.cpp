// Every way to fail, at every place, of the first and the last rank: the others say who it was and what they were doing, become
// a new world and go on. Ranks are child processes; many cases run side by side, for most of their time is spent waiting.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <deque>
#include <iterator>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/hash.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/call_queue.h"
#include "multidevice/transport/failure_cases.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/host_communicator.h"
#include "multidevice/transport/host/network_communicator.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

using namespace std::chrono_literals;

class FailureTest : public testing::Test {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts processes of its own; run it without a launcher";
    }
  }
};

// The same between processes that exchange messages only, as ranks on several hosts do.
class NetworkFailureTest : public FailureTest {
 protected:
  void SetUp() override {
    FailureTest::SetUp();
    if (const std::string why = whyNoNetwork(); !why.empty()) {
      GTEST_SKIP() << why;
    }
  }
};

TransportOptions host() { return {.deadline = kFailureDeadline}; }
TransportOptions network() { return {.deadline = kFailureDeadline, .messagesOnly = true}; }

// A bootstrap whose process fails before one of its gatherings.
class FatalBootstrap final : public Bootstrap {
 public:
  FatalBootstrap(std::unique_ptr<Bootstrap> star, int64_t gatheringsLeft, Way way)
      : star_(std::move(star)), gatheringsLeft_(gatheringsLeft), way_(way) {}
  int64_t rank() const override { return star_->rank(); }
  int64_t size() const override { return star_->size(); }
  std::vector<std::string> allGather(std::string_view mine) override {
    if (gatheringsLeft_-- == 0) {
      fail(way_);
    }
    return star_->allGather(mine);
  }

 private:
  std::unique_ptr<Bootstrap> star_;
  int64_t gatheringsLeft_;
  Way way_;
};

template <class World>
std::deque<FailureCase> brokenOpenings(int64_t gatherings, const TransportOptions& given) {
  std::deque<FailureCase> cases;
  for (Way way : kWays) {
    const TransportOptions options = withDeadlineFor(way, given);
    for (int64_t gathering = 0; gathering < gatherings; ++gathering) {
      for (int64_t victim : {0, 2}) {
        FailureCase c =
            openingCase(fmt::format("rank {} of 3 {} before gathering {}", victim, name(way), gathering), 3, victim);
        c.heardOf = way != Way::Stop;
        c.stops = way == Way::Stop;
        c.waits = way == Way::Stop;
        c.body = [=, survivors = c.survivors()](int64_t rank) {
          return surviveOpening(
              [&] {
                World world(std::make_unique<FatalBootstrap>(connectStar(options.deadline),
                                                             rank == victim ? gathering : -1, way),
                            options, "world");
              },
              survivors, options);
        };
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

// Rank 3 fails; rank 2 is killed at some moment after that. Who is left agrees on a world, and on another if the first fails.
void dieWhileTheSurvivorsMeet(const TransportOptions& options) {
  std::deque<FailureCase> cases;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    FailureCase c{.title = fmt::format("seed {}", seed),
                  .ranks = 4,
                  .victim = 3,
                  .phrases = {"[rank 3/4]"},
                  .body = {},
                  .heardOf = true,
                  .alsoDies = 2};
    c.body = [=](int64_t rank) -> std::string {
      std::unique_ptr<Communicator> world = openWorld(options);
      std::vector<int64_t> names = world->world().ranks;
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
      while (names != std::vector<int64_t>{0, 1}) {
        Communicator::Survivors s = world->shrink();
        for (int64_t& r : s.oldRanks) {
          r = names[r];
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

TEST_F(FailureTest, DeathsWhileTheSurvivorsMeet) { dieWhileTheSurvivorsMeet(host()); }
// Not between hosts: UCX 1.13 ends or blocks a process whose peer dies in the moment in which the two connect.

// A rank fails at some moment of a stream of calls of all kinds and sizes: anywhere in a copy, in a piece, between two.
std::deque<FailureCase> brokenStreams(const TransportOptions& given) {
  std::deque<FailureCase> cases;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const Way way = std::array{Way::Kill, Way::Exit, Way::Stop}[seed % 3];
    const int64_t victim = static_cast<int64_t>(seed / 3 % 4);
    const TransportOptions options = withDeadlineFor(way, given);
    FailureCase c{.title = fmt::format("seed {}: rank {} of 4 {}", seed, victim, name(way)),
                  .ranks = 4,
                  .victim = victim,
                  .phrases = {fmt::format("[rank {}/4]", victim), "(a stream)"},
                  .body = {},
                  .heardOf = way != Way::Stop,
                  .stops = way == Way::Stop,
                  .wakesToError = way == Way::Stop,
                  .oneText = victim != 0 || !options.messagesOnly,
                  .waits = way == Way::Stop};
    c.body = [=, survivors = c.survivors()](int64_t rank) -> std::string {
      const std::unique_ptr<Communicator> world = openWorld(options);
      std::string error;
      std::vector<float> in(400'000, 1);
      std::vector<float> out(in.size());
      const std::shared_ptr<void> shared = world->allocate(2 * in.size() * sizeof(float));
      auto* sharedIn = static_cast<float*>(shared.get());
      std::fill(sharedIn, sharedIn + in.size(), 1.0f);
      world->setStep(0, "a stream");
      try {
        world->barrier(world->world());  // the victim may fail before the others have left it
        if (rank == victim) {
          std::thread([=] {
            std::this_thread::sleep_for(std::chrono::microseconds(hashCombine(seed, 2) % 100'000));
            fail(way);
          }).detach();
        }
        for (uint64_t i = 0;; ++i) {
          world->setStep(static_cast<int64_t>(i), "a stream");
          const uint64_t random = hashCombine(seed, 100 + i);
          const bool ordinary = random % 2 == 0;
          const auto count = static_cast<int64_t>(random / 2 % (random / 8 % 2 == 0 ? 100 : 100'000));
          const float* from = ordinary ? in.data() : sharedIn;
          float* to = ordinary ? out.data() : sharedIn + in.size();
          switch (random / 16 % 4) {
            case 0:
              world->allReduce(world->world(), from, to, count, DataType::Float, ReduceOp::Sum);
              break;
            case 1:
              world->allGather(world->world(), from, to, count, DataType::Float);
              break;
            case 2:
              world->reduceScatter(world->world(), from, to, count, DataType::Float, ReduceOp::Sum);
              break;
            default:
              world->allToAll(world->world(), from, to, count, DataType::Float);
          }
        }
      } catch (const DeviceError& e) {
        error = e.what();
      }
      world->setCoreShare(3.5);
      const Communicator::Survivors s = world->shrink();
      const std::string lost = s.world->coreShare() < 3.5 ? "the survivors have lost cores; " : "";
      return report(error, lost + checkSurvivors(*s.world, s.oldRanks, survivors));
    };
    cases.push_back(std::move(c));
  }
  return cases;
}

// Under sanitizers one case in five; the release build runs all.
std::deque<FailureCase> shareOf(std::deque<FailureCase> cases) {
  size_t number = 0;
  std::erase_if(cases, [&](const FailureCase&) {
    const size_t i = number++;
    return kSanitized && (i + i / 5) % 5 != 0;  // ways repeat every few cases
  });
  return cases;
}

// Every way, of the first and the last rank, before the world is open, while it is being opened, instead of a call, in a call, and at any
// moment of many calls.
template <class World>
void failEverywhere(int64_t gatherings, const TransportOptions& options) {
  std::deque<FailureCase> all;
  for (std::deque<FailureCase>& some : std::array{missedOpenings(options), brokenOpenings<World>(gatherings, options),
                                                  missedCalls(options), brokenCalls(options)}) {
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  runCases(shareOf(std::move(all)));
  runCases(shareOf(brokenStreams(options)), kAlwaysAwake);
}

TEST_F(FailureTest, AnyWayAtAnyPlace) { failEverywhere<HostCommunicator>(5, host()); }
TEST_F(NetworkFailureTest, AnyWayAtAnyPlace) { failEverywhere<NetworkCommunicator>(2, network()); }

// A rank that may take no more memory opens its world: it gets an error or ends, and the others name it and go on.
void runOutOfMemoryAtTheOpening(TransportOptions options) {
  options.deadline = kSilenceDeadline;  // nobody may know of a rank that has not come yet
  std::deque<FailureCase> cases;
  for (int64_t victim : {0, 2}) {
    FailureCase c = openingCase(fmt::format("rank {} of 3 runs out of memory", victim), 3, victim);
    c.waits = true;
    c.body = [=, survivors = c.survivors()](int64_t rank) -> std::string {
      if (rank == victim) {
        rlimit none{};
        getrlimit(RLIMIT_AS, &none);
        none.rlim_cur = 1;
        setrlimit(RLIMIT_AS, &none);
        const std::unique_ptr<Communicator> world = openWorld(options);
        return "opened all the same";
      }
      return surviveOpening([&] { static_cast<void>(openWorld(options)); }, survivors, options);
    };
    cases.push_back(std::move(c));
  }
  runCases(std::move(cases));
}

TEST_F(FailureTest, OutOfMemoryAtTheOpening) { runOutOfMemoryAtTheOpening(host()); }
TEST_F(NetworkFailureTest, OutOfMemoryAtTheOpening) { runOutOfMemoryAtTheOpening(network()); }

// Many calls in flight when a rank is killed: each of them ends, those that had to with the one error, and the others go on.
// In one lane, in the posted order; or in two, which do not wait for each other.
void killWhileCallsAreInFlight(const TransportOptions& options, bool inLanes) {
  std::deque<FailureCase> cases;
  for (int64_t victim : {0, 2}) {
    FailureCase c{.title = fmt::format("rank {} of 3 is killed with calls in flight", victim),
                  .ranks = 3,
                  .victim = victim,
                  .phrases = {fmt::format("[rank {}/3]", victim), "(a queue)"},
                  .body = {},
                  .heardOf = true,
                  .oneText = victim != 0 || !options.messagesOnly};
    c.body = [=, survivors = c.survivors()](int64_t rank) -> std::string {
      constexpr size_t kCalls = 40;
      const std::unique_ptr<Communicator> world = openWorld(options);
      world->setStep(1, "a queue");
      std::vector<std::vector<int64_t>> in(kCalls, std::vector<int64_t>(3000, rank));
      std::vector<std::vector<int64_t>> out = in;
      std::string error;
      {
        CallQueue queue(*world);
        std::vector<CallQueue::Handle> handles;
        for (size_t i = 0; i < kCalls; ++i) {
          const Team team = i % 2 == 0 ? Team{{0, 1, 2}} : Team{{2, 1, 0}};
          auto call = [&, i](Communicator& comm) {
            comm.setStep(1, "a queue");
            if (rank == victim && i == kCalls / 2) {
              fail(Way::Kill);
            }
            comm.allReduce(comm.world(), in[i].data(), out[i].data(), 3000, DataType::Int, ReduceOp::Sum);
          };
          handles.push_back(inLanes ? queue.post(team, call) : queue.post(call));
        }
        for (size_t i = 0; i < kCalls; ++i) {
          try {
            handles[i].wait();
            const bool mayEnd = i < kCalls / 2 || (inLanes && i % 2 != kCalls / 2 % 2);
            error += mayEnd && out[i] == std::vector<int64_t>(3000, 3) ? "" : "a call is wrong";
          } catch (const DeviceError& e) {
            error += error.empty() || error == e.what() ? "" : "another error: ";
            error = error == e.what() ? error : error + e.what();
          }
        }
      }
      const Communicator::Survivors s = world->shrink();
      return report(error, checkSurvivors(*s.world, s.oldRanks, survivors));
    };
    cases.push_back(std::move(c));
  }
  runCases(std::move(cases));
}

TEST_F(FailureTest, CallsInFlight) { killWhileCallsAreInFlight(host(), false); }
TEST_F(FailureTest, CallsInFlightOfTwoTeams) { killWhileCallsAreInFlight(host(), true); }
TEST_F(NetworkFailureTest, CallsInFlight) { killWhileCallsAreInFlight(network(), false); }
TEST_F(NetworkFailureTest, CallsInFlightOfTwoTeams) { killWhileCallsAreInFlight(network(), true); }

void abortAndGoOn(const TransportOptions& options) {
  auto outcomes = runProcesses(
      3,
      [](Communicator& comm) {
        EXPECT_THROW(static_cast<void>(comm.shrink()), UserError);
        std::string error;
        try {
          comm.barrier(comm.world());  // may fail already: another rank may have left it and gone on
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
      options);
  for (const ProcessOutcome& o : outcomes) {
    EXPECT_TRUE(o.ended);
    EXPECT_NE(o.text.find("aborted: a change of plan\nsurvived"), std::string::npos) << o.text;
  }
}

TEST_F(FailureTest, AnAbortLetsAllGoOn) { abortAndGoOn(host()); }
TEST_F(NetworkFailureTest, AnAbortLetsAllGoOn) { abortAndGoOn(network()); }

}  // namespace
}  // namespace meshfuse
