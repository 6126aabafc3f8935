// FusionExecutorCache on one rank and on loopback ranks, against the reference interpreter.
#include "exec/fusion_executor_cache.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "host/program.h"

#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

namespace {

// Runs `build` on one rank with verification of every step and compares the outputs with the reference.
void checkRun(const std::function<void(Fusion&)>& build, const std::vector<Argument>& inputs, int64_t kernels = -1) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    build(*fusion);
  }
  std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, inputs);
  FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Always});
  for (int call = 0; call < 2; call++) {
    std::vector<Tensor> got = cache.runFusionWithInputs(inputs);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); i++) {
      EXPECT_EQ(compare(got[i], expected[i]).value_or(""), "") << "output " << i;
    }
  }
  EXPECT_EQ(cache.plansCompiled(), 1);
  if (kernels >= 0) {
    EXPECT_EQ(std::ssize(cache.profile(inputs).steps), kernels);
  }
}

TEST(ExecutorCache, Pointwise) {
  checkRun(
      [](Fusion& f) {
        TensorView* x = makeSymbolicTensor(2);
        TensorView* b = makeSymbolicTensor(1);
        f.addInput(x);
        f.addInput(b);
        f.addOutput(tanh_gelu(add(x, b)));
      },
      {random({33, 70}, 1), random({70}, 2)}, 1);
}

TEST(ExecutorCache, HasTheThreadsOfTheOptionsElseOfTheEnvironmentElseOfItsCores) {
  if (defaultDevice() != DeviceId::cpu()) {
    GTEST_SKIP() << "counts the threads of the CPU's kernels";
  }
  const auto threads = [] {
    constexpr uint64_t kExiting = 4;  // PF_EXITING: a thread that was joined is listed for a moment longer
    int64_t count = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream file(task.path() / "stat");
      std::string text;
      std::getline(file, text);
      char state = 'X';
      int64_t parent = 0, group = 0, session = 0, terminal = 0, foreground = 0;
      uint64_t flags = kExiting;
      std::istringstream fields(text.substr(text.rfind(')') + 1));
      fields >> state >> parent >> group >> session >> terminal >> foreground >> flags;
      count += fields && (flags & kExiting) == 0 ? 1 : 0;
    }
    return count;
  };
  const auto added = [&](int64_t asked, Communicator* world = nullptr) {
    const int64_t before = threads();
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      fusion->addOutput(neg(input(*fusion, {4})));
    }
    FusionExecutorCache cache(std::move(fusion), {.communicator = world, .threads = asked});
    (void)cache.runFusionWithInputs({random({4})});
    return threads() - before;
  };
  (void)added(1);  // starts threads of the compiler
  setenv("MESHFUSE_THREADS", "5", 1);
  EXPECT_EQ(added(1), 0);
  EXPECT_EQ(added(3), 2);
  EXPECT_EQ(added(0), 4);
  setenv("MESHFUSE_THREADS", "many", 1);
  EXPECT_THROW(added(0), UserError);
  unsetenv("MESHFUSE_THREADS");
  const std::unique_ptr<Communicator> world = makeSelfCommunicator();
  for (const auto& [cores, expected] : {std::pair{3.5, 3}, {1.0, 1}, {0.25, 1}}) {
    world->setCoreShare(cores);
    EXPECT_EQ(added(0, world.get()), expected - 1) << cores;
  }
}

TEST(ExecutorCache, OutlivesTheThreadThatMadeIt) {
  std::unique_ptr<FusionExecutorCache> cache;
  std::thread([&] {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigTensor(1);
      fusion->addInput(x);
      fusion->addOutput(neg(x));
    }
    cache = std::make_unique<FusionExecutorCache>(std::move(fusion));
  }).join();
  std::thread([] {
    EXPECT_EQ(defaultWorld().size(), 1);
  }).join();  // takes the place of the first one's thread-local objects
  const Tensor in = random({100}, 1);
  const std::vector<Tensor> out = cache->runFusionWithInputs({in});
  EXPECT_EQ(out.at(0).at({7}), -in.at({7}));
}

TEST(ExecutorCache, SoftmaxIsOneKernel) {
  checkRun(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(2);
        f.addInput(x);
        f.addOutput(softmax(x, 1));
      },
      {random({20, 1000}, 1)}, 1);
}

TEST(ExecutorCache, TwoReductionsOfDifferentDimsAreTwoKernels) {
  checkRun(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(2);
        f.addInput(x);
        f.addOutput(sum(x, {0}));
        f.addOutput(sum(x, {1}));
      },
      {random({20, 100}, 1)}, 2);
}

TEST(ExecutorCache, MatmulGoesToTheLibraryAndDoubleDoesNot) {
  for (DataType type : {DataType::Float, DataType::BFloat16, DataType::Double}) {
    checkRun(
        [=](Fusion& f) {
          TensorView* x = makeContigTensor(2, type);
          TensorView* w = makeContigTensor(2, type);
          f.addInput(x);
          f.addInput(w);
          f.addOutput(linear(x, w));
        },
        {random({13, 40}, 1, type), random({24, 40}, 2, type)}, 1);
  }
}

TEST(ExecutorCache, ScalarsAreArguments) {
  checkRun(
      [](Fusion& f) {
        TensorView* x = makeContigTensor(1);
        Val* s = IrBuilder::create<Val>(DataType::Double);
        f.addInput(x);
        f.addInput(s);
        f.addOutput(mul(x, s));
      },
      {random({100}, 1), 0.25}, 1);
}

TEST(ExecutorCache, ParametersAreUpdatedInPlace) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* w = makeContigTensor(1);
    TensorView* g = makeContigTensor(1);
    fusion->addInput(w);
    fusion->addInput(g);
    TensorView* next = sub(w, mul(g, 0.5));
    fusion->addOutput(next);
    fusion->aliasOutputToInput(next, w);
  }
  FusionExecutorCache cache(std::move(fusion));
  Tensor w = Tensor::full({100}, DataType::Float, 1);
  Tensor g = Tensor::full({100}, DataType::Float, 0.5);
  for (int i = 0; i < 4; i++) {
    std::vector<Tensor> out = cache.runFusionWithInputs({w, g});
    EXPECT_EQ(out[0].data(), w.data());
  }
  EXPECT_EQ(w.at({7}), 0.0);
}

TEST(ExecutorCache, NewSizesSayWhyTheyCompile) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigTensor(1);
    fusion->addInput(x);
    fusion->addOutput(add(x, 1.0));
  }
  FusionExecutorCache cache(std::move(fusion));
  cache.runFusionWithInputs({random({8}, 1)});
  ASSERT_EQ(setenv("MESHFUSE_PRINT_MISSES", "1", 1), 0);
  testing::internal::CaptureStderr();
  cache.runFusionWithInputs({random({9}, 1)});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "[meshfuse] compiling: input 0 has sizes [9] instead of [8]; " +
                (defaultDevice() == DeviceId::cpu()
                     ? std::string("i0 is any number from 2 on\n")
                     : fmt::format("all sizes are constants, because kernels of {} take constant sizes\n",
                                   defaultDevice().toString())));
  unsetenv("MESHFUSE_PRINT_MISSES");
  EXPECT_EQ(cache.plansCompiled(), 2);
  EXPECT_EQ(cache.missReason(), "input 0 has sizes [9] instead of [8]");
}

// x S0 -> x + 1 -> sum -> all-reduce
TEST(ExecutorCache, ShardedSumIsOneKernelAndOneAllReduce) {
  Tensor global = random({8, 3}, 5);
  runLoopback(2, [&](Communicator& comm) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigConcreteTensor({8, 3});
      fusion->addInput(x);
      TensorView* y = sum(add(x, 1.0), {0});
      fusion->addOutput(y);
      DeviceMesh mesh = DeviceMesh::createForNumDevices(2);
      x->setDeviceMesh(mesh);
      x->outer_split(0, 2);
      x->axis(0)->parallelize(ParallelType::DIDx);
      y->setDeviceMesh(mesh);
    }
    std::vector<BoundedTensor> expected = interpretWithBounds(*fusion, std::vector<Argument>{global});
    FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .verify = Verify::Always});
    std::vector<Tensor> out = cache.runFusionWithInputs({global.slice(0, comm.rank() * 4, comm.rank() * 4 + 4)});
    EXPECT_EQ(compare(out[0], expected[0]).value_or(""), "");
    std::vector<CommRecord> comms = cache.commSteps();
    ASSERT_EQ(comms.size(), 1u);
    EXPECT_EQ(comms[0].kind, "all-reduce");
    EXPECT_EQ(cache.hostProgram()->steps.size(), 2u) << cache.hostProgram()->toString();
  });
}

}  // namespace

}  // namespace meshfuse
