// calibrate: measures the speed of the devices and links of a group of ranks, as a description of machines for plans.
//
//   const DistributedConfig machines = calibrate(comm, {});   // on all ranks; a file of it goes to autoParallelize()
//
// All ranks measure at the same time, so that ranks which share processors or memory are as slow as in a program. Kernels and products are
// programs that this library compiles; collectives are calls of the communicator, for every number of ranks that divides their number.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "autoplan/machine.h"

namespace meshfuse {

class Communicator;

struct CalibrationOptions {
  std::string device = "cpu";  // as localDevice() reads it
  double seconds = 20;         // that the measurement takes, about, besides compiling
};

// The same on all ranks: what rank 0 has measured, with three digits of each measured number, and the memory of the rank that has least. Ranks
// that share a device have equal parts of its memory. Collective. UserError on all ranks: hosts that do not have equally many ranks
// with consecutive numbers; seconds that are not positive; errors of localDevice().
[[nodiscard]] DistributedConfig calibrate(Communicator& comm, const CalibrationOptions& options);

// Sizes of the kernels that only move elements, ascending. Those over 65,536 elements need at most a quarter of the memory of a rank.
[[nodiscard]] std::vector<int64_t> movedElements(double memory);

}  // namespace meshfuse
