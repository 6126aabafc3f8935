// Ranks that were started differently: told apart before anything runs, by a UserError that names them; what may differ does not disturb.
#include <gtest/gtest.h>

#include "exec/compile.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

constexpr int kRanks = 4;
constexpr int kOdd = 2;  // the rank that differs

using Errors = std::vector<std::string>;

// What `body` throws on each rank.
Errors errorsOfRanks(const std::function<void(Communicator&)>& body) {
  Errors errors(kRanks);
  (void)errorOf([&] {
    runLoopback(kRanks, [&](Communicator& comm) { errors[comm.rank()] = errorOf([&] { body(comm); }); },
                {.deadline = std::chrono::milliseconds(60'000)});
  });
  return errors;
}

// All ranks are told the same, which names the odd one.
void expectUserError(const Errors& errors, const std::vector<std::string>& phrases) {
  for (const std::string& e : errors) {
    EXPECT_EQ(e, errors[0]);
    EXPECT_TRUE(e.starts_with("UserError:")) << e;
    EXPECT_NE(e.find("ranks [2]"), std::string::npos) << e;
    for (const std::string& phrase : phrases) {
      EXPECT_NE(e.find(phrase), std::string::npos) << e;
    }
  }
}

using Build = std::function<void(Fusion&, bool odd)>;

std::unique_ptr<Fusion> made(const Build& build, bool odd) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  build(*fusion, odd);
  return fusion;
}

TensorView* rows(Fusion& f, DataType type = DataType::Float) {
  TensorView* x = makeContigTensor(2, type);
  f.addInput(x);
  x->setDeviceMesh(DeviceMesh::createForNumDevices(kRanks));
  x->outer_split(0, kRanks);
  x->axis(0)->parallelize(ParallelType::DIDx);
  return x;
}

void sumOfRows(Fusion& f, bool /*odd*/) { f.addOutput(sum(rows(f), {0})); }

Tensor part(int64_t count, DataType type = DataType::Float) { return Tensor::full({count, 3}, type, 1); }

// The program of the odd rank is another one; after the refusal, equal programs run on the same ranks.
void expectProgramRefused(const Build& build, DataType oddType, const std::vector<std::string>& phrases) {
  Errors refusals(kRanks);
  EXPECT_EQ(errorsOfRanks([&](Communicator& comm) {
              const bool odd = comm.rank() == kOdd;
              refusals[comm.rank()] = errorOf([&] {
                FusionExecutorCache cache(made(build, odd), {.communicator = &comm});
                (void)cache.runFusionWithInputs({part(2, odd ? oddType : DataType::Float)});
              });
              FusionExecutorCache same(made(sumOfRows, false), {.communicator = &comm});
              EXPECT_EQ(same.runFusionWithInputs({part(2)})[0].at({0}), 2 * kRanks);
            }),
            Errors(kRanks));
  expectUserError(refusals, phrases);
}

TEST(Disagreement, OnAShape) {
  expectUserError(errorsOfRanks([](Communicator& comm) {
                    FusionExecutorCache cache(made(sumOfRows, false), {.communicator = &comm});
                    (void)cache.runFusionWithInputs({part(comm.rank() == kOdd ? 3 : 2)});
                  }),
                  {"differ in size"});
  expectProgramRefused(
      [](Fusion& f, bool odd) {
        f.addOutput(sum(expand(broadcast(rows(f), {false, false, true}), {-1, -1, odd ? 5 : 4}), {0}));
      },
      DataType::Float, {"4", "5"});
}

TEST(Disagreement, OnAType) {
  expectProgramRefused(
      [](Fusion& f, bool odd) { f.addOutput(sum(rows(f, odd ? DataType::BFloat16 : DataType::Float), {0})); },
      DataType::BFloat16, {"Float", "BFloat16"});
}

TEST(Disagreement, OnHowRedistributionsArePlanned) {
  expectProgramRefused(
      [](Fusion& f, bool odd) {
        sumOfRows(f, odd);
        f.setPlanner({.forbid = odd ? std::vector<std::string>{"permute"} : std::vector<std::string>{}});
      },
      DataType::Float, {"forbid: permute"});
  const Errors errors = errorsOfRanks([](Communicator& comm) {
    PassSettings passes;
    passes.planner = PlannerSettings{.betaBetween = comm.rank() == kOdd ? 3.0 : 2.0};
    FusionExecutorCache cache(made(sumOfRows, false), {.communicator = &comm, .passes = passes});
    (void)cache.runFusionWithInputs({part(2)});
  });
  expectUserError(errors, {"between: 3", "between: 2"});
}

TEST(Disagreement, OnTheOrderOfOps) {
  expectProgramRefused(
      [](Fusion& f, bool odd) {
        TensorView* x = rows(f);
        TensorView* first = odd ? max(x, {0}) : sum(x, {0});
        TensorView* second = odd ? sum(x, {0}) : max(x, {0});
        f.addOutput(odd ? second : first);
        f.addOutput(odd ? first : second);
      },
      DataType::Float, {"sum", "max"});
}

TEST(Disagreement, OnASharding) {
  expectProgramRefused(
      [](Fusion& f, bool odd) {
        TensorView* y = sum(rows(f), {0});
        f.addOutput(y);
        y->setDeviceMesh(DeviceMesh::createForNumDevices(kRanks));
        if (odd) {
          y->outer_split(1, kRanks);
          y->axis(1)->parallelize(ParallelType::DIDx);
        }
      },
      DataType::Float, {"DIDx"});
}

// A device is a record of what kernels are compiled for; no kernel is needed to compare them.
Errors compiledFor(const std::function<DeviceInfo(int rank)>& device,
                   const std::function<std::string(int rank)>& version) {
  return errorsOfRanks([&](Communicator& comm) {
    const std::unique_ptr<Fusion> fusion = made(sumOfRows, false);
    const std::vector<Argument> inputs = {part(2)};
    Agreement agreement(comm, {.libraryVersion = version(comm.rank())});
    (void)compileToSegments(*fusion, inputs, agreement.call(), device(comm.rank()));
  });
}

std::string thisBuild(int /*rank*/) { return ""; }

TEST(Disagreement, OnTheModelOfTheDevice) {
  const auto gpus = [](const std::string& odd) {
    return [=](int rank) {
      DeviceInfo device = DeviceInfo::hopper();
      device.architecture = rank == kOdd ? odd : device.architecture;
      return device;
    };
  };
  const std::string usual = DeviceInfo::hopper().architecture;
  EXPECT_EQ(compiledFor(gpus(usual), thisBuild), Errors(kRanks));
  expectUserError(compiledFor(gpus("sm_80"), thisBuild), {"kernels for " + usual, "kernels for sm_80", "one model"});
  expectUserError(compiledFor([](int rank) { return rank == kOdd ? DeviceInfo::hopper() : DeviceInfo(); }, thisBuild),
                  {"kernels for a CPU", "kernels for " + usual});
}

TEST(Disagreement, OnTheVersionOfTheLibrary) {
  const auto cpu = [](int) { return DeviceInfo(); };
  expectUserError(compiledFor(cpu, [](int rank) { return rank == kOdd ? "0.0.9" : ""; }),
                  {"meshfuse 0.0.9", "one build of the library"});
}

// Each rank of a replicated product must get the same bits.
TEST(Disagreement, OnTheLibraryOfMatrixProducts) {
  const auto gpus = [](const std::string& odd) {
    return [=](int rank) {
      DeviceInfo device = DeviceInfo::hopper();
      device.library = rank == kOdd ? odd : "products 1";
      return device;
    };
  };
  EXPECT_EQ(compiledFor(gpus("products 1"), thisBuild), Errors(kRanks));
  expectUserError(compiledFor(gpus("products 2"), thisBuild), {"matrix products by products 1", "products 2"});
  expectUserError(compiledFor(gpus(""), thisBuild), {"matrix products by products 1", "matrix products by kernels"});
}

// Processors of other kinds may run together: what they compute in common is agreed on, tiles are not.
TEST(Disagreement, OnCachesOfTheProcessorIsNone) {
  EXPECT_EQ(compiledFor(
                [](int rank) {
                  DeviceInfo device;
                  device.l2Bytes <<= rank;
                  return device;
                },
                thisBuild),
            Errors(kRanks));
}

// How many plans are kept decides when ranks meet.
TEST(Disagreement, OnThePlansThatAreKept) {
  expectUserError(errorsOfRanks([](Communicator& comm) {
                    FusionExecutorCache cache(made(sumOfRows, false),
                                              {.communicator = &comm, .maxPlans = comm.rank() == kOdd ? 1U : 64U});
                    (void)cache.runFusionWithInputs({part(2)});
                  }),
                  {"64 plans kept", "1 plans kept"});
}

// Whether plans are shared between sizes decides what a later call plans.
TEST(Disagreement, OnPlansThatAreShared) {
  expectUserError(errorsOfRanks([](Communicator& comm) {
                    FusionExecutorCache cache(made(sumOfRows, false),
                                              {.communicator = &comm, .sharePlans = comm.rank() != kOdd});
                    (void)cache.runFusionWithInputs({part(2)});
                  }),
                  {"64 plans kept, shared between sizes", "64 plans kept, one for each size"});
}

// One rank verifies, and one has more threads.
TEST(Disagreement, OnVerificationIsNone) {
  EXPECT_EQ(errorsOfRanks([](Communicator& comm) {
              const bool odd = comm.rank() == kOdd;
              FusionExecutorCache cache(
                  made(sumOfRows, false),
                  {.communicator = &comm, .threads = odd ? 2 : 1, .verify = odd ? Verify::Always : Verify::Off});
              for (int call = 0; call < 3; call++) {
                EXPECT_EQ(cache.runFusionWithInputs({part(call + 1)})[0].at({0}), kRanks * (call + 1));
              }
            }),
            Errors(kRanks));
}

// A plan that only one rank has at hand: kernels of other strides compiled before, and plans forgotten.
TEST(Disagreement, OnPlansAtHandIsNone) {
  EXPECT_EQ(errorsOfRanks([](Communicator& comm) {
              FusionExecutorCache cache(made(sumOfRows, false), {.communicator = &comm, .maxPlans = 2});
              const bool odd = comm.rank() == kOdd;
              Tensor wide = Tensor::full({4, 8}, DataType::Float, 1);
              for (int64_t count : {2, 3, 2, 4, 2, 3}) {
                // unaligned on the odd rank every other time, so that it compiles more often
                Tensor x = odd && count % 2 == 0 ? wide.slice(0, 0, count).slice(1, 1, 4) : part(count);
                if (!x.isContiguous()) {
                  x = wide.asStrided({count, 3}, {3, 1}, 1);
                }
                EXPECT_EQ(cache.runFusionWithInputs({x})[0].at({0}), static_cast<double>(kRanks * count));
              }
            }),
            Errors(kRanks));
}

// A shape that all but one know: the one that does not comes to compare plans, the others to the all-reduce, and all hear of both.
TEST(Disagreement, OnAKnownShapeIsNoticedByTheCollective) {
  const Errors errors = errorsOfRanks([](Communicator& comm) {
    FusionExecutorCache cache(made(sumOfRows, false), {.communicator = &comm});
    (void)cache.runFusionWithInputs({part(2)});
    (void)cache.runFusionWithInputs({part(comm.rank() == kOdd ? 5 : 2)});
  });
  for (const std::string& e : errors) {
    EXPECT_EQ(e, errors[0]);
    EXPECT_TRUE(e.starts_with("UserError: [run] ranks ")) << e;
    EXPECT_NE(e.find("Float [2, 3] of a global [8, 3] on rank "), std::string::npos) << e;
    EXPECT_NE(e.find("Float [5, 3] of a global [20, 3] on rank 2"), std::string::npos) << e;
    EXPECT_NE(e.find("rank 2 compiles a plan"), std::string::npos) << e;
    EXPECT_NE(e.find("in all-reduce(sum) of 3 Float in team {0, 1, 2, 3}"), std::string::npos) << e;
    EXPECT_NE(e.find("at step 1 (all-reduce T1[3])"), std::string::npos) << e;
  }
}

}  // namespace

}  // namespace meshfuse
