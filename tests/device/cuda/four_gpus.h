// Tests of ranks with a GPU each, or a simulated one.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "device/open.h"
#include "multidevice/transport/communicator.h"
#include "tensor/device_id.h"

namespace meshfuse {

inline constexpr int64_t kRanks = 4;

// Skips where there are fewer GPUs, or no NCCL.
class FourGpus : public testing::Test {
 protected:
  void SetUp() override {
    if (const Gpus gpus = gpusOfThisMachine(); gpus.count < kRanks) {
      GTEST_SKIP() << "needs 4 GPUs, there are " << gpus.count << " " << gpus.missing;
    }
    for (const Capability& c : deviceCapabilities()) {
      if (c.part == "GPU collectives" && !c.isPresent) {
        GTEST_SKIP() << "no NCCL: " << c.note;
      }
    }
  }
};

inline DeviceId gpuOf(const Communicator& comm) { return DeviceId::cuda(comm.rank()); }

}  // namespace meshfuse
