// Descriptions of machines: what contradicts itself, and which link an axis uses.
#include "autoplan/machine.h"

#include <gtest/gtest.h>

#include <functional>

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
  };
  EXPECT_EQ(errorOf([](auto&) {}), "");
  for (const auto& [change, words] : cases) {
    EXPECT_NE(errorOf(change).find(words), std::string::npos) << words << "\n" << errorOf(change);
  }
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
