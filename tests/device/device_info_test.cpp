#include "device/device_info.h"

#include <gtest/gtest.h>

#include <optional>

namespace meshfuse {
namespace {

TEST(DeviceInfo, ArchitecturesHaveANumberAndAtMostOneLetter) {
  EXPECT_EQ(architectureNumber("sm_90"), 90);
  EXPECT_EQ(architectureNumber("sm_90a"), 90);
  EXPECT_EQ(architectureNumber("sm_120"), 120);
  for (const char* name :
       {"", "sm_", "sm_x", "sm_0", "sm_-9", "sm_90 a", "sm_90ab", "sm_9x0", "sm_90A", "compute_90"}) {
    EXPECT_EQ(architectureNumber(name), std::nullopt) << name;
    EXPECT_FALSE(DeviceInfo::ofArchitecture(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace meshfuse
