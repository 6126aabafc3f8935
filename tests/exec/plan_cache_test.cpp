// Plans: found, made, forgotten; by one thread and by several.
#include <gtest/gtest.h>

#include <thread>

#include "device/open.h"
#include "exec/compile.h"
#include "exec/plan_cache.h"
#include "host/executor.h"
#include "host/program.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"

namespace meshfuse {

namespace {

std::unique_ptr<FusionExecutorCache> incrementCache(ExecutorOptions options = {}) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeSymbolicTensor(2);
  Val* s = IrBuilder::create<Val>(DataType::Double);
  fusion->addInput(x);
  fusion->addInput(s);
  fusion->addOutput(add(x, s));
  return std::make_unique<FusionExecutorCache>(std::move(fusion), options);
}

TEST(PlanCache, SaysWhatDiffered) {
  auto cache = incrementCache();
  Tensor base = random({100, 100});
  auto reasonOf = [&](const Tensor& x, const Argument& s) {
    cache->runFusionWithInputs({x, s});
    return cache->missReason();
  };
  EXPECT_EQ(reasonOf(base, 1.0), "the first call");
  EXPECT_EQ(reasonOf(base, 2.0), "");
  EXPECT_EQ(reasonOf(base.slice(0, 0, 50), 1.0), "input 0 has sizes [50, 100] instead of [100, 100]");
  EXPECT_EQ(reasonOf(base.transpose(0, 1).slice(0, 0, 50), 1.0), "input 0 has strides [1, 100] instead of [100, 1]");
  EXPECT_EQ(reasonOf(base.transpose(0, 1).slice(0, 1, 51), 1.0), "input 0 has alignment 4 instead of 64");
  EXPECT_EQ(reasonOf(base.transpose(0, 1).slice(0, 1, 51), int64_t{1}), "input 1 is an argument of another kind");
  EXPECT_EQ(reasonOf(base, 1.0), "");
  EXPECT_EQ(cache->plansCompiled(), 5);
}

TEST(PlanCache, ForgetsTheLeastRecentlyUsed) {
  auto cache = incrementCache({.maxPlans = 3, .sharePlans = false});
  auto compilesFor = [&](int64_t n) {
    int64_t before = cache->plansCompiled();
    cache->runFusionWithInputs({random({n, 2}), 1.0});
    return cache->plansCompiled() - before;
  };
  for (int64_t n : {1, 2, 3}) {
    EXPECT_EQ(compilesFor(n), 1);
  }
  EXPECT_EQ(compilesFor(1), 0);
  EXPECT_EQ(compilesFor(4), 1) << "2 goes";
  EXPECT_EQ(compilesFor(1), 0);
  EXPECT_EQ(compilesFor(3), 0);
  EXPECT_EQ(compilesFor(2), 1) << "4 goes";
  EXPECT_EQ(compilesFor(1), 0);
  EXPECT_EQ(compilesFor(3), 0);
  EXPECT_EQ(compilesFor(4), 1);
}

TEST(PlanCache, OneOrNoPlan) {
  for (size_t most : {0, 1}) {
    auto cache = incrementCache({.maxPlans = most, .sharePlans = false});
    for (int64_t n : {5, 5, 6, 5, 5}) {
      Tensor x = random({n, 3});
      EXPECT_EQ(cache->runFusionWithInputs({x, 1.0})[0].at({2, 1}), static_cast<float>(x.at({2, 1})) + 1.0f);
    }
    EXPECT_EQ(cache->plansCompiled(), 3);
  }
}

// Where a plan is at hand without a look at the others, what is said of the last call holds all the same.
TEST(PlanCache, TheLastPlanIsThatOfTheLastCall) {
  auto cache = incrementCache();
  for (int64_t n : {4, 4, 4, 7, 4, 4, 7, 7, 7, 9, 9, 9, 7, 4}) {
    int64_t before = cache->plansCompiled();
    std::vector<Argument> in = {random({n, 3}), 1.0};
    std::vector<Tensor> out = {Tensor::empty({n, 3}, DataType::Float)};
    cache->run(std::span<const Argument>(in), out);
    EXPECT_EQ(out[0].at({3, 2}), static_cast<float>(std::get<Tensor>(in[0]).at({3, 2})) + 1.0f);
    EXPECT_EQ(cache->hostProgram()->sizes().tensors[0].sizes[0], n);
    EXPECT_EQ(cache->missReason().empty(), cache->plansCompiled() == before);
  }
  const bool sharesPlans = defaultDevice() == DeviceId::cpu();
  EXPECT_EQ(cache->plansCompiled(), sharesPlans ? 2 : 3) << "4 alone, and any number or each other";
}

// Of all shapes of all classes; 6, and 16 and its multiples, have classes of their own.
TEST(PlanCache, FewShapesKeepAnArena) {
  if (defaultDevice() != DeviceId::cpu()) {
    GTEST_SKIP() << "kernels of other devices take constant sizes";
  }
  Fusion fusion;
  {
    FusionGuard guard(&fusion);
    TensorView* x = makeSymbolicTensor(2);
    fusion.addInput(x);
    TensorView* h = softmax(x, 1);
    fusion.addOutput(mul(h, broadcast(sum(h, {0}), {true, false})));
  }
  const std::unique_ptr<Communicator> self = makeSelfCommunicator();
  Agreement agreement(*self);
  const std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 1});
  PlanCache plans(fusion, *self, 64, true,
                  [&](std::span<const Argument> in, const Agreement::Call& call, const ProgramChoice& choice) {
                    return compile(fusion, in, call, device, {}, choice);
                  });
  std::vector<std::weak_ptr<Plan>> made;
  for (int64_t rows = 6; rows < 50; rows += 2) {
    const std::vector<Argument> in = {random({rows, 40})};
    const PlanCache::Use use(plans, in, agreement.call());
    EXPECT_GT(use.plan().sizes()->arenaBytes, 0);
    made.push_back(plans.last());
  }
  EXPECT_EQ(plans.compiled(), 3);
  int64_t kept = 0;
  int64_t withArena = 0;
  for (size_t i = 1; i < made.size(); i++) {  // the first plan is for constant sizes
    const std::shared_ptr<Plan> plan = made[i].lock();
    kept += plan != nullptr ? 1 : 0;
    withArena += plan != nullptr && !plan->idle.empty() ? 1 : 0;
  }
  EXPECT_EQ(kept, PlanCache::kMostShapesOfAClass + 3) << "and 16, 32, 48";
  EXPECT_EQ(withArena, PlanCache::kMostIdleShapes);
}

TEST(PlanCache, KindsOfNumbersDoNotMix) {
  auto cache = incrementCache();
  Tensor x = Tensor::full({2, 2}, DataType::Float, 0.5);
  EXPECT_EQ(cache->runFusionWithInputs({x, 2.25})[0].at({1, 1}), 2.75);
  EXPECT_EQ(cache->runFusionWithInputs({x, int64_t{2}})[0].at({1, 1}), 2.5);
  EXPECT_EQ(cache->runFusionWithInputs({x, 2.25})[0].at({0, 1}), 2.75);
}

void callFromSeveralThreads(bool sharePlans) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeSymbolicTensor(2);
    fusion->addInput(x);
    TensorView* h = softmax(mul(x, 2.0), 1);
    fusion->addOutput(h);
    fusion->addOutput(sum(matmul(h, transpose(x)), {0}));
  }
  FusionExecutorCache cache(std::move(fusion), {.threads = 2, .maxPlans = 3, .sharePlans = sharePlans});
  (void)cache.runFusionWithInputs({random({8, 40})});
  (void)cache.runFusionWithInputs({random({9, 40})});  // from here on plans are shared
  constexpr int64_t kShapes = 5;
  std::vector<Tensor> inputs;
  std::vector<std::vector<Tensor>> expected;
  for (int64_t n = 0; n < kShapes; n++) {
    inputs.push_back(random({10 + n, 40}, static_cast<uint64_t>(n)));
    expected.push_back(cache.runFusionWithInputs({inputs.back()}));
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 60; i++) {
        size_t shape = static_cast<size_t>(((i / 4) * (t + 1) + t) % kShapes);
        std::vector<Tensor> got = cache.runFusionWithInputs({inputs[shape]});
        for (size_t o = 0; o < got.size(); o++) {
          wrong += got[o].toVector() != expected[shape][o].toVector();
        }
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  EXPECT_EQ(wrong, 0) << (sharePlans ? "plans of any size" : "plans of one shape");
  if (sharePlans && defaultDevice() == DeviceId::cpu()) {
    EXPECT_EQ(cache.plansCompiled(), 2) << "the first, and that of the class of all other shapes";
  } else {
    EXPECT_LE(cache.plansCompiled(), 2 + kShapes + 4 * 60) << "one for each call";
    EXPECT_GE(cache.plansCompiled(), 2 + kShapes);
  }
}

TEST(PlanCache, SeveralThreadsCallAtOnce) {
  callFromSeveralThreads(true);
  callFromSeveralThreads(false);
}

// Two threads call the same plan again and again, into tensors of their own, while two others have it forgotten now and then.
TEST(PlanCache, SeveralThreadsMakeTheSameWarmCall) {
  auto cache = incrementCache({.threads = 1, .maxPlans = 2});
  constexpr int kCalls = 3000;
  std::atomic<int> wrong{0};
  auto call = [&](int64_t rows, double step, std::vector<Tensor>& out) {
    std::vector<Argument> in = {Tensor::full({rows, 8}, DataType::Float, static_cast<double>(rows)), step};
    cache->run(std::span<const Argument>(in), out);
    wrong += out[0].at({rows - 1, 7}) != static_cast<double>(rows) + step;
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < (t < 2 ? kCalls : kCalls / 100); i++) {
        const int64_t rows = t < 2 ? 8 : 9 + i % 2;
        std::vector<Tensor> out = {Tensor::empty({rows, 8}, DataType::Float)};
        call(rows, t * 8192 + i, out);
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace

}  // namespace meshfuse
