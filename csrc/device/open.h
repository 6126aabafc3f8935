// Makes the devices that this build knows. device/all defines the functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/device_id.h"

namespace meshfuse {

class Device;

struct DeviceOptions {
  int64_t threads = 0;  // of a CPU: the threads that run kernels; 0: one for each core
  bool spin = true;     // of a CPU: idle threads spin for a short time; false for more threads than cores
  bool compiles =
      true;  // false: kernels are placeholders, for programs that are printed and never run; needs no compiler
};

// A device of the machine, or one that the program has registered (tensor/device_memory.h); the options are for the CPU. UserError if there
// is no such kind of device, or if the device runs no programs; DeviceError for a GPU that this process cannot use.
[[nodiscard]] std::shared_ptr<Device> openDevice(DeviceId id, const DeviceOptions& options = {});
// A device by the name of its architecture, `cpu` or such as `sm_90a`. The machine need not have it: it compiles kernels and runs none.
// UserError if the name is neither, or the compiler on this machine does not know it.
[[nodiscard]] std::shared_ptr<Device> namedDevice(std::string_view architecture);

// The GPUs that this process can use.
struct Gpus {
  int64_t count = 0;
  std::string missing;  // why there is none
};
[[nodiscard]] Gpus gpusOfThisMachine();

// What devices need: kernels, libraries, GPUs.
struct Capability {
  std::string part;  // "GPU kernels"
  bool isPresent = false;
  std::string note;  // library and version, or why it is absent
};
// Of this build on this machine. Loads the libraries of GPUs.
[[nodiscard]] std::vector<Capability> deviceCapabilities();

}  // namespace meshfuse
