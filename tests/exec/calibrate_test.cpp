// What ranks that calibrate agree on.
#include "exec/calibrate.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "exec/shared_machine.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {
namespace {

TEST(Calibrate, RanksOfOneDeviceShareItsMemory) {
  const auto least = [](const std::vector<MemoryOfRank>& ranks) { return leastShare(ranks); };
  EXPECT_EQ(least({{"a cuda:0", 80}, {"a cuda:1", 100}}), 80) << "each has its own";
  EXPECT_EQ(least({{"a cuda:0", 80}, {"a cuda:0", 80}, {"b cuda:0", 50}}), 40);
  EXPECT_EQ(least({{"a cpu", 90}, {"a cpu", 90}, {"a cpu", 90}, {"b cpu", 20}}), 20);
}

TEST(Calibrate, TheLargestKernelLeavesMostOfTheMemory) {
  EXPECT_EQ(movedElements(1e12).back(), 1 << 24);
  EXPECT_EQ(movedElements(100e6).back(), 1 << 20) << "of one of 256 ranks";
  EXPECT_EQ(movedElements(1).back(), 1 << 16);
  EXPECT_GE(movedElements(1).size(), 2U) << "a table has two points at least";
}

// Every field reaches the other ranks.
TEST(Calibrate, AllRanksHaveTheDescriptionOfTheFirst) {
  const DistributedConfig first{
      .machines = 2,
      .devicesPerMachine = 3,
      .within = {.bandwidth = 4, .latency = 5, .collectives = {{Collective::AllToAll, 3, {{{6, 7}, {8, 9}}}}}},
      .between = {.bandwidth = 10, .latency = 11},
      .memoryPerDevice = 12,
      .device = {.flops = 13,
                 .flops16 = 14,
                 .bandwidth = 15,
                 .launch = 16,
                 .products = {{{"linear", DataType::Half, 17}, {{{18, 19}}}}, {{"matmul", DataType::Float, 20}, {}}},
                 .functions = {{{21, 22}}},
                 .points = {{{23, 24}}},
                 .memory = {{{25, 26}}}}};
  using Points = std::vector<std::pair<double, double>>;
  runLoopback(3, [&](Communicator& comm) {
    const DistributedConfig own = ofFirstRank(comm, comm.rank() == 0 ? first : DistributedConfig{});
    EXPECT_EQ(own.machines, 2);
    EXPECT_EQ(own.devicesPerMachine, 3);
    EXPECT_EQ(own.within.bandwidth, 4);
    EXPECT_EQ(own.within.latency, 5);
    ASSERT_EQ(own.within.collectives.size(), 1U);
    EXPECT_EQ(own.within.collectives[0].kind, Collective::AllToAll);
    EXPECT_EQ(own.within.collectives[0].ranks, 3);
    EXPECT_EQ(own.within.collectives[0].times.points, (Points{{6, 7}, {8, 9}}));
    EXPECT_EQ(own.between.bandwidth, 10);
    EXPECT_EQ(own.between.latency, 11);
    EXPECT_EQ(own.memoryPerDevice, 12);
    const DeviceSpeed& d = own.device;
    EXPECT_EQ((std::vector{d.flops, d.flops16, d.bandwidth, d.launch}), (std::vector<double>{13, 14, 15, 16}));
    ASSERT_EQ(d.products.size(), 2U);
    EXPECT_EQ(d.products[0].form.op, "linear");
    EXPECT_EQ(d.products[0].form.type, DataType::Half);
    EXPECT_EQ(d.products[0].form.contracted, 17);
    EXPECT_EQ(d.products[0].times.points, (Points{{18, 19}}));
    EXPECT_EQ(d.products[1].form.op, "matmul");
    EXPECT_TRUE(d.products[1].times.empty());
    EXPECT_EQ(d.functions.points, (Points{{21, 22}}));
    EXPECT_EQ(d.points.points, (Points{{23, 24}}));
    EXPECT_EQ(d.memory.points, (Points{{25, 26}}));
  });
}

}  // namespace
}  // namespace meshfuse
