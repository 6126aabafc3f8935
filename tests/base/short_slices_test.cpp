// The slice that the system gives a thread, as it says itself.
#include "base/short_slices.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <thread>

namespace meshfuse {
namespace {

// 0: this system does not say, or has one slice for all threads.
uint64_t sliceOfThread() {
  std::array<uint64_t, 6> attributes{};  // the fourth one is the slice
  const bool isKnown = syscall(SYS_sched_getattr, 0, attributes.data(), sizeof attributes, 0) == 0;
  return isKnown ? attributes[3] : 0;
}

TEST(ShortSlices, AreOfTheThreadThatAsks) {
  const uint64_t before = sliceOfThread();
  if (before == 0) {
    GTEST_SKIP() << "this system has one slice for all threads";
  }
  uint64_t inThread = before;
  std::thread([&] {
    takeShortSlices();
    inThread = sliceOfThread();
  }).join();
  EXPECT_EQ(inThread, 100'000u);
  EXPECT_EQ(sliceOfThread(), before);
}

}  // namespace
}  // namespace meshfuse
