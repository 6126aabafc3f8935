// Ranks that have cached plans and then call with other arguments, other programs or in another order: on every transport, all ranks get
// one UserError that describes the calls of two ranks. Transports: threads, processes of one host, messages only.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/failure_cases.h"
#include "multidevice/transport/loopback/loopback.h"
#include "multidevice/transport/processes.h"
#include "multidevice/transport/reduced_rows.h"

namespace meshfuse {
namespace {

enum class Between { Threads, Processes, Hosts };

constexpr int kOddRank = 1;  // the rank that differs

// The error of a body: its kind and text.
std::string errorOfBody(Communicator& comm, const std::function<void(Communicator&, bool odd)>& body) {
  try {
    body(comm, comm.rank() == kOddRank);
  } catch (const UserError& e) {
    return std::string("UserError: ") + e.what();
  } catch (const std::exception& e) {
    return std::string("other: ") + e.what();
  }
  return "no error";
}

class WarmAgreementTest : public testing::TestWithParam<std::tuple<Between, int>> {
 protected:
  static Between between() { return std::get<0>(GetParam()); }
  static int ranks() { return std::get<1>(GetParam()); }

  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts processes of its own; run it without a launcher";
    }
    if (const std::string why = between() == Between::Hosts ? whyNoNetwork() : ""; !why.empty()) {
      GTEST_SKIP() << why;
    }
  }

  // The text that all ranks get, with the given phrases.
  void expectOneUserError(const std::function<void(Communicator&, bool odd)>& body,
                          const std::vector<std::string>& phrases) const {
    std::vector<std::string> texts(ranks());
    if (between() == Between::Threads) {
      runLoopback(ranks(), [&](Communicator& c) { texts[c.rank()] = errorOfBody(c, body); },
                  {.deadline = kFailureDeadline});
    } else {
      texts.clear();
      for (const ProcessOutcome& o :
           runProcesses(ranks(), [&](Communicator& c) { return errorOfBody(c, body); },
                        {.deadline = kFailureDeadline, .messagesOnly = between() == Between::Hosts})) {
        EXPECT_TRUE(o.ended) << o.text;
        texts.push_back(o.text);
      }
    }
    for (const std::string& text : texts) {
      EXPECT_EQ(text, texts[0]);
      EXPECT_TRUE(text.starts_with("UserError: [")) << text;
      for (const std::string& phrase : phrases) {
        EXPECT_NE(text.find(phrase), std::string::npos) << text << "\nexpected: " << phrase;
      }
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Between, WarmAgreementTest,
                         testing::Combine(testing::Values(Between::Threads, Between::Processes, Between::Hosts),
                                          testing::Values(2, 4)),
                         [](const auto& info) {
                           const Between between = std::get<0>(info.param);
                           return fmt::format("{}{}",
                                              between == Between::Threads     ? "Threads"
                                              : between == Between::Processes ? "ProcessesOfOneHost"
                                                                              : "Hosts",
                                              std::get<1>(info.param));
                         });

using Cache = FusionExecutorCache;

TEST_P(WarmAgreementTest, AllHavePlansForTheirOwnSizes) {
  const std::string both[] = {fmt::format("[{}, 3]", 2 * ranks()), fmt::format("[{}, 3]", 4 * ranks())};
  expectOneUserError(
      [](Communicator& comm, bool odd) {
        Cache cache(reducedRows(comm.size()), {.communicator = &comm, .threads = 1});
        for (int64_t count : {2, 4, 2, 4}) {
          (void)cache.runFusionWithInputs({rows(count)});
        }
        (void)cache.runFusionWithInputs({rows(odd ? 2 : 4)});
      },
      {"input 0 (T0) is Float", "[2, 3]", "[4, 3]", both[0], both[1], "in dim 0", "on rank 1", "withGlobalShape",
       "all-reduce"});
}

TEST_P(WarmAgreementTest, OneHasNoPlanForItsSizeYet) {
  for (const bool oddIsCold : {true, false}) {
    expectOneUserError(
        [&](Communicator& comm, bool odd) {
          Cache cache(reducedRows(comm.size()), {.communicator = &comm, .threads = 1});
          (void)cache.runFusionWithInputs({rows(2)});
          (void)cache.runFusionWithInputs({rows(odd == oddIsCold ? 5 : 2)});
        },
        {"input 0 (T0) is Float", "[5, 3]", "[2, 3]", fmt::format("[{}, 3]", 5 * ranks()),
         fmt::format("[{}, 3]", 2 * ranks()), "compiles a plan", "withGlobalShape"});
  }
}

TEST_P(WarmAgreementTest, OneRefusesItsArguments) {
  expectOneUserError(
      [](Communicator& comm, bool odd) {
        Cache cache(reducedRows(comm.size()), {.communicator = &comm, .threads = 1});
        (void)cache.runFusionWithInputs({rows(2)});
        (void)cache.runFusionWithInputs({odd ? Tensor::zeros({4}, DataType::Float) : rows(2)});
      },
      {"UserError: [run] input 0 (T0", "has 2 dims, got 1 with sizes [4]", "rank 1 refuses the call"});
  expectOneUserError(
      [](Communicator& comm, bool odd) {
        Cache cache(reducedRows(comm.size()), {.communicator = &comm, .threads = 1});
        (void)cache.runFusionWithInputs({rows(2)});
        std::vector<Tensor> out = {Tensor::empty({odd ? 4 : 3}, DataType::Float)};
        cache.run(std::vector<Tensor>{rows(2)}, out);
      },
      {"UserError: [run] output 0 (T", "has type Float and sizes [3]", "rank 1 refuses the call"});
}

TEST_P(WarmAgreementTest, OneGivesAnotherType) {
  expectOneUserError(
      [](Communicator& comm, bool odd) {
        Cache cache(reducedRows(comm.size()), {.communicator = &comm, .threads = 1});
        (void)cache.runFusionWithInputs({rows(2)});
        (void)cache.runFusionWithInputs({rows(2, odd ? DataType::Double : DataType::Float)});
      },
      {"UserError: [run] input 0 (T0", "Double", "rank 1 refuses the call"});
}

TEST_P(WarmAgreementTest, OneSwapsTwoPrograms) {
  for (const ReduceOp second : {ReduceOp::Max, ReduceOp::Sum}) {
    const int64_t columns = second == ReduceOp::Sum ? 1 : 0;
    expectOneUserError(
        [&](Communicator& comm, bool odd) {
          Cache one(reducedRows(comm.size()), {.communicator = &comm, .threads = 1});
          auto fusion = reducedRows(comm.size(), second);
          if (columns != 0) {  // the same collective, of another fusion
            FusionGuard guard(fusion.get());
            fusion->addOutput(neg(fusion->outputs()[0]->asTensor()));
          }
          Cache other(std::move(fusion), {.communicator = &comm, .threads = 1});
          for (Cache* cache : {&one, &other}) {
            (void)cache->runFusionWithInputs({rows(2)});
          }
          (void)(odd ? other : one).runFusionWithInputs({rows(2)});
          (void)(odd ? one : other).runFusionWithInputs({rows(2)});
        },
        {"call different programs", "rank 1 has \"", second == ReduceOp::Max ? "op=max" : "neg(T1", "in the same order",
         "at step"});
  }
}

// One more cache of the same program on one rank only: it compiles a plan where the others run a cached one.
TEST_P(WarmAgreementTest, OneHasOtherOptions) {
  expectOneUserError(
      [](Communicator& comm, bool odd) {
        Cache cache(reducedRows(comm.size()), {.communicator = &comm, .threads = 1});
        (void)cache.runFusionWithInputs({rows(2)});
        PassSettings passes;
        passes.planner = PlannerSettings{.betaBetween = 3};
        Cache other(reducedRows(comm.size()), {.communicator = &comm, .threads = 1, .passes = passes});
        (void)(odd ? other : cache).runFusionWithInputs({rows(2)});
      },
      {"other options", "rank 1 compiles a plan", "all-reduce"});
  expectOneUserError(
      [](Communicator& comm, bool odd) {
        Cache cache(reducedRows(comm.size()), {.communicator = &comm, .threads = 1});
        (void)cache.runFusionWithInputs({rows(2)});
        Cache again(reducedRows(comm.size()), {.communicator = &comm, .threads = 1});
        (void)(odd ? again : cache).runFusionWithInputs({rows(2)});
      },
      {"same program with the same arguments", "rank 1 compiles a plan", "one executor cache"});
}

// Two programs communicate along the rows and along the columns of a mesh, and ranks 1 and 2 begin with the other one: each waits for the
// next one.
TEST_P(WarmAgreementTest, OneCommunicatesWithOthers) {
  if (ranks() != 4) {
    GTEST_SKIP() << "needs a mesh of two axes";
  }
  const auto sumOver = [](bool x) {
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    const DeviceMesh mesh = DeviceMesh::create({{"x", 2}, {"y", 2}}, {0, 1, 2, 3});
    TensorView* in = makeContigTensor(2);
    fusion->addInput(in);
    in->setDeviceMesh(mesh);
    in->outer_split(0, 2);
    in->axis(0)->parallelize(mesh.axis(x ? "x" : "y"));
    TensorView* out = sum(in, {0});
    fusion->addOutput(out);
    out->setDeviceMesh(mesh);
    return fusion;
  };
  if (between() == Between::Hosts) {
    GTEST_SKIP() << "a deadlock among hosts is found by the deadline";
  }
  expectOneUserError(
      [&](Communicator& comm, bool) {
        const bool swaps = comm.rank() == 1 || comm.rank() == 2;
        Cache one(sumOver(true), {.communicator = &comm, .threads = 1});
        Cache other(sumOver(false), {.communicator = &comm, .threads = 1});
        for (Cache* cache : {&one, &other}) {
          (void)cache->runFusionWithInputs({rows(2)});
        }
        (void)(swaps ? other : one).runFusionWithInputs({rows(2)});
      },
      {"call different programs", "in the same order"});
}

// A program that begins with messages from rank to rank, and one that begins with a collective, or with other messages of the same sizes.
TEST_P(WarmAgreementTest, OneWaitsForAMessage) {
  const auto moved = [](int64_t ranks, bool negated) {
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    TensorView* in = rowsOf(*fusion, ranks);
    std::vector<int64_t> back;
    for (int64_t r = ranks - 1; r >= 0; --r) {
      back.push_back(r);
    }
    TensorView* out = negated ? neg(in) : abs(in);
    fusion->addOutput(out);
    const DeviceMesh mesh(back);
    out->setDeviceMesh(mesh);
    out->outer_split(0, ranks);
    out->axis(0)->parallelize(ParallelType::DIDx);
    return fusion;
  };
  for (const int oddCalls : {0, 1, 2}) {
    expectOneUserError(
        [&](Communicator& comm, bool odd) {
          Cache sums(reducedRows(comm.size()), {.communicator = &comm, .threads = 1});
          Cache moves(moved(comm.size(), true), {.communicator = &comm, .threads = 1});
          Cache others(moved(comm.size(), false), {.communicator = &comm, .threads = 1});
          for (Cache* cache : {&sums, &moves, &others}) {
            (void)cache->runFusionWithInputs({rows(2)});
          }
          Cache* const order[] = {&sums, &moves, &others, &moves};
          for (const int k : {0, 1}) {
            (void)order[oddCalls + (odd ? 1 - k : k)]->runFusionWithInputs({rows(2)});
          }
          comm.barrier(comm.world());  // a rank whose messages are all right is told here
        },
        {"call different programs", "in the same order"});
  }
}

// After it the group is dead, and all ranks make a new world of themselves.
TEST_P(WarmAgreementTest, AllGoOnTogether) {
  expectOneUserError(
      [](Communicator& comm, bool odd) {
        std::string text;
        const auto call = [&](Cache& cache, int64_t count) {
          try {
            (void)cache.runFusionWithInputs({rows(count)});
          } catch (const UserError& e) {
            EXPECT_TRUE(text.empty() || text == e.what()) << e.what();
            text = e.what();
          }
        };
        Cache cache(reducedRows(comm.size()), {.communicator = &comm, .threads = 1});
        call(cache, 2);
        call(cache, odd ? 5 : 2);
        call(cache, 2);
        double sum = 0;
        {
          const Communicator::Survivors s = comm.shrink();
          Cache next(reducedRows(s.world->size()), {.communicator = s.world.get(), .threads = 1});
          sum = next.runFusionWithInputs({rows(2)})[0].at({0});
          s.world->close();
        }
        throwUserError(sum == 2 * comm.size() ? text : fmt::format("the sum of all is {}", sum));
      },
      {"input 0 (T0) is Float", "compiles a plan"});
}

}  // namespace
}  // namespace meshfuse
