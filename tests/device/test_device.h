// A device for tests: memory of its own that the host cannot access, and work that runs later, on a thread of each queue.
//
// The kernels are those of the CPU. An access of the host to its memory is a segmentation fault; new memory is filled with a pattern; work
// begins after a random delay. So a missing copy, wait or result becomes a crash or a wrong number.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "device/device.h"

namespace meshfuse {

struct TestDeviceCounters {
  std::atomic<int64_t> launches{0};
  std::atomic<int64_t> calls{0};   // of routines
  std::atomic<int64_t> copies{0};  // by queues
  std::atomic<int64_t> bytesRead{0};
  std::atomic<int64_t> bytesWritten{0};
  std::atomic<int64_t> bytesInUse{0};
};

struct TestDeviceOptions {
  int64_t bytes = int64_t{4} << 30;                        // of memory; pages are taken when they are used
  int64_t mostDelay = 20;                                  // microseconds before a piece of work begins
  int64_t failingLaunch = -1;                              // the number of the launch that throws a DeviceError
  std::function<void(const Expr& op)> expectRoutine = {};  // as that of Device
  std::function<void(const Expr& op)> beforeRoutine = {};  // called before one is made
};

class TestDevice : public Device {
 public:
  virtual TestDeviceCounters& counters() = 0;
};

// Made once for each id, registered, never removed.
TestDevice& testDevice(DeviceId id, const TestDeviceOptions& options = {});

}  // namespace meshfuse
