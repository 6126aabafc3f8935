// Machines as data: devices, links, and the time that work and messages take on them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "multidevice/mesh/device_mesh.h"
#include "tensor/dtype.h"

namespace meshfuse {

struct LinkSpeed {
  double bandwidth = 0;  // bytes per second that a device receives
  double latency = 0;    // seconds of a collective without elements
};

struct DeviceSpeed {
  double flops = 60e12;     // per second, of Float; larger types by their size, smaller integers as Float
  double flops16 = 800e12;  // of 16-bit floating types
  double bandwidth = 3e12;  // bytes per second, of memory
  double launch = 3e-6;     // seconds that a kernel takes at least

  double flopsOf(DataType type) const;
};

struct DistributedConfig {
  int64_t machines = 1;
  int64_t devicesPerMachine = 1;
  LinkSpeed within{.bandwidth = 300e9, .latency = 5e-6};   // between devices of one machine
  LinkSpeed between{.bandwidth = 25e9, .latency = 20e-6};  // between machines
  double memoryPerDevice = 80e9;                           // bytes
  DeviceSpeed device = {};

  int64_t devices() const { return machines * devicesPerMachine; }
};

// UserError naming the field if a number is not positive, if the links between machines are faster than those inside, or if there are
// more devices than 64-bit numbers or ranks can count.
void checkMachines(const DistributedConfig& machines);

// The link that a collective along an axis uses: ranks are numbered machine by machine, so an axis crosses machines if the ranks of
// one position of the outer axes do not lie in one machine.
[[nodiscard]] LinkSpeed linkOf(const DistributedConfig& machines, const DeviceMesh& mesh, int64_t axis);

// The meshes that a search considers: all devices on one axis, and in row-major order on two.
[[nodiscard]] std::vector<DeviceMesh> candidateMeshes(int64_t devices);

}  // namespace meshfuse
