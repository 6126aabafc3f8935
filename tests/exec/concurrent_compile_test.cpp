// Threads that call while another one compiles.
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "meshfuse/meshfuse.h"
#include "multidevice/fixture/first_ranks.h"

namespace meshfuse {

namespace {

// Holds up whoever compiles, from the second time on, until it is let go.
class SlowCompiles final : public FirstRanks {
 public:
  using FirstRanks::FirstRanks;

  void setBusy(bool busy) override {
    if (busy && compiles_.fetch_add(1) == 1) {
      begun.set_value();
      goOn.get_future().wait();
    }
  }

  std::promise<void> begun;
  std::promise<void> goOn;

 private:
  std::atomic<int> compiles_{0};
};

std::unique_ptr<Fusion> doubled() {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeSymbolicTensor(1);
  fusion->addInput(x);
  fusion->addOutput(mul(x, 2.0));
  return fusion;
}

TEST(ConcurrentCompile, CallsWithAPlanDoNotWait) {
  std::unique_ptr<Communicator> self = makeSelfCommunicator();
  SlowCompiles world(*self, 1);
  FusionExecutorCache cache(doubled(), {.communicator = &world, .threads = 1});
  Tensor four = randomTensor({4}, DataType::Float, 1);
  Tensor five = randomTensor({5}, DataType::Float, 2);
  (void)cache.runFusionWithInputs({four});

  std::vector<std::future<Tensor>> slow;
  for (int i = 0; i < 3; i++) {  // one compiles, the others want the same plan
    slow.push_back(std::async(std::launch::async, [&] { return cache.runFusionWithInputs({five})[0]; }));
  }
  world.begun.get_future().wait();
  EXPECT_EQ(cache.runFusionWithInputs({four})[0].at({3}), 2 * four.at({3})) << "while the plan for five is made";
  EXPECT_EQ(cache.plansCompiled(), 1);
  world.goOn.set_value();
  for (std::future<Tensor>& result : slow) {
    EXPECT_EQ(result.get().at({4}), 2 * five.at({4}));
  }
  EXPECT_EQ(cache.plansCompiled(), 2);
}

TEST(ConcurrentCompile, AFailureReachesAllWhoWait) {
  std::unique_ptr<Communicator> self = makeSelfCommunicator();
  SlowCompiles world(*self, 1);
  FusionExecutorCache cache(doubled(), {.communicator = &world, .threads = 1});
  (void)cache.runFusionWithInputs({randomTensor({4}, DataType::Float, 1)});
  Tensor wrong = randomTensor({4}, DataType::Int, 1, 0, 9);
  std::vector<std::future<std::string>> results;
  for (int i = 0; i < 3; i++) {
    results.push_back(std::async(std::launch::async, [&]() -> std::string {
      try {
        (void)cache.runFusionWithInputs({wrong});
        return "no error";
      } catch (const UserError& e) {
        return e.what();
      }
    }));
  }
  world.begun.get_future().wait();
  world.goOn.set_value();
  for (std::future<std::string>& result : results) {
    EXPECT_NE(result.get().find("type"), std::string::npos);
  }
  EXPECT_EQ(cache.plansCompiled(), 1);
}

}  // namespace

}  // namespace meshfuse
