// What a trace says of calls, against the plan, the counters and the clock.
#include "exec/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "exec/fusion_executor_cache.h"
#include "host/executor.h"
#include "host/program.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {
namespace {

// Column sums of what is cut over rows: a kernel and an all-reduce.
std::unique_ptr<Fusion> columnSums(int ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigConcreteTensor({ranks * 4, 64});
  fusion->addInput(x);
  TensorView* y = sum(add(x, 1.0), {0});
  fusion->addOutput(y);
  if (ranks > 1) {
    const DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
    x->setDeviceMesh(mesh);
    x->outer_split(0, ranks)->axis(0)->parallelize(ParallelType::DIDx);
    y->setDeviceMesh(mesh);
  }
  return fusion;
}

std::vector<TraceSpan> ofRow(const std::vector<TraceSpan>& spans, TraceRow row) {
  std::vector<TraceSpan> result;
  std::ranges::copy_if(spans, std::back_inserter(result), [&](const TraceSpan& s) { return s.row == row; });
  return result;
}

void expectNested(const std::vector<TraceSpan>& spans) {
  std::map<std::pair<int, TraceRow>, std::vector<TraceSpan>> rows;
  for (const TraceSpan& s : spans) {
    EXPECT_LE(s.begin, s.end);
    rows[{s.lane, s.row}].push_back(s);
    if (s.row == TraceRow::Calls) {
      continue;
    }
    EXPECT_TRUE(std::ranges::any_of(spans,
                                    [&](const TraceSpan& c) {
                                      return c.row == TraceRow::Calls && c.lane == s.lane && c.call == s.call &&
                                             c.begin <= s.begin && s.end <= c.end;
                                    }))
        << s.name << " is outside its call";
  }
  for (auto& [row, own] : rows) {
    std::ranges::sort(own, {}, &TraceSpan::begin);
    for (size_t k = 1; k < own.size(); k++) {
      EXPECT_LE(own[k - 1].end, own[k].begin) << own[k - 1].name << " and " << own[k].name << " overlap";
    }
  }
}

TEST(Trace, SpansAreTheStepsAndTheCounters) {
  std::array<std::string, 4> events;
  std::atomic<int> came = 0;
  runLoopback(4, [&](Communicator& comm) {
    Trace trace(comm.rank());
    FusionExecutorCache cache(columnSums(4), {.communicator = &comm, .trace = &trace});
    const Tensor x = Tensor::zeros({4, 64}, DataType::Float);
    constexpr int kCalls = 5;
    comm.resetCounters();
    for (int k = 0; k < kCalls; k++) {
      came += k == 2 ? 1 : 0;
      if (comm.rank() == 3 && k == 2) {
        while (came < 4) {
          std::this_thread::yield();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the others wait for this rank
      }
      cache.runFusionWithInputs({x});
    }
    expectNested(trace.spans());
    EXPECT_EQ(ofRow(trace.spans(), TraceRow::Calls).size(), kCalls);
    const std::vector<TraceSpan> collectives = ofRow(trace.spans(), TraceRow::Collectives);
    const std::vector<TraceSpan> kernels = ofRow(trace.spans(), TraceRow::Kernels);
    EXPECT_EQ(collectives.size() + kernels.size(), kCalls * cache.hostProgram()->steps.size());
    int64_t bytes = 0;
    for (const TraceSpan& s : collectives) {
      bytes += s.bytes;
      EXPECT_EQ(s.name, cache.hostProgram()->steps[s.step].name);
    }
    const TransferCounters::Entry& counted = comm.counters()[Collective::AllReduce];
    EXPECT_EQ(std::ssize(collectives), counted.calls);
    EXPECT_EQ(bytes, counted.bytesReceived);

    const std::vector<TraceSpan> waits = ofRow(trace.spans(), TraceRow::Waits);
    for (const TraceSpan& w : waits) {
      const auto during = std::ranges::find_if(
          collectives, [&](const TraceSpan& c) { return c.call == w.call && c.begin <= w.begin && w.end <= c.end; });
      EXPECT_EQ(w.name, during == collectives.end() ? "wait" : "wait in " + during->name);
      // Collectives on a GPU have the times of their stream: the host may wait for its peers before one begins.
      EXPECT_TRUE(during != collectives.end() || defaultDevice().kind == DeviceId::Kind::Cuda)
          << w.name << " is in no collective";
    }
    if (comm.rank() != 3) {
      const auto late =
          std::ranges::find_if(waits, [](const TraceSpan& w) { return w.call == 3 && w.end - w.begin > 10'000'000; });
      EXPECT_NE(late, waits.end()) << "rank " << comm.rank() << " did not wait for rank 3";
    }
    events[comm.rank()] = trace.events(trace.begin());
  });
  const nlohmann::json j = nlohmann::json::parse(chromeTrace(events));
  std::map<int, std::map<std::string, int>> rows;
  for (const auto& e : j["traceEvents"]) {
    if (e["ph"] == "X") {
      EXPECT_GE(e["ts"].get<double>(), 0);
      EXPECT_GE(e["dur"].get<double>(), 0);
      rows[e["pid"]][e["cat"]]++;
    } else {
      EXPECT_EQ(e["ph"], "M");
    }
  }
  ASSERT_EQ(rows.size(), 4u);
  for (auto& [rank, count] : rows) {
    EXPECT_EQ(count["calls"], 5) << rank;
    EXPECT_EQ(count["collectives"], 5) << rank;
    EXPECT_GT(count["kernels"], 0) << rank;
  }
}

TEST(Trace, CallsOfSeveralThreadsHaveLanesOfTheirOwn) {
  Trace trace(0);
  FusionExecutorCache cache(columnSums(1), {.trace = &trace});
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; t++) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; k++) {
        cache.runFusionWithInputs({Tensor::zeros({4, 64}, DataType::Float)});
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  expectNested(trace.spans());
  EXPECT_EQ(ofRow(trace.spans(), TraceRow::Calls).size(), 60u);
}

TEST(Trace, NamesAreEscaped) {
  Trace trace(0);
  HostProgram program;
  program.steps.push_back({.name = "a \"b\" \\ \n c"});
  {
    TracedCall call(trace, program);
    call.records().push_back({.step = program.steps.data()});
  }
  const nlohmann::json j = nlohmann::json::parse(chromeTrace(std::vector{trace.events(0)}));
  EXPECT_EQ(j["traceEvents"].back()["name"], "a \"b\" \\ \n c");
}

// On a GPU the host waits at a time of its own, and kernels run then.
TEST(Trace, AWaitHasTheNameOfACollectiveOrOfNoStep) {
  const TracedCall::Clock::time_point zero = TracedCall::Clock::now();
  const auto at = [&](int64_t ms) { return zero + std::chrono::milliseconds(ms); };
  Trace trace(0);
  HostProgram program;
  program.steps.push_back({.kind = HostStepKind::Launch, .name = "kernel"});
  program.steps.push_back({.kind = HostStepKind::Communicate, .name = "all-reduce"});
  {
    TracedCall call(trace, program);
    call.records().push_back({.step = &program.steps[0], .begin = at(0), .end = at(9)});
    call.records().push_back({.step = &program.steps[1], .begin = at(1), .end = at(4)});
    call.waited(at(2), at(3));
    call.waited(at(3), at(5));
  }
  const std::vector<TraceSpan> waits = ofRow(trace.spans(), TraceRow::Waits);
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].name, "wait in all-reduce");
  EXPECT_EQ(waits[0].step, 1);
  EXPECT_EQ(waits[1].name, "wait");
  EXPECT_EQ(waits[1].step, -1);
}

TEST(Trace, AFailedCallIsTraced) {
  runLoopback(2, [](Communicator& comm) {
    Trace trace(comm.rank());
    FusionExecutorCache cache(columnSums(2), {.communicator = &comm, .trace = &trace});
    const std::vector<Argument> x{Tensor::zeros({4, 64}, DataType::Float)};
    cache.runFusionWithInputs(x);
    comm.barrier(comm.world());
    if (comm.rank() == 0) {
      comm.abort("for a test");
    }
    EXPECT_ANY_THROW(cache.runFusionWithInputs(x));
    const std::vector<TraceSpan> calls = ofRow(trace.spans(), TraceRow::Calls);
    ASSERT_EQ(calls.size(), 2u);
    const std::vector<TraceSpan> kernels = ofRow(trace.spans(), TraceRow::Kernels);
    EXPECT_TRUE(std::ranges::any_of(kernels, [](const TraceSpan& s) { return s.call == 2; }));
  });
}

Trace* traceAtExit = nullptr;

void recordACall(Trace& trace) {
  const HostProgram program;
  const TracedCall call(trace, program);
}

// Functions that run at the end of the process, after the trace has been written, still make calls.
TEST(Trace, OfTheEnvironmentLivesAsLongAsTheProcess) {
  const std::string style = testing::FLAGS_gtest_death_test_style;
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // the threads of earlier tests do not exist in a fork
  // The child runs this test from its beginning, and shares the file.
  setenv("MESHFUSE_TEST_FILE", fmt::format("{}trace_at_exit.{}", testing::TempDir(), getpid()).c_str(), 0);
  const std::string path = std::getenv("MESHFUSE_TEST_FILE");
  EXPECT_EXIT(
      {
        setenv("MESHFUSE_TRACE", (path + ".json").c_str(), 1);
        std::atexit([] { recordACall(*traceAtExit); });
        traceAtExit = traceOfEnvironment(7);
        recordACall(*traceAtExit);
        std::exit(0);
      },
      testing::ExitedWithCode(0), "");
  testing::FLAGS_gtest_death_test_style = style;
  unsetenv("MESHFUSE_TEST_FILE");
  std::ifstream file(path + ".rank7.json");
  const nlohmann::json j = nlohmann::json::parse(file);
  EXPECT_EQ(std::ranges::count_if(j["traceEvents"], [](const auto& e) { return e["ph"] == "X"; }), 1);
}

}  // namespace
}  // namespace meshfuse
