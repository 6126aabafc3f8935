// One rank fails to make or to run a plan that is shared between sizes.
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/not_constant.h"
#include "device/forwarding_device.h"
#include "device/open.h"
#include "exec/compile.h"
#include "exec/plan_cache.h"
#include "host/executor.h"
#include "inputs.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/called_shapes.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/scenario.h"
#include "stress/checked_cache.h"
#include "tensor/device_memory.h"

namespace meshfuse {

namespace {

class FailingRanks : public MultiDeviceTest {
 protected:
  void SetUp() override {
    if (ranksHaveGpus()) {
      GTEST_SKIP() << "kernels of other devices take constant sizes";
    }
  }
};

// Throws in the next compilation, as a stage does that needs a size as a number or refuses an expression of sizes.
class RefusingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  std::vector<std::shared_ptr<const Kernel>> compile(std::span<const tile::Program> programs) override {
    compilations++;
    std::exchange(refuseNext, [] {})();
    return to_->compile(programs);
  }
  std::function<void()> refuseNext = [] {};
  int64_t compilations = 0;
};

// Plans of a program that a rank fails to make.
class FailingPlans {
 public:
  FailingPlans(const BuildOnRanks& build, Communicator& comm)
      : comm_(comm),
        fusion_(fusionOf(build, comm.size())),
        agreement_(comm, {.maxPlans = 8}),
        plans_(*fusion_, comm, 8, true,
               [this](std::span<const Argument> in, const Agreement::Call& call, const ProgramChoice& choice) {
                 call.beforeAgreement({*fusion_, in}, choice, failPlanning);
                 CompiledProgram compiled = compile(*fusion_, in, call, device_, {}, choice);
                 call.afterPlanning({*fusion_, in, compiled.program.globalSizes}, *compiled.program.agreedOn,
                                    failCompiling);
                 return compiled;
               }) {}

  std::string errorFor(int64_t rows) { return errorFor(shardsOfRank(*fusion_, rowInputs(rows), comm_)); }
  std::string errorFor(const std::vector<Argument>& local) {
    return errorOf([&] { const PlanCache::Use use(plans_, local, agreement_.call()); });
  }
  std::vector<Argument> strided(int64_t rows) const {
    const std::vector<Argument> local = shardsOfRank(*fusion_, rowInputs(rows), comm_);
    return {std::get<Tensor>(local[0]).transpose(0, 1).clone().transpose(0, 1)};
  }
  // Runs a program with one output, of 16 elements. Whether it has constant sizes.
  bool runs(int64_t rows, Tensor& output) {
    const std::vector<Argument> local = shardsOfRank(*fusion_, rowInputs(rows), comm_);
    const PlanCache::Use use(plans_, local, agreement_.call());
    output = Tensor::empty({16}, DataType::Float);
    use.binding().run(comm_, local, std::span(&output, 1));
    return use.plan().compiled()->program.sizes.isConstant();
  }
  int64_t compiled() const { return plans_.compiled(); }
  RefusingDevice& device() { return *device_; }

  std::function<void()> failPlanning = [] {};
  std::function<void()> failCompiling = [] {};

 private:
  Communicator& comm_;
  std::unique_ptr<Fusion> fusion_;
  std::shared_ptr<RefusingDevice> device_ =
      std::make_shared<RefusingDevice>(openDevice(DeviceId::cpu(), {.threads = 1}));
  Agreement agreement_;
  PlanCache plans_;
};

// While it plans, and while it compiles the program on which all have agreed: all are told, and the next call is right.
TEST_F(FailingRanks, ARankThatCannotMakeAProgramOfAClassTellsItsPeers) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    FailingPlans plans(columnSums, comm);
    EXPECT_EQ(plans.errorFor(12 * n), "");
    for (std::function<void()>* stage : {&plans.failPlanning, &plans.failCompiling}) {
      for (const bool isUsers : {true, false}) {
        for (int64_t failing = 0; failing < n; failing++) {
          if (comm.rank() == failing) {
            *stage = [=] {
              isUsers ? throwUserError("[test] no such plan") : throw std::runtime_error("no such plan");
            };
          }
          const std::string error = plans.errorFor(20 * n);
          EXPECT_NE(error.find("no such plan"), std::string::npos) << error;
          *stage = [] {};
        }
      }
    }
    EXPECT_EQ(plans.compiled(), 1);
    for (const int64_t rows : {20 * n, 28 * n, 12 * n, 32 * n}) {
      EXPECT_EQ(plans.errorFor(rows), "") << rows << " rows";
    }
    EXPECT_EQ(plans.compiled(), 3);
  });
}

// Its peers run the program, and wait for no message.
TEST_F(FailingRanks, ARankThatCannotCompileAgreedShapesAgainFailsAlone) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    FailingPlans plans(rowsAlone, comm);
    for (const int64_t rows : {12 * n, 20 * n, 28 * n}) {
      EXPECT_EQ(plans.errorFor(rows), "") << rows << " rows";
    }
    for (const int64_t rows : {12 * n, 28 * n}) {
      for (std::function<void()>* stage : {&plans.failPlanning, &plans.failCompiling}) {
        if (comm.rank() == 1) {
          *stage = [] { throwUserError("[test] no such plan"); };
          EXPECT_EQ(plans.errorFor(plans.strided(rows)), "UserError: [test] no such plan");
          *stage = [] {};
        } else {
          EXPECT_EQ(plans.errorFor(rows), "") << rows << " rows";
        }
      }
    }
    for (const int64_t rows : {36 * n, 12 * n, 28 * n}) {
      EXPECT_EQ(plans.errorFor(comm.rank() == 1 ? plans.strided(rows)
                                                : shardsOfRank(*fusionOf(rowsAlone, n), rowInputs(rows), comm)),
                "");
    }
  });
}

// Its peers take the program of the class, and need not know. It tries to make that program once.
TEST_F(FailingRanks, ARankWhoseStagesDoNotHoldForAClassTakesConstantSizes) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    FailingPlans plans(columnSums, comm);
    const auto runs = [&](int64_t rows) {
      Tensor sums;
      const bool isConstant = plans.runs(rows, sums);
      const std::vector<BoundedTensor> expected =
          interpretWithBounds(*fusionOf(columnSums, n), rowInputs(rows), {.partials = n});
      EXPECT_EQ(compare(sums, expected[0]).value_or(""), "") << rows << " rows";
      return isConstant;
    };
    EXPECT_TRUE(runs(12 * n));
    const auto refusing = [&](int64_t rows, const std::function<void()>& refuse) {
      plans.device().refuseNext = comm.rank() == 1 ? refuse : [] {};
      EXPECT_EQ(runs(rows), comm.rank() == 1) << rows << " rows";
    };
    refusing(20 * n, [] { throw NotConstantError("[test] a size is no number"); });
    refusing(32 * n, [] { throwUserError("[test] no such size"); });
    for (const int64_t rows : {20 * n, 32 * n, 12 * n}) {
      EXPECT_EQ(runs(rows), comm.rank() == 1 || rows == 12 * n) << rows << " rows";
    }
    const int64_t before = plans.device().compilations;
    for (const int64_t rows : {28 * n, 48 * n}) {
      EXPECT_EQ(runs(rows), comm.rank() == 1) << rows << " rows";
    }
    EXPECT_EQ(plans.device().compilations - before, comm.rank() == 1 ? 2 : 0);
  });
}

// Its peers run a program without messages.
TEST_F(FailingRanks, ARefusedCallOfAProgramWithoutCollectivesWaitsForNoPeer) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    CalledShapes called(rowsAlone, rowInputs, comm);
    for (const int64_t rows : {12 * n, 20 * n, 28 * n}) {
      called.expectRight(rows);
    }
    for (int64_t refusing = 0; refusing < n; refusing++) {
      if (comm.rank() == refusing) {
        const std::string error =
            errorOf([&] { (void)called.cache().runFusionWithInputs({Tensor::full({3}, DataType::Float, 1)}); });
        EXPECT_NE(error.find("UserError"), std::string::npos) << error;
      } else {
        called.expectRight(28 * n);
      }
      called.expectRight((36 + 8 * refusing) * n);
    }
  });
}

// Memory of a device that cannot be read.
class UnreadableMemory : public DeviceMemory {
 public:
  static DeviceId device() {
    static const bool isRegistered = [] {
      registerDevice(std::make_shared<UnreadableMemory>());
      return true;
    }();
    (void)isRegistered;
    return DeviceId::extension(77);
  }

  DeviceId id() const override { return DeviceId::extension(77); }
  std::shared_ptr<void> allocate(int64_t) override { return std::make_shared<std::array<int64_t, 8>>(); }
  void read(void*, const void*, int64_t) override { throw std::runtime_error("memory that cannot be read"); }
  void write(void*, const void*, int64_t) override {}
};

// Its elements are needed to know the sizes of the call, before any message.
TEST_F(FailingRanks, AnArgumentThatOneRankCannotReadIsAnErrorOnAllRanks) {
  loopback_.deadline = std::chrono::milliseconds(20'000);
  runOnRanks([](Communicator& comm) {
    const int64_t n = comm.size();
    const BuildOnRanks build = [](Fusion& f, int64_t ranks) {
      columnSums(f, ranks);
      TensorView* length = input(f, {1}, f.inputs()[0]->asTensor()->getDeviceMesh(), DataType::Int);
      f.addOutput(full({length->element(0)}, 1.0, DataType::Float));
    };
    const std::unique_ptr<Fusion> fusion = fusionOf(build, n);
    FusionExecutorCache cache(fusionOf(build, n), {.communicator = &comm});
    const auto shards = [&](int64_t rows) {
      return shardsOfRank(
          *fusion, {rowInputs(rows)[0], Tensor::full({1}, DataType::Int, static_cast<double>(rows % 7 + 2))}, comm);
    };
    const auto expectRight = [&](int64_t rows) {
      const std::vector<Tensor> got = cache.runFusionWithInputs(shards(rows));
      const std::vector<BoundedTensor> sums =
          interpretWithBounds(*fusionOf(columnSums, n), rowInputs(rows), {.partials = n});
      EXPECT_EQ(compare(got[0], sums[0]).value_or(""), "") << rows << " rows";
      EXPECT_EQ(got[1].sizes()[0], rows % 7 + 2);
    };
    for (const int64_t k : {12, 20, 28}) {
      expectRight(k * n);
    }
    for (int64_t failing = 0; failing < n; failing++) {
      std::vector<Argument> local = shards(36 * n);
      if (comm.rank() == failing) {
        local[1] = Tensor::empty({1}, DataType::Int, UnreadableMemory::device());
      }
      const std::string error = errorOf([&] { (void)cache.runFusionWithInputs(local); });
      EXPECT_NE(error.find("memory that cannot be read"), std::string::npos) << error;
      expectRight(44 * n);
    }
    expectRight(36 * n);
  });
}

}  // namespace

}  // namespace meshfuse
