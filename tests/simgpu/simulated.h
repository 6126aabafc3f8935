// The simulated driver and NVRTC for programs of a few lines, and the check of how such a program ends.
//
//   expectEnd(kFine, [](Simulated& gpu) { ... });                      // the program is right
//   expectReport("nothing orders the two", [](Simulated& gpu) { ... }); // it is wrong, and the simulated GPU says so
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/cuda/api/driver.h"
#include "device/cuda/api/nvrtc.h"
#include "device/cuda/api/vendor_library.h"
#include "simgpu/further_calls.h"

namespace meshfuse {

// With the primary context of device 0 current.
class Simulated : public VendorLibrary {
 public:
  MESHFUSE_CUDA_DRIVER_CALLS(MESHFUSE_VENDOR_MEMBER);
  MESHFUSE_FURTHER_DRIVER_CALLS(MESHFUSE_VENDOR_MEMBER);

  Simulated();

  // Each ends the process with status 1 unless its calls succeed.
  cuda::DevicePointer allocate(size_t bytes);
  cuda::Stream stream();
  cuda::Event event();
  float* pinned(size_t count);
  cuda::MemoryPool pool();
  // The kernel of a text; its one parameter is a struct.
  cuda::Function kernel(const std::string& text, const std::string& name, const std::string& arch = "sm_90",
                        cuda::Module* loaded = nullptr);
  template <class Arguments>
  void launch(cuda::Function function, unsigned blocks, unsigned threads, Arguments arguments, cuda::Stream stream) {
    cuda::LaunchConfig config{.gridX = blocks, .gridY = 1, .gridZ = 1, .blockX = threads, .blockY = 1, .blockZ = 1};
    config.stream = stream;
    void* parameters[] = {&arguments};
    expect(launchKernel(&config, function, parameters, nullptr), "cuLaunchKernelEx");
  }
  static void expect(cuda::Result result, const char* call);
};

struct NvrtcSimulated : VendorLibrary {
  NvrtcSimulated();
  MESHFUSE_NVRTC_CALLS(MESHFUSE_VENDOR_MEMBER);
};

using SimulatedProgram = std::function<void(Simulated&)>;

// Runs the program in a process of its own, several times with other orders.
void expectFine(const SimulatedProgram& program);
void expectReport(const std::string& text, const SimulatedProgram& program);
// Ends the process of a program with a status that expectFine does not accept.
void require(bool condition, const char* what);

// z[i] = 2 x[i] for i < n; any grid.
struct TwiceArguments {
  cuda::DevicePointer x;
  cuda::DevicePointer z;
  int64_t n;
};
extern const char* const kTwice;

}  // namespace meshfuse
