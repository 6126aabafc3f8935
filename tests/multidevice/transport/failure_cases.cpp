#include "multidevice/transport/failure_cases.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <thread>

#include "base/error.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 100s;
constexpr size_t kAtOnce = 16;

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
    {"barrier", [](Communicator& c, auto&, auto&) { c.barrier(c.world()); }},
    {"exchange", [](Communicator& c, auto&, auto&) { static_cast<void>(c.exchange("a message")); }},
    {"sends and receives", sendAround},
    {"close", [](Communicator& c, auto&, auto&) { c.close(); }},
};

void expectSurvived(const FailureCase& c, const std::vector<ProcessOutcome>& outcomes) {
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

// One rank of a case in which the victim fails instead of making a call.
std::string missACall(int rank, int victim, Way way, const FailureCall& call, const std::vector<int>& survivors,
                      const SharedCounters& ready, const TransportOptions& options) {
  const std::unique_ptr<Communicator> world = openWorld(options);
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

}  // namespace

std::string_view name(Way way) {
  constexpr std::string_view kNames[] = {"throws", "exits", "is killed", "is stopped"};
  return kNames[static_cast<size_t>(way)];
}

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

std::span<const FailureCall> failureCalls() { return kCalls; }

std::vector<int> FailureCase::survivors() const {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) {
    if (r != victim && r != alsoDies) {
      all.push_back(r);
    }
  }
  return all;
}

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

std::string report(std::string_view error, const std::string& wrong) {
  return fmt::format("{}\n{}", error, wrong.empty() ? "survived" : wrong);
}

std::deque<FailureCase> missedCalls(const TransportOptions& options) {
  std::deque<FailureCase> cases;
  for (Way way : kWays) {
    for (const FailureCall& call : kCalls) {
      for (int ranks : {2, 4}) {
        for (int victim : {0, ranks - 1}) {
          FailureCase c{.title = fmt::format("rank {} of {} {} in {}", victim, ranks, name(way), call.name),
                        .ranks = ranks,
                        .victim = victim,
                        .phrases = {fmt::format("[rank {}/{}] at step 7 ({} of T3)", victim, ranks, call.name)},
                        .body = {},
                        .stops = way == Way::Stop,
                        .wakesToError = way == Way::Stop};
          if (options
                  .messagesOnly) {  // a rank does not know where its peers are; without rank 0 nobody decides whose text it is
            c.phrases = {"[network]", fmt::format("[rank {}/{}]", victim, ranks),
                         fmt::format("at step 7 ({} of T3)", call.name)};
            c.oneText = victim != 0;
          } else if (way == Way::Stop) {
            c.phrases.emplace_back("without a sign of life");
          }
          if (way == Way::Stop) {
            c.phrases.emplace_back(fmt::format("deadline of {} ms expired", options.deadline.count()));
          }
          c.body = [=, survivors = c.survivors(), &call, ready = std::make_shared<SharedCounters>(1)](int rank) {
            return missACall(rank, victim, way, call, survivors, *ready, options);
          };
          cases.push_back(std::move(c));
        }
      }
    }
  }
  return cases;
}

void runCases(std::deque<FailureCase> waiting) {
  struct Running {
    FailureCase what;
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

}  // namespace meshfuse
