// meshfuse calibrate: measures the ranks that are present, and writes the description of machines that --machine reads.
#include "exec/calibrate.h"

#include <fmt/core.h>

#include <cstdint>

#include "base/error.h"
#include "multidevice/transport/host/world.h"
#include "multidevice/transport/loopback/loopback.h"
#include "tools/machine_file.h"
#include "tools/options.h"
#include "tools/output_file.h"
#include "tools/page_markup.h"

namespace meshfuse {

namespace {

void write(const std::string& path, const DistributedConfig& machine) {
  writeWhole("calibrate", path, machineText(machine));
  fmt::print("wrote {}: {} of {}\n", path, counted(static_cast<size_t>(machine.machines), "machine"),
             counted(static_cast<size_t>(machine.devicesPerMachine), "device"));
}

int64_t calibrateProcesses(const CalibrateOptions& options) {
  std::unique_ptr<Communicator> world = openWorld();
  DistributedConfig machine;
  try {
    machine = calibrate(*world, options.calibration);
  } catch (const UserError&) {
    // The same on all ranks. Rank 0 says it, and no other exit code makes the launcher end rank 0 before.
    world->close();
    if (world->rank() == 0) {
      throw;
    }
    return kSuccess;
  } catch (const Error& e) {
    world->abort(e.what());
    if (world->rank() == 0) {
      throw;
    }
    return kFailure;
  }
  world->close();
  if (world->rank() == 0) {
    write(options.file, machine);
  }
  return kSuccess;
}

}  // namespace

int64_t calibrateMachine(const CalibrateOptions& options) {
  if (options.mpi) {
    return calibrateProcesses(options);
  }
  check(options.ranks >= 1 && options.ranks <= kMaxVirtualRanks, "[calibrate] --ranks is {}, expected 1 to {}",
        options.ranks, kMaxVirtualRanks);
  DistributedConfig machine;
  runLoopback(options.ranks, [&](Communicator& comm) {
    const DistributedConfig own = calibrate(comm, options.calibration);
    if (comm.rank() == 0) {
      machine = own;
    }
  });
  write(options.file, machine);
  return kSuccess;
}

}  // namespace meshfuse
