#include "autoplan/machine.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr int64_t kMostDevices = int64_t{1} << 20;

void checkPositive(double value, const char* field) {
  check(std::isfinite(value) && value > 0, "[autoplan] {} is {}, expected a positive number", field, value);
}

void checkLatency(double value, const char* field) {
  check(std::isfinite(value) && value >= 0, "[autoplan] {} is {}, expected a number of seconds, at least 0", field,
        value);
}

}  // namespace

double DeviceSpeed::flopsOf(DataType type) const {
  return isHalfPrecision(type) ? flops16 : flops * 4 / static_cast<double>(std::max<int64_t>(4, dataTypeSize(type)));
}

void checkMachines(const DistributedConfig& m) {
  check(m.machines >= 1, "[autoplan] machines is {}, expected at least 1", m.machines);
  check(m.devicesPerMachine >= 1, "[autoplan] devicesPerMachine is {}, expected at least 1", m.devicesPerMachine);
  check(m.machines <= kMostDevices / m.devicesPerMachine,
        "[autoplan] {} machines of {} devices, expected at most {} devices; describe fewer", m.machines,
        m.devicesPerMachine, kMostDevices);
  checkPositive(m.within.bandwidth, "within.bandwidth");
  checkPositive(m.between.bandwidth, "between.bandwidth");
  checkLatency(m.within.latency, "within.latency");
  checkLatency(m.between.latency, "between.latency");
  check(m.machines == 1 || m.between.bandwidth <= m.within.bandwidth,
        "[autoplan] between.bandwidth is {}, more than within.bandwidth, {}: a link between machines is at most as "
        "fast as "
        "one inside a machine; exchange them, or describe all devices as one machine",
        m.between.bandwidth, m.within.bandwidth);
  check(m.machines == 1 || m.between.latency >= m.within.latency,
        "[autoplan] between.latency is {}, less than within.latency, {}; exchange them, or describe all devices as one "
        "machine",
        m.between.latency, m.within.latency);
  checkPositive(m.memoryPerDevice, "memoryPerDevice");
  checkPositive(m.device.flops, "device.flops");
  checkPositive(m.device.flops16, "device.flops16");
  checkPositive(m.device.bandwidth, "device.bandwidth");
  checkLatency(m.device.launch, "device.launch");
}

LinkSpeed linkOf(const DistributedConfig& machines, const DeviceMesh& mesh, int64_t axis) {
  int64_t stride = 1;  // between ranks that are neighbours along the axis
  for (int64_t k = axis + 1; k < mesh.numAxes(); k++) {
    stride *= mesh.axisSizes()[k];
  }
  const int64_t span = stride * mesh.axisSizes()[axis];
  const auto machineOf = [&](int64_t position) { return mesh.devices()[position] / machines.devicesPerMachine; };
  const bool isWithin = std::ranges::all_of(
      indices(mesh.devices()), [&](int64_t k) { return machineOf(k) == machineOf(k / span * span + k % stride); });
  return isWithin ? machines.within : machines.between;
}

std::vector<DeviceMesh> candidateMeshes(int64_t devices) {
  std::vector<DeviceMesh> meshes{DeviceMesh::createForShape({devices})};
  for (int64_t outer = 2; outer < devices; outer++) {
    if (devices % outer == 0) {
      meshes.push_back(DeviceMesh::createForShape({outer, devices / outer}));
    }
  }
  return meshes;
}

}  // namespace meshfuse
