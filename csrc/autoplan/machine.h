// Machines as data: devices, links, and the time that work and messages take on them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "multidevice/mesh/collective.h"
#include "multidevice/mesh/device_mesh.h"
#include "tensor/dtype.h"

namespace meshfuse {

// Measured seconds of work, by its size.
//
//   {{1e6, 2e-6}, {3e6, 4e-6}}     of 5e5: 2e-6     of 2e6: 3e-6, on the line between both     of 6e6: 8e-6, at the speed of the last one
struct TimeTable {
  std::vector<std::pair<double, double>> points;  // size and seconds, sizes ascending

  bool empty() const { return points.empty(); }
  double seconds(double size) const;  // of a table that is not empty
};

// Measured seconds of a collective, by the bytes that a rank receives.
struct CollectiveSpeed {
  Collective kind = Collective::AllGather;
  int64_t ranks = 2;  // of a team
  TimeTable times;
};

struct LinkSpeed {
  double bandwidth = 0;                           // bytes per second that a device receives
  double latency = 0;                             // seconds of a collective without elements
  std::vector<CollectiveSpeed> collectives = {};  // used instead where the kind is listed

  // Of a call in which a rank of a team of `ranks` receives these bytes. Of the teams listed for this kind the smallest of at least `ranks`
  // ranks counts, else the largest.
  double seconds(Collective kind, int64_t ranks, double bytes) const;
};

// The product that a table is of.
struct ProductForm {
  std::string op;  // as in the text form: linear
  DataType type = DataType::Float;
  int64_t contracted = 1;  // extent
};

// Measured seconds of products with square results, by their flops.
struct ProductSpeed {
  ProductForm form;
  TimeTable times;
};

// The work of an op or of a kernel on one device.
struct Work {
  double flops = 0;      // of products
  double functions = 0;  // elements of functions such as exp
  double points = 0;     // elements of all other ops that are computed
  double bytes = 0;      // of memory, read and written
  ProductForm product = {};

  Work& operator+=(const Work& more);
};

struct DeviceSpeed {
  double flops = 60e12;     // per second, of Float and of integers of at most 32 bits; 64-bit types have half of it
  double flops16 = 800e12;  // of 16-bit floating types
  double bandwidth = 3e12;  // bytes per second, of memory
  double launch = 3e-6;     // seconds that a kernel takes at least
  // As measured, with the launch; a table that is not empty replaces the numbers above.
  std::vector<ProductSpeed> products = {};
  TimeTable functions = {};  // by elements
  TimeTable points = {};     // by elements
  TimeTable memory = {};     // by bytes

  // Seconds of work that is part of a kernel: the longest of computing and moving bytes, without the launch.
  double seconds(const Work& work) const;

 private:
  double secondsOfProduct(const ProductForm& form, double flops) const;
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

// UserError naming the field if a speed or a size is below 1, if a time is negative or over 1e6 seconds, if the links between machines of
// several devices are faster than those inside, if there are more devices than 64-bit numbers or ranks can count, or if a table has sizes
// that do not ascend or seconds that are not positive, or is there twice.
void checkMachines(const DistributedConfig& machines);

// The link that a collective along an axis uses: ranks are numbered machine by machine, so an axis crosses machines if the ranks of
// one position of the outer axes do not lie in one machine.
[[nodiscard]] LinkSpeed linkOf(const DistributedConfig& machines, const DeviceMesh& mesh, int64_t axis);

// The meshes that a search considers: all devices on one axis, and in row-major order on two.
[[nodiscard]] std::vector<DeviceMesh> candidateMeshes(int64_t devices);

// {dp: 2, tp: 2}[0, 1, 2, 3]; of more than 256 devices the axes and the number of devices.
[[nodiscard]] std::string meshText(const DeviceMesh& mesh);

}  // namespace meshfuse
