// Ranks that are processes and disagree: other programs, sizes and orders are refused before anything runs, other calls fail at the first
// call that differs, and every rank's error names the ranks and the place. On each transport: of one host, and of messages only.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

#include "base/error.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/failure_cases.h"
#include "multidevice/transport/processes.h"
#include "multidevice/transport/reduced_rows.h"

namespace meshfuse {
namespace {

constexpr int64_t kRanks = 3;
constexpr int64_t kOdd = 2;  // the rank that differs

class AgreementTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts processes of its own; run it without a launcher";
    }
    if (const std::string why = GetParam() ? whyNoNetwork() : ""; !why.empty()) {
      GTEST_SKIP() << why;
    }
  }

  std::vector<std::string> textsOf(const std::function<std::string(Communicator&)>& body, int64_t killed = -1) const {
    std::vector<std::string> texts;
    for (const ProcessOutcome& o :
         runProcesses(kRanks, body, {.deadline = kFailureDeadline, .messagesOnly = GetParam()})) {
      EXPECT_EQ(o.ended, std::ssize(texts) != killed) << o.text;
      texts.push_back(o.text);
    }
    return texts;
  }
};

INSTANTIATE_TEST_SUITE_P(Between, AgreementTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Hosts" : "ProcessesOfOneHost"; });

void expectOneText(const std::vector<std::string>& texts, const std::vector<std::string>& phrases) {
  for (const std::string& text : texts) {
    EXPECT_EQ(text, texts[0]);
    for (const std::string& phrase : phrases) {
      EXPECT_NE(text.find(phrase), std::string::npos) << text << "\nexpected: " << phrase;
    }
  }
}

TEST_P(AgreementTest, OtherPlansSizesAndOrdersAreRefusedAndTheNextCallRuns) {
  const auto refusedThenRuns = [&](const std::function<void(Communicator&, bool odd)>& call) {
    return textsOf([&](Communicator& comm) {
      std::string text = "no error";
      try {
        call(comm, comm.rank() == kOdd);
      } catch (const UserError& e) {
        text = e.what();
      }
      FusionExecutorCache same(reducedRows(kRanks), {.communicator = &comm, .threads = 1});
      const bool right = same.runFusionWithInputs({rows(2)})[0].at({0}) == 2 * kRanks;
      return text + (right ? "; then it runs" : "; then it is wrong");
    });
  };
  const auto run = [](Communicator& comm, ReduceOp op, int64_t count) {
    FusionExecutorCache cache(reducedRows(kRanks, op), {.communicator = &comm, .threads = 1});
    (void)cache.runFusionWithInputs({rows(count)});
  };
  expectOneText(
      refusedThenRuns([&](Communicator& comm, bool odd) { run(comm, odd ? ReduceOp::Max : ReduceOp::Sum, 2); }),
      {"[agreement]", "ranks [2]", "max", "sum", "then it runs"});
  expectOneText(refusedThenRuns([&](Communicator& comm, bool odd) { run(comm, ReduceOp::Sum, odd ? 3 : 2); }),
                {"ranks [2]", "differ in size", "then it runs"});
  expectOneText(refusedThenRuns([&](Communicator& comm, bool odd) {
                  FusionExecutorCache sums(reducedRows(kRanks), {.communicator = &comm, .threads = 1});
                  FusionExecutorCache maxima(reducedRows(kRanks, ReduceOp::Max), {.communicator = &comm, .threads = 1});
                  (void)(odd ? maxima : sums).runFusionWithInputs({rows(2)});
                  (void)(odd ? sums : maxima).runFusionWithInputs({rows(2)});
                }),
                {"[agreement]", "ranks [2]", "max", "sum", "then it runs"});
}

// The ranks have agreed on two programs; then they run them in different orders, which shows only in their collectives.
TEST_P(AgreementTest, KnownProgramsInAnotherOrderFailAtTheFirstCollective) {
  expectOneText(textsOf([](Communicator& comm) -> std::string {
                  FusionExecutorCache sums(reducedRows(kRanks), {.communicator = &comm, .threads = 1});
                  FusionExecutorCache maxima(reducedRows(kRanks, ReduceOp::Max), {.communicator = &comm, .threads = 1});
                  for (FusionExecutorCache* cache : {&sums, &maxima}) {
                    (void)cache->runFusionWithInputs({rows(2)});
                  }
                  try {
                    (void)(comm.rank() == kOdd ? maxima : sums).runFusionWithInputs({rows(2)});
                    (void)(comm.rank() == kOdd ? sums : maxima).runFusionWithInputs({rows(2)});
                  } catch (const UserError& e) {
                    return e.what();
                  }
                  return "no error";
                }),
                {"call different programs", "rank 2 has \"", "op=max", "at step", "in all-reduce(max)"});
}

TEST_P(AgreementTest, OtherCallsAreErrorsThatSayTheStep) {
  struct Odd {
    std::function<void(Communicator&, bool odd)> call;
    std::vector<std::string> phrases;
  };
  const Odd cases[] = {
      {[&](Communicator& c, bool odd) { callAllReduce(c, c.world(), odd ? 65 : 64); },
       {"the counts differ", "64", "65"}},
      {[&](Communicator& c, bool odd) { callAllReduce(c, c.world(), odd ? 65 : 64'000); },
       {"the counts differ", "64000"}},
      {[&](Communicator& c, bool odd) {
         callAllReduce(c, c.world(), 8, DataType::Float, odd ? ReduceOp::Max : ReduceOp::Sum);
       },
       {"the operations differ", "rank 2 has max"}},
      {[&](Communicator& c, bool odd) { odd ? c.barrier(c.world()) : callAllReduce(c, c.world(), 8); },
       {"the calls differ", "rank 2 calls barrier"}},
      {[&](Communicator& c, bool odd) {
         odd ? callAllReduce(c, Team{{1, 2}}, 8) : callAllReduce(c, c.world(), 8);
       },
       {"the teams differ", "{1, 2}", "{0, 1, 2}"}},
      {[&](Communicator& c, bool odd) { odd ? static_cast<void>(c.exchange("hash")) : callAllReduce(c, c.world(), 8); },
       {"the calls differ", "rank 2 calls exchange"}}};
  for (const Odd& odd : cases) {
    std::vector<std::string> phrases = odd.phrases;
    phrases.emplace_back("at step 5 (the odd one)");
    expectOneText(textsOf([&](Communicator& comm) -> std::string {
                    comm.setStep(5, "the odd one");
                    try {
                      odd.call(comm, comm.rank() == kOdd);
                      comm.barrier(comm.world());
                    } catch (const DeviceError& e) {
                      return e.what();
                    }
                    return "no error";
                  }),
                  phrases);
  }
}

// A rank is killed between two runs of a program; the others shrink, and run it among themselves.
TEST_P(AgreementTest, TheOthersRunTheProgramWithoutAKilledRank) {
  const std::vector<std::string> texts = textsOf(
      [](Communicator& comm) {
        std::string error = "no error";
        try {
          FusionExecutorCache cache(reducedRows(kRanks), {.communicator = &comm, .threads = 1});
          for (int64_t call = 0; call < 3; ++call) {
            (void)cache.runFusionWithInputs({rows(2)});
          }
          if (comm.rank() == kOdd) {
            kill(getpid(), SIGKILL);
          }
          (void)cache.runFusionWithInputs({rows(2)});
        } catch (const DeviceError& e) {
          error = e.what();
        }
        const Communicator::Survivors s = comm.shrink();
        FusionExecutorCache cache(reducedRows(s.world->size()), {.communicator = s.world.get(), .threads = 1});
        const double sum = cache.runFusionWithInputs({rows(2)})[0].at({0});
        const std::string wrong = checkSurvivors(*s.world, s.oldRanks, {0, 1});
        s.world->close();
        return fmt::format("{}\n{} {}", error, sum, wrong);
      },
      kOdd);
  for (int64_t r : {0, 1}) {
    const std::string& text = texts[r];
    for (const std::string& phrase : {fmt::format("[rank {}/{}]", kOdd, kRanks), std::string("all-reduce"),
                                      std::string("at step"), std::string("\n4 ")}) {
      EXPECT_NE(text.find(phrase), std::string::npos) << text << "\nexpected: " << phrase;
    }
  }
}

}  // namespace
}  // namespace meshfuse
