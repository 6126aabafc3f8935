// Programs on a device whose memory the host cannot access, and whose work runs later. With MESHFUSE_TEST_DEVICE=1 in the environment all
// tests of this binary run on it; with MESHFUSE_TEST_DEVICE=cuda:0, on that device.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/ranges.h"
#include "device/test_device.h"
#include "exec/backward_program.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"
#include "tensor/dlpack.h"
#include "tensor/npy.h"

namespace meshfuse {
namespace {

class DefaultDevice : public testing::Environment {
 public:
  void SetUp() override {
    if (const char* const device = std::getenv("MESHFUSE_TEST_DEVICE"); device != nullptr) {
      const bool isOurs = std::string_view(device) == "1";
      setDefaultDevice(isOurs ? testDevice(DeviceId::extension(0)).id() : DeviceId::parse(device));
    }
  }
};
const auto* const kDefaultDevice = testing::AddGlobalTestEnvironment(new DefaultDevice);

DeviceId other() { return testDevice(DeviceId::extension(1)).id(); }

std::unique_ptr<Fusion> softmaxOfSum() {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* a = makeContigTensor(2);
  TensorView* b = makeContigTensor(2);
  fusion->addInput(a);
  fusion->addInput(b);
  fusion->addOutput(softmax(add(a, b), 1));
  return fusion;
}

// Rows in parts on the ranks; the sum of all rows on each.
std::unique_ptr<Fusion> sumOfRows(int64_t ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigConcreteTensor({4 * ranks, 6});
  fusion->addInput(x);
  TensorView* y = sum(x, {0});
  fusion->addOutput(y);
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
  x->setDeviceMesh(mesh);
  y->setDeviceMesh(mesh);
  x->outer_split(0, ranks);
  x->axis(0)->parallelize(ParallelType::DIDx);
  return fusion;
}

TEST(Devices, AProgramRunsWhereItsInputsAre) {
  const TestDeviceCounters& counters = testDevice(other()).counters();
  const Tensor a = random({30, 40}, 1).to(DeviceId::cpu());
  const Tensor b = random({30, 40}, 2).to(DeviceId::cpu());
  FusionExecutorCache cache(softmaxOfSum(), {.verify = Verify::Off});
  const Tensor onCpu = cache.runFusionWithInputs({a, b})[0];
  EXPECT_EQ(onCpu.device(), DeviceId::cpu());
  const int64_t launches = counters.launches;
  const Tensor onOther = cache.runFusionWithInputs({a.to(other()), b.to(other())})[0];
  EXPECT_EQ(onOther.device(), other());
  EXPECT_GT(counters.launches, launches);
  EXPECT_EQ(onOther.toVector(), onCpu.toVector());
  EXPECT_EQ(cache.plansCompiled(), 2);
  EXPECT_NE(cache.missReason().find("is on ext:1 instead of cpu"), std::string::npos) << cache.missReason();
}

TEST(Devices, AWarmCallCopiesNothingToTheHost) {
  const TestDeviceCounters& counters = testDevice(other()).counters();
  const Tensor a = random({64, 64}, 1).to(other());
  FusionExecutorCache cache(softmaxOfSum(), {.verify = Verify::Off});
  std::vector<Tensor> out = {Tensor::empty({64, 64}, DataType::Float, other())};
  const std::vector<Argument> in = {a, a};
  cache.run(in, out);
  const int64_t read = counters.bytesRead;
  const int64_t written = counters.bytesWritten;
  for (int i = 0; i < 10; i++) {
    cache.run(in, out);
  }
  EXPECT_EQ(counters.bytesRead, read);
  EXPECT_EQ(counters.bytesWritten, written);
}

TEST(Devices, TensorsMoveAndKeepTheirElements) {
  const Tensor host = random({5, 6, 7}, 3).to(DeviceId::cpu());
  const Tensor device = host.to(other());
  EXPECT_EQ(device.to(DeviceId::cpu()).toVector(), host.toVector());
  EXPECT_EQ(device.permute({2, 0, 1}).toVector(), host.permute({2, 0, 1}).toVector());
  EXPECT_EQ(device.slice(1, 1, 6, 2).clone().toVector(), host.slice(1, 1, 6, 2).toVector());
  EXPECT_EQ(device.slice(1, 1, 6, 2).clone().device(), other());
  EXPECT_EQ(device.to(DataType::BFloat16).toVector(), host.to(DataType::BFloat16).toVector());
  EXPECT_EQ(device.at({4, 5, 6}), host.at({4, 5, 6}));
  EXPECT_EQ(device.toString(), "Float[5, 6, 7] on ext:1");
  Tensor part = device.slice(0, 1, 3).transpose(1, 2);
  part.copyFrom(Tensor::full({2, 7, 6}, DataType::Double, 4.5));
  Tensor expected = host.clone();
  expected.slice(0, 1, 3).copyFrom(Tensor::full({2, 6, 7}, DataType::Float, 4.5));
  EXPECT_EQ(device.toVector(), expected.toVector());
  Tensor one = device;
  one.set(std::vector<int64_t>{0, 0, 1}, -3);
  EXPECT_EQ(device.at({0, 0, 1}), -3);
  EXPECT_EQ(Tensor::empty({0, 3}, DataType::Float, other()).to(DeviceId::cpu()).numel(), 0);
}

TEST(Devices, AnOutputWithGapsIsWrittenOnTheDevice) {
  const TestDeviceCounters& counters = testDevice(other()).counters();
  const Tensor a = random({6, 8}, 1).to(other());
  const Tensor wide = Tensor::full({6, 16}, DataType::Float, 7).to(other());
  FusionExecutorCache cache(softmaxOfSum(), {.verify = Verify::Off});
  std::vector<Tensor> out = {wide.slice(1, 4, 12)};
  const std::vector<Argument> in = {a, a};
  cache.run(in, out);
  EXPECT_EQ(out[0].toVector(), cache.runFusionWithInputs({a, a})[0].toVector());
  EXPECT_EQ(wide.at({3, 3}), 7);
  const int64_t read = counters.bytesRead;
  cache.run(in, out);
  EXPECT_EQ(counters.bytesRead, read);
}

TEST(Devices, AProgramWithoutTensorsRunsOnTheDefaultDevice) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    Val* value = IrBuilder::create<Val>(DataType::Double);
    fusion->addInput(value);
    fusion->addOutput(full({3}, value, DataType::Float));
  }
  FusionExecutorCache cache(std::move(fusion));
  const DeviceId before = defaultDevice();
  for (const DeviceId id : {DeviceId::cpu(), other(), DeviceId::cpu()}) {
    setDefaultDevice(id);
    const Tensor result = cache.runFusionWithInputs({2.5})[0];
    EXPECT_EQ(result.device(), id);
    EXPECT_EQ(result.toVector(), std::vector<double>(3, 2.5));
  }
  setDefaultDevice(before);
  EXPECT_EQ(cache.plansCompiled(), 2);
}

TEST(Devices, BadRequestsAreUserErrors) {
  const auto refused = [](const std::function<void()>& body, std::string_view text) {
    const std::string error = errorOf(body);
    EXPECT_TRUE(error.starts_with("UserError") && error.find(text) != std::string::npos) << error;
  };
  for (const DeviceId id : {DeviceId::cpu(), other()}) {
    refused([&] { (void)Tensor::empty({int64_t{1} << 61}, DataType::Double, id); }, "more than 2^63 bytes");
    refused([&] { (void)Tensor::empty({int64_t{1} << 62, 2}, DataType::Char, id); }, "more than 2^63");
    refused([&] { (void)Tensor::empty({-1}, DataType::Float, id); }, "negative size");
  }
  const Tensor device = random({4}, 1).to(other());
  refused([&] { (void)device.asStrided({2}, {-1}, 2); }, "expected none below 0");
  refused([&] { (void)Tensor().to(other()); }, "undefined");
  refused([] { registerDevice(nullptr); }, "null");
  refused([] { setDefaultDevice(DeviceId::extension(3)); }, "there is no device ext:3");
  for (const char* text : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda:4294967296", "ext", "cpu:0"}) {
    refused([&] { (void)DeviceId::parse(text); }, "is no device; expected cpu, cuda:0 (the number of a GPU), or ext:0");
  }
  EXPECT_EQ(DeviceId::parse("cuda"), DeviceId::cuda(0));
  EXPECT_EQ(DeviceId::parse("cuda:12"), DeviceId::cuda(12));
  EXPECT_EQ(DeviceId::parse(DeviceId::extension(3).toString()), DeviceId::extension(3));
  refused([] { FusionExecutorCache cache(softmaxOfSum(), {.threads = 5000}); }, "got 5000 threads");
}

TEST(Devices, TheHostCannotAccessOtherMemory) {
  const Tensor device = random({4}, 1).to(other());
  EXPECT_EQ(errorOf([&] { (void)device.data_as<float>(); }),
            "UserError: [tensor] the elements of a tensor on ext:1 are not in host memory; copy it with "
            "to(DeviceId::cpu())");
  EXPECT_EQ(errorOf([&] { (void)toDlpack(device); }),
            "UserError: [dlpack] the tensor is on ext:1, expected a CPU or a GPU; copy it with to()");
  EXPECT_EQ(npyBytes(device), npyBytes(device.to(DeviceId::cpu())));
  EXPECT_DEATH((void)*static_cast<volatile float*>(device.data()), "");
  EXPECT_NE(errorOf([] {
              (void)Tensor::empty({1}, DataType::Float, DeviceId::extension(7));
            }).find("[device] there is no device ext:7; there are: cpu"),
            std::string::npos);
  // no driver, or no GPU of that number
  EXPECT_TRUE(errorOf([] {
                (void)Tensor::empty({1}, DataType::Float, DeviceId::cuda(99));
              }).starts_with("DeviceError: [cuda] "));
}

TEST(Devices, InputsOnTwoDevicesAreRefusedOnAllRanks) {
  const std::string expected =
      "input 0 (T0) is on cpu, input 1 (T1) is on ext:1; a fusion runs on the device of all its tensors: copy one of "
      "them with "
      "to()";
  const Tensor a = random({3, 4}, 1).to(DeviceId::cpu());
  FusionExecutorCache cache(softmaxOfSum());
  EXPECT_NE(errorOf([&] { (void)cache.runFusionWithInputs({a, a.to(other())}); }).find(expected), std::string::npos);
  EXPECT_EQ(cache.runFusionWithInputs({a, a})[0].size(0), 3);

  for (const int64_t ranks : {2, 4}) {
    std::vector<std::string> errors(ranks);
    runLoopback(ranks, [&](Communicator& comm) {
      auto fusion = std::make_unique<Fusion>();
      FusionGuard guard(fusion.get());
      TensorView* x = makeContigConcreteTensor({4 * ranks, 6});
      TensorView* y = makeContigConcreteTensor({6});
      fusion->addInput(x);
      fusion->addInput(y);
      TensorView* z = add(sum(x, {0}), y);
      fusion->addOutput(z);
      const DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
      for (TensorView* tv : {x, y, z}) {
        tv->setDeviceMesh(mesh);
      }
      x->outer_split(0, ranks);
      x->axis(0)->parallelize(ParallelType::DIDx);
      FusionExecutorCache sharded(std::move(fusion), {.communicator = &comm});
      const Tensor rows = random({4, 6}, 1).to(DeviceId::cpu());
      const Tensor row = random({6}, 2).to(DeviceId::cpu());
      errors[comm.rank()] = errorOf([&] {
        (void)sharded.runFusionWithInputs({rows, comm.rank() == 1 ? row.to(other()) : row});
      });
    });
    for (const std::string& error : errors) {
      EXPECT_EQ(error, errors[0]);
    }
    EXPECT_NE(errors[0].find(expected), std::string::npos) << errors[0];
  }
}

TEST(Devices, AnOutputOnAnotherDeviceIsRefused) {
  const Tensor a = random({3, 4}, 1).to(other());
  FusionExecutorCache cache(softmaxOfSum());
  std::vector<Tensor> out = {Tensor::empty({3, 4}, DataType::Float, DeviceId::cpu())};
  EXPECT_EQ(errorOf([&] {
              cache.run(std::vector<Argument>{a, a}, out);
            }),
            "UserError: [run] the program runs on ext:1, the tensor for output 0 (T10) is on cpu; pass one that is "
            "made on the "
            "device of the inputs, see Tensor::empty");
}

TEST(Devices, AFailureInTheMiddleOfAProgramEndsTheCall) {
  TestDevice& failing = testDevice(DeviceId::extension(2), {.failingLaunch = 1});
  const Tensor a = random({3, 4}, 1).to(failing.id());
  FusionExecutorCache cache(softmaxOfSum(), {.verify = Verify::Off});
  const std::vector<double> first = cache.runFusionWithInputs({a, a})[0].toVector();
  const std::string error = errorOf([&] { (void)cache.runFusionWithInputs({a, a}); });
  EXPECT_NE(error.find("DeviceError: [test device] the launch of normalization"), std::string::npos) << error;
  EXPECT_EQ(cache.runFusionWithInputs({a, a})[0].toVector(), first);
}

TEST(Devices, ADeviceWithoutMemoryIsAUserError) {
  TestDevice& small = testDevice(DeviceId::extension(3), {.bytes = 1 << 20});
  EXPECT_NE(errorOf([&] { (void)Tensor::empty({1 << 20}, DataType::Float, small.id()); }).find("no memory for"),
            std::string::npos);
  const Tensor a = random({256, 300}, 1).to(small.id());
  FusionExecutorCache cache(softmaxOfSum());
  const std::string error = errorOf([&] {
    std::vector<Tensor> kept;
    for (int i = 0; i < 4; i++) {
      kept.push_back(cache.runFusionWithInputs({a, a})[0]);
    }
  });
  EXPECT_TRUE(error.starts_with("UserError: ")) << error;
  EXPECT_NE(error.find("no memory for"), std::string::npos) << error;
  EXPECT_NE(
      error.find("the program takes 921600 bytes: arguments, results and an arena of 0 bytes; its largest tensor is "
                 "T0 Float[256, 300] of 307200 bytes"),
      std::string::npos)
      << error;
  EXPECT_EQ(cache.runFusionWithInputs({a, a})[0].size(1), 300);
  EXPECT_GE(small.counters().bytesInUse, a.nbytes());
}

// The errors of ranks whose program has collectives beside kernels; the device of rank 1 is the given one.
std::vector<std::string> errorsWithDeviceOfRank1(int64_t ranks, const TestDevice& failing, int64_t calls) {
  std::vector<std::string> errors(ranks);
  (void)errorOf([&] {
    runLoopback(ranks,
                [&](Communicator& comm) {
                  const DeviceId mine =
                      comm.rank() == 1 ? failing.id() : testDevice(DeviceId::extension(10 + comm.rank())).id();
                  FusionExecutorCache cache(backwardProgram(ranks), {.communicator = &comm, .threads = 1});
                  try {
                    const std::vector<Argument> arguments =
                        mapped(argumentsOf(cache.fusion(), comm.rank()),
                               [&](const Argument& a) { return Argument(std::get<Tensor>(a).to(mine)); });
                    std::vector<std::vector<Tensor>> kept;
                    for (int64_t call = 0; call < calls; call++) {
                      kept.push_back(cache.runFusionWithInputs(arguments));
                    }
                  } catch (const std::exception& why) {
                    errors[comm.rank()] = why.what();
                    throw;
                  }
                },
                {.deadline = std::chrono::milliseconds(20'000), .link = {.delay = std::chrono::microseconds(500)}});
  });
  for (const std::string& e : errors) {
    EXPECT_NE(e, "") << "a rank went on";
    EXPECT_EQ(e.find("deadline of"), std::string::npos) << e;
  }
  return errors;
}

TEST(Devices, AFailureOnOneRankWithCollectivesInFlightIsToldToAll) {
  for (const int64_t ranks : {2, 3, 4}) {
    for (const int64_t launch : {3, 5, 7}) {
      const TestDevice& failing = testDevice(DeviceId::extension(100 + 10 * ranks + launch), {.failingLaunch = launch});
      const std::vector<std::string> errors = errorsWithDeviceOfRank1(ranks, failing, 20);
      for (const std::string& e : errors) {
        EXPECT_NE(e.find("[test device] the launch of"), std::string::npos) << e;
        EXPECT_NE(e.find("rank 1"), std::string::npos) << e;
        EXPECT_EQ(e, errors[0]);
      }
    }
  }
}

TEST(Devices, MemoryThatRunsOutOnOneRankIsToldToAll) {
  for (const int64_t ranks : {2, 3, 4}) {
    for (const int64_t mebibytes : {3, 20}) {  // in the first call and in a later one
      const TestDevice& small =
          testDevice(DeviceId::extension(30 + 10 * mebibytes + ranks), {.bytes = mebibytes << 20});
      const std::vector<std::string> errors = errorsWithDeviceOfRank1(ranks, small, 100);
      for (const std::string& e : errors) {
        EXPECT_NE(e.find("no memory for"), std::string::npos) << e;
        EXPECT_NE(e.find("rank 1"), std::string::npos) << e;
        EXPECT_EQ(e, errors[0]);
      }
    }
  }
}

TEST(Devices, EachRankHasItsOwn) {
  for (const int64_t ranks : {2, 3}) {
    const Tensor x = random({4 * ranks, 6}, 1).to(DeviceId::cpu());
    std::vector<std::vector<double>> results(ranks);
    runLoopback(ranks, [&](Communicator& comm) {
      const DeviceId mine = testDevice(DeviceId::extension(10 + comm.rank())).id();
      FusionExecutorCache cache(sumOfRows(ranks), {.communicator = &comm, .verify = Verify::Always});
      const Tensor shard = shardTensor(x, 0, DeviceMesh::createForNumDevices(ranks), comm.rank()).to(mine);
      const Tensor y = cache.runFusionWithInputs({shard})[0];
      EXPECT_EQ(y.device(), mine);
      results[comm.rank()] = y.toVector();
    });
    for (int64_t column = 0; column < 6; column++) {
      double expected = 0;
      for (int64_t row = 0; row < 4 * ranks; row++) {
        expected += x.at({row, column});
      }
      for (const std::vector<double>& result : results) {
        EXPECT_NEAR(result[column], expected, 1e-4);
      }
    }
  }
}

// Rows of 6 elements in parts on the ranks; their scans, or the sum of these on each rank.
std::unique_ptr<Fusion> scansOfRows(int64_t rows, int64_t ranks, bool communicates) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigConcreteTensor({rows, 6});
  fusion->addInput(x);
  TensorView* y = cumsum(x, 1);
  fusion->addOutput(communicates ? sum(y, {0}) : y);
  x->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
  x->outer_split(0, ranks);
  x->axis(0)->parallelize(ParallelType::DIDx);
  return fusion;
}

// 5 rows on 4 ranks are 2, 2, 1 and none: the rank without rows has no scan to refuse, and must not go on alone.
TEST(Devices, ARankWithoutElementsRefusesAnOpLikeTheOthers) {
  constexpr int64_t kRanks = 4;
  for (const bool communicates : {false, true}) {
    std::array<std::string, kRanks> errors;
    runLoopback(kRanks, [&](Communicator& comm) {
      const TestDeviceOptions refusesScans{.expectRoutine = [](const Expr& op) {
        check(op.kind() != ExprKind::Scan, "[device] there is no scan here");
      }};
      const DeviceId mine = testDevice(DeviceId::extension(40 + comm.rank()), refusesScans).id();
      FusionExecutorCache cache(scansOfRows(5, kRanks, communicates), {.communicator = &comm});
      const int64_t rows = std::array{2, 2, 1, 0}[comm.rank()];
      errors[comm.rank()] = errorOf([&] { (void)cache.runFusionWithInputs({random({rows, 6}, 1).to(mine)}); });
    });
    for (const std::string& e : errors) {
      EXPECT_EQ(e, "UserError: [device] there is no scan here");
    }
  }
}

// Rank 1 cannot compile a scan of the program on which all ranks have agreed.
TEST(Devices, ARoutineThatOneRankCannotMakeIsToldToAll) {
  constexpr int64_t kRanks = 3;
  int64_t number = 300;
  for (const auto fail : {throwUserError, throwInternalError, throwDeviceError}) {
    std::array<std::string, kRanks> errors;
    (void)errorOf([&] {
      runLoopback(
          kRanks,
          [&](Communicator& comm) {
            const auto failOnRank1 = [fail, rank = comm.rank()](const Expr&) {
              if (rank == 1) {
                fail("[test] no such kernel");
              }
            };
            const DeviceId mine =
                testDevice(DeviceId::extension(number + comm.rank()), {.beforeRoutine = failOnRank1}).id();
            FusionExecutorCache cache(scansOfRows(2 * kRanks, kRanks, true), {.communicator = &comm});
            errors[comm.rank()] = errorOf([&] { (void)cache.runFusionWithInputs({random({2, 6}, 1).to(mine)}); });
          },
          {.deadline = std::chrono::milliseconds(20'000)});
    });
    number += kRanks;
    for (const std::string& e : errors) {
      EXPECT_NE(e.find("[test] no such kernel"), std::string::npos) << e;
      EXPECT_EQ(e.find("deadline of"), std::string::npos) << e;
    }
  }
}

}  // namespace
}  // namespace meshfuse
