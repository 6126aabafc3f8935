// Descriptions of machines: what contradicts itself, and which link an axis uses.
#include "autoplan/machine.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace meshfuse {
namespace {

std::string errorOf(const std::function<void(DistributedConfig&)>& change) {
  DistributedConfig machines{.machines = 2, .devicesPerMachine = 4};
  change(machines);
  try {
    checkMachines(machines);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Machine, ContradictionsAreUserErrorsNamingTheField) {
  const std::pair<std::function<void(DistributedConfig&)>, std::string> cases[] = {
      {[](auto& m) { m.machines = 0; }, "machines is 0"},
      {[](auto& m) { m.devicesPerMachine = -1; }, "devicesPerMachine is -1"},
      {[](auto& m) { m.machines = int64_t{1} << 40; }, "expected at most 1048576 devices"},
      {[](auto& m) { m.within.bandwidth = 0; }, "within.bandwidth is 0"},
      {[](auto& m) { m.between.latency = -1e-6; }, "between.latency"},
      {[](auto& m) { m.between.bandwidth = 1e12; }, "more than within.bandwidth"},
      {[](auto& m) { m.within.latency = 1; }, "less than within.latency"},
      {[](auto& m) { m.memoryPerDevice = 0.0 / 0.0; }, "memoryPerDevice"},
      {[](auto& m) { m.device.flops = 0; }, "device.flops"},
      {[](auto& m) { m.device.flops = 1e-300; }, "device.flops is 1e-300, expected a number, at least 1"},
      {[](auto& m) { m.memoryPerDevice = 0.5; }, "memoryPerDevice is 0.5, expected a number, at least 1"},
      {[](auto& m) { m.device.launch = 1e308; }, "device.launch is 1e+308, expected a number of seconds, 0 to 1000000"},
      {[](auto& m) {
         m.device.memory.points = {{1e-9, 1e-6}};
       },
       "device.memory has the point [1e-09, 1e-06], expected ascending sizes, at least 1"},
      {[](auto& m) {
         m.device.memory.points = {{1, 1e7}};
       },
       "device.memory has the point [1, 10000000], expected"},
      {[](auto& m) {
         m.device.memory.points = {{2, 1e-6}, {1, 1e-6}};
       },
       "device.memory has the point [1, 1e-06]"},
      {[](auto& m) {
         m.device.points.points = {{2, 0}};
       },
       "device.points has the point [2, 0]"},
      {[](auto& m) {
         m.device.products = {{{"linear", DataType::Float, 64}, {}}};
       },
       "device.products, linear of Float with 64 contracted, got "},
      {[](auto& m) {
         m.device.products = {2, {{"linear", DataType::Float, 64}, {{{1, 1e-6}}}}};
       },
       "device.products, linear of Float with 64 contracted, has two tables; remove one"},
      {[](auto& m) {
         m.between.collectives = {2, {Collective::AllGather, 2, {{{1, 1e-6}}}}};
       },
       "between.collectives, all_gather of 2 ranks, has two tables; remove one"},
      {[](auto& m) {
         m.within.collectives = {{Collective::AllGather, 1, {{{1, 1e-6}}}}};
       },
       "within.collectives, all_gather of 1 ranks, got 1 points, expected at least 2 ranks"},
  };
  EXPECT_EQ(errorOf([](auto&) {}), "");
  for (const auto& [change, words] : cases) {
    EXPECT_NE(errorOf(change).find(words), std::string::npos) << words << "\n" << errorOf(change);
  }
}

// No link inside a machine counts then, so a file need not describe it.
TEST(Machine, LinksOfMachinesOfOneDeviceAreNotCompared) {
  EXPECT_EQ(errorOf([](auto& m) {
              m.devicesPerMachine = 1;
              m.between = {.bandwidth = 1e12, .latency = 1e-6};
            }),
            "");
}

TEST(Machine, ATableIsReadAlongItsLines) {
  const TimeTable table{{{100, 1e-6}, {300, 3e-6}, {400, 8e-6}}};
  EXPECT_DOUBLE_EQ(table.seconds(50), 1e-6);
  EXPECT_DOUBLE_EQ(table.seconds(100), 1e-6);
  EXPECT_DOUBLE_EQ(table.seconds(200), 2e-6);
  EXPECT_DOUBLE_EQ(table.seconds(350), 5.5e-6);
  EXPECT_DOUBLE_EQ(table.seconds(800), 16e-6);
}

TEST(Machine, ACollectiveTakesTheTimeOfTheNextLargerTeam) {
  const auto constant = [](double seconds) { return TimeTable{{{1, seconds}, {1e12, seconds}}}; };
  const LinkSpeed link{.bandwidth = 1e9,
                       .latency = 1e-6,
                       .collectives = {{Collective::AllGather, 8, constant(8)},
                                       {Collective::AllGather, 2, constant(2)},
                                       {Collective::AllReduce, 4, constant(4)}}};
  EXPECT_EQ(link.seconds(Collective::AllGather, 2, 100), 2);
  EXPECT_EQ(link.seconds(Collective::AllGather, 4, 100), 8);
  EXPECT_EQ(link.seconds(Collective::AllGather, 16, 100), 8);
  EXPECT_EQ(link.seconds(Collective::AllReduce, 2, 100), 4);
  EXPECT_DOUBLE_EQ(link.seconds(Collective::AllToAll, 2, 1000), 1e-6 + 1e-6) << "not listed";
}

TEST(Machine, AProductTakesTheTimeOfItsForm) {
  const auto rate = [](double flops) { return TimeTable{{{1, 1 / flops}, {1e12, 1e12 / flops}}}; };
  const DeviceSpeed device{.flops = 1e9,
                           .flops16 = 1e10,
                           .launch = 0,
                           .products = {{{"linear", DataType::Float, 100}, rate(1e6)},
                                        {{"linear", DataType::Float, 400}, rate(1e5)},
                                        {{"matmul", DataType::Float, 100}, rate(1e7)}}};
  const auto seconds = [&](const std::string& op, DataType type, int64_t contracted) {
    return device.seconds({.flops = 1e6, .product = {op, type, contracted}});
  };
  EXPECT_DOUBLE_EQ(seconds("linear", DataType::Float, 50), 1);
  EXPECT_DOUBLE_EQ(seconds("linear", DataType::Float, 100), 1);
  EXPECT_DOUBLE_EQ(seconds("linear", DataType::Float, 200), 5.5);
  EXPECT_DOUBLE_EQ(seconds("linear", DataType::Float, 1000), 10);
  EXPECT_DOUBLE_EQ(seconds("matmul", DataType::Float, 200), 0.1);
  EXPECT_DOUBLE_EQ(seconds("linear", DataType::BFloat16, 200), 1e-4) << "not listed";
  EXPECT_DOUBLE_EQ(seconds("linear", DataType::Double, 200), 2e-3) << "not listed";
}

// A kernel computes and moves bytes at the same time; a table contains the launch.
TEST(Machine, TheLongestPartOfAKernelCounts) {
  const DeviceSpeed given{.flops = 1e3, .bandwidth = 1e2, .launch = 0.5};
  EXPECT_DOUBLE_EQ(given.seconds({.functions = 10, .points = 20, .bytes = 2}), 0.03);
  EXPECT_DOUBLE_EQ(given.seconds({.functions = 10, .points = 20, .bytes = 20}), 0.2);
  DeviceSpeed measured = given;
  measured.functions.points = {{1, 2.5}};
  measured.memory.points = {{1, 1.5}};
  EXPECT_DOUBLE_EQ(measured.seconds({.functions = 1, .bytes = 1}), 2);
  EXPECT_DOUBLE_EQ(measured.seconds({.points = 1, .bytes = 1}), 1);
}

TEST(Machine, AnAxisCrossesMachinesIfItsRanksDoNotLieInOne) {
  const DistributedConfig machines{.machines = 2, .devicesPerMachine = 4};
  const auto bandwidth = [&](std::vector<int64_t> shape, int64_t axis) {
    return linkOf(machines, DeviceMesh::createForShape(shape), axis).bandwidth;
  };
  EXPECT_EQ(bandwidth({2, 4}, 0), machines.between.bandwidth);
  EXPECT_EQ(bandwidth({2, 4}, 1), machines.within.bandwidth);
  EXPECT_EQ(bandwidth({4, 2}, 0), machines.between.bandwidth);
  EXPECT_EQ(bandwidth({4, 2}, 1), machines.within.bandwidth);
  EXPECT_EQ(bandwidth({2, 2, 2}, 1), machines.within.bandwidth);
  EXPECT_EQ(bandwidth({8}, 0), machines.between.bandwidth);
}

// The order of a mesh's devices decides, not the sizes of its axes.
TEST(Machine, AMeshMayHaveItsDevicesInAnotherOrder) {
  const DistributedConfig machines{.machines = 2, .devicesPerMachine = 2};
  const DeviceMesh across = DeviceMesh::create({{"y", 2}, {"x", 2}}, {0, 2, 1, 3});
  EXPECT_EQ(linkOf(machines, across, 0).bandwidth, machines.within.bandwidth);
  EXPECT_EQ(linkOf(machines, across, 1).bandwidth, machines.between.bandwidth);
}

}  // namespace
}  // namespace meshfuse
