#include "multidevice/transport/failure_cases.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>

#include "base/error.h"
#include "multidevice/transport/driven_clock.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

constexpr auto kApart = 20ms;  // to open a world is work, and a starved rank looks like a stopped one
constexpr int64_t kCount = 3000;

void sendAround(Communicator& c, std::vector<float>& in, std::vector<float>& out) {
  using Direction = Communicator::Transfer::Direction;
  std::vector<Communicator::Transfer> group;
  for (int64_t p = 0; p < c.size(); ++p) {
    group.push_back({Direction::Send, p, in.data(), kCount * 4});
    group.push_back({Direction::Recv, p, out.data() + p * kCount, kCount * 4});
  }
  c.transfer(group);
}

// A count for each rank, none the same.
std::vector<int64_t> someOf(const Communicator& c) {
  std::vector<int64_t> counts;
  for (int64_t r = 0; r < c.size(); ++r) {
    counts.push_back(kCount - 100 * r);
  }
  return counts;
}

constexpr FailureCall kCalls[] = {
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
    {"gather", [](Communicator& c, auto& in,
                  auto& out) { c.gather(c.world(), in.data(), out.data(), kCount, DataType::Float, 0); }},
    {"scatter", [](Communicator& c, auto& in,
                   auto& out) { c.scatter(c.world(), in.data(), out.data(), kCount, DataType::Float, 0); }},
    {"reduce",
     [](Communicator& c, auto& in, auto& out) {
       c.reduce(c.world(), in.data(), out.data(), kCount, DataType::Float, {.op = ReduceOp::Sum, .root = 0});
     }},
    {"all-gather-v",
     [](Communicator& c, auto& in, auto& out) {
       const std::vector<int64_t> counts = someOf(c);
       c.allGatherV(c.world(), in.data(), out.data(), counts, DataType::Float);
     }},
    {"reduce-scatter-v",
     [](Communicator& c, auto& in, auto& out) {
       const std::vector<int64_t> counts = someOf(c);
       c.reduceScatterV(c.world(), in.data(), out.data(), counts, DataType::Float, ReduceOp::Sum);
     }},
    {"all-to-all-v",
     [](Communicator& c, auto& in, auto& out) {
       const std::vector<int64_t> counts(c.size(), kCount - 1);
       c.allToAllV(c.world(), in.data(), out.data(), counts, counts, DataType::Float);
     }},
    {"barrier", [](Communicator& c, auto&, auto&) { c.barrier(c.world()); }},
    {"exchange", [](Communicator& c, auto&, auto&) { static_cast<void>(c.exchange("a message")); }},
    {"sends and receives", sendAround},
    {"close", [](Communicator& c, auto&, auto&) { c.close(); }},
};

void expectSurvived(const FailureCase& c, const std::vector<ProcessOutcome>& outcomes) {
  SCOPED_TRACE(c.title);
  std::string first;
  for (int64_t r : c.survivors()) {
    const ProcessOutcome& o = outcomes[r];
    EXPECT_TRUE(o.ended) << "rank " << r << " has not: " << o.text;
    const size_t end = o.text.find('\n');
    const std::string error = o.text.substr(0, end);
    EXPECT_EQ(end == std::string::npos ? "" : o.text.substr(end + 1), "survived") << "rank " << r << ": " << o.text;
    for (const std::string& phrase : c.phrases) {
      EXPECT_NE(error.find(phrase), std::string::npos)
          << "rank " << r << " says: " << error << "\nexpected: " << phrase;
    }
    for (const char* silence : {"deadline of", "sent nothing for"}) {
      EXPECT_TRUE(!c.heardOf || error.find(silence) == std::string::npos) << "rank " << r << " says: " << error;
    }
    first = first.empty() ? error : first;
    if (c.oneText) {
      EXPECT_EQ(error, first);
    }
  }
  if (c.wakesToError) {
    EXPECT_NE(outcomes[c.victim].text.find("rejoined too late"), std::string::npos) << outcomes[c.victim].text;
  }
}

// Where the ranks of the cases with calls are when one of them fails.
std::unique_ptr<Communicator> openAndWarmUp(std::string_view call, const TransportOptions& options) {
  std::unique_ptr<Communicator> world = openWorld(options);
  for (int64_t step = 0; step < 7; ++step) {
    world->setStep(step, "warming up");
    world->barrier(world->world());
  }
  world->setStep(7, fmt::format("{} of T3", call));
  return world;
}

// The call that is to fail, and what the rank has left to do after it.
std::string survive(Communicator& world, const std::function<void()>& call, const std::vector<int64_t>& survivors) {
  std::string error = "no error";
  try {
    call();
    for (;;) {  // a victim that wakes up may find all there that it needs, once or twice
      world.barrier(world.world());
    }
  } catch (const DeviceError& e) {
    error = e.what();
  }
  const Communicator::Survivors s = world.shrink();
  const std::string wrong = checkSurvivors(*s.world, s.oldRanks, survivors);
  s.world->close();
  return report(error, wrong);
}

// One rank of a case in which the victim fails instead of making a call.
std::string missACall(int64_t rank, int64_t victim, Way way, const FailureCall& call,
                      const std::vector<int64_t>& survivors, const SharedCounters& ready,
                      const TransportOptions& options) {
  const std::unique_ptr<Communicator> world = openAndWarmUp(call.name, options);
  std::vector<float> in(kCount * 4, 1);
  std::vector<float> out(kCount * 4);
  return survive(
      *world,
      [&] {
        if (rank == victim) {
          ready.await(0, std::ssize(survivors));  // else somebody may not have left the last barrier yet
          fail(way);
        }
        ready.add(0);
        call.make(*world, in, out);
      },
      survivors);
}

// One rank of a case in which the victim fails in the midst of a call: it has come to it, and the others come when it has failed.
std::string breakACall(int64_t rank, int64_t victim, Way way, const FailureCall& call,
                       const std::vector<int64_t>& survivors, const SharedCounters& ready,
                       const TransportOptions& options) {
  const std::unique_ptr<Communicator> world = openAndWarmUp(call.name, options);
  std::vector<float> in(kCount * 4, 1);
  std::vector<float> out(kCount * 4);
  if (rank == victim) {
    std::thread([&] {
      ready.await(0, std::ssize(survivors));
      std::this_thread::sleep_for(100ms);
      ready.add(1, getpid());
      fail(way);
    }).detach();
  }
  return survive(
      *world,
      [&] {
        if (rank != victim) {
          ready.add(0);
          ready.await(1, 1);
          awaitStandstill(ready.value(1));
        }
        call.make(*world, in, out);
      },
      survivors);
}

// What the texts of all survivors say of the victim's last call.
void expectNamed(FailureCase& c, const FailureCall& call, Way way, const TransportOptions& options) {
  c.phrases = {fmt::format("[rank {}/{}] at step 7 ({} of T3)", c.victim, c.ranks, call.name)};
  if (options
          .messagesOnly) {  // a rank does not know where its peers are; without rank 0 nobody decides whose text it is
    c.phrases = {"[network]", fmt::format("[rank {}/{}]", c.victim, c.ranks),
                 fmt::format("at step 7 ({} of T3)", call.name)};
    c.oneText = c.victim != 0;
  } else if (way == Way::Stop) {
    c.phrases.emplace_back("without a heartbeat");
  }
  if (way == Way::Stop) {
    c.phrases.emplace_back(fmt::format("deadline of {} ms expired", options.deadline.count()));
  }
  c.heardOf = way != Way::Stop;
  c.stops = way == Way::Stop;
  c.waits = way == Way::Stop;
  c.wakesToError = way == Way::Stop;
}

}  // namespace

std::string_view name(Way way) {
  constexpr std::string_view kNames[] = {"throws", "exits", "is killed", "is stopped"};
  return kNames[static_cast<size_t>(way)];
}

TransportOptions withDeadlineFor(Way way, TransportOptions options) {
  options.deadline = way == Way::Stop ? kSilenceDeadline : kFailureDeadline;
  return options;
}

void fail(Way way) {
  DrivenClock::leaveThis();
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

std::span<const FailureCall> failureCalls() { return kCalls; }

std::vector<int64_t> FailureCase::survivors() const {
  std::vector<int64_t> all;
  for (int64_t r = 0; r < ranks; ++r) {
    if (r != victim && r != alsoDies) {
      all.push_back(r);
    }
  }
  return all;
}

std::string checkSurvivors(Communicator& comm, const std::vector<int64_t>& oldRanks,
                           const std::vector<int64_t>& expected) {
  if (oldRanks != expected || comm.size() != std::ssize(expected)) {
    return fmt::format("{} survivors of {}", oldRanks.size(), expected.size());
  }
  const int64_t old = oldRanks[comm.rank()];
  float sum = 0;
  for (int64_t r : oldRanks) {
    sum += static_cast<float>(r + 1);
  }
  for (int64_t count : {1, 1000, 100'000}) {
    std::vector<float> in(count, static_cast<float>(old + 1));
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

std::string report(std::string_view error, const std::string& wrong) {
  DrivenClock::leaveThis();  // only its destructors are left, which may wait for threads of their own
  return fmt::format("{}\n{}", error, wrong.empty() ? "survived" : wrong);
}

std::deque<FailureCase> missedCalls(const TransportOptions& given) {
  std::deque<FailureCase> cases;
  for (Way way : kWays) {
    const TransportOptions options = withDeadlineFor(way, given);
    for (const FailureCall& call : kCalls) {
      for (int64_t ranks : {2, 4}) {
        for (int64_t victim : {int64_t{0}, ranks - 1}) {
          FailureCase c{.title = fmt::format("rank {} of {} {} in {}", victim, ranks, name(way), call.name),
                        .ranks = ranks,
                        .victim = victim};
          expectNamed(c, call, way, options);
          c.body = [=, survivors = c.survivors(), &call, ready = std::make_shared<SharedCounters>(1)](int64_t rank) {
            return missACall(rank, victim, way, call, survivors, *ready, options);
          };
          cases.push_back(std::move(c));
        }
      }
    }
  }
  return cases;
}

std::deque<FailureCase> brokenCalls(const TransportOptions& given) {
  std::deque<FailureCase> cases;
  for (Way way : {Way::Stop, Way::Exit, Way::Kill}) {
    const TransportOptions options = withDeadlineFor(way, given);
    for (const FailureCall& call : kCalls) {
      for (int64_t ranks : {2, 4}) {
        const int64_t victim = ranks == 2 ? 0 : ranks - 1;
        FailureCase c{.title = fmt::format("rank {} of {} {} inside of {}", victim, ranks, name(way), call.name),
                      .ranks = ranks,
                      .victim = victim};
        expectNamed(c, call, way, options);
        if (!options
                 .messagesOnly) {  // there the others may have got all that they need of it, and miss it in their next call
          c.phrases.push_back(call.name == "sends and receives" ? "in a group of" : fmt::format(" in {}", call.name));
        }
        c.body = [=, survivors = c.survivors(), &call, ready = std::make_shared<SharedCounters>(2)](int64_t rank) {
          return breakACall(rank, victim, way, call, survivors, *ready, options);
        };
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

// What the ranks do when the world cannot be opened.
std::string surviveOpening(const std::function<void()>& opens, const std::vector<int64_t>& survivors,
                           TransportOptions options) {
  std::string error = "no error";
  try {
    opens();
  } catch (const DeviceError& e) {
    error = e.what();
  }
  options.deadline = kSilenceDeadline;  // so long the survivors wait for the missing rank
  const Communicator::Survivors s = openSurvivors(options);
  const std::string wrong = checkSurvivors(*s.world, s.oldRanks, survivors);
  s.world->close();
  return report(error, wrong);
}

FailureCase openingCase(std::string title, int64_t ranks, int64_t victim) {
  return {.title = std::move(title),
          .ranks = ranks,
          .victim = victim,
          .phrases = {fmt::format("[rank {}/{}]", victim, ranks), "the world"},
          .body = {},
          .oneText = victim != 0};
}

std::deque<FailureCase> missedOpenings(TransportOptions options) {
  options.deadline = kSilenceDeadline;  // nobody knows of a rank that has not come yet
  std::deque<FailureCase> cases;
  for (Way way : kWays) {
    for (int64_t ranks : {2, 4}) {
      for (int64_t victim : {int64_t{0}, ranks - 1}) {
        FailureCase c = openingCase(fmt::format("rank {} of {} {} before it opens its world", victim, ranks, name(way)),
                                    ranks, victim);
        c.stops = way == Way::Stop;
        c.waits = true;
        c.body = [=, survivors = c.survivors()](int64_t rank) {
          if (rank == victim) {
            fail(way);
          }
          return surviveOpening([&] { static_cast<void>(openWorld(options)); }, survivors, options);
        };
        cases.push_back(std::move(c));
      }
    }
  }
  return cases;
}

void runCases(std::deque<FailureCase> waiting, size_t atOnce) {
  struct Running {
    FailureCase what;
    std::unique_ptr<DrivenClock> clock;
    RankProcesses processes;
    bool woken = false;

    explicit Running(FailureCase c)
        : what(std::move(c)),
          clock(what.waits ? std::make_unique<DrivenClock>(what.ranks) : nullptr),
          processes(static_cast<int>(what.ranks), [this](int rank) {
            if (clock != nullptr) {
              clock->drive(rank);
            }
            return what.body(rank);
          }) {}
  };
  std::vector<std::unique_ptr<Running>> running;
  auto hasEnded = [](const std::unique_ptr<Running>& r) {
    for (int64_t rank = 0; r->clock != nullptr && rank < r->what.ranks; ++rank) {
      if (r->processes.hasEnded(rank)) {
        r->clock->leave(rank);
      }
    }
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
    const bool oneIsYoung = !running.empty() && running.back()->processes.age() < kApart;
    if (!waiting.empty() && running.size() < atOnce && !oneIsYoung) {
      running.push_back(std::make_unique<Running>(std::move(waiting.front())));
      waiting.pop_front();
    }
    std::erase_if(running, hasEnded);
    std::this_thread::sleep_for(2ms);
  }
}

}  // namespace meshfuse
