#include "base/short_slices.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace meshfuse {

namespace {

// struct sched_attr of the kernel, in its first version; the headers of some C libraries lack it.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // ns; of a thread without real-time policy: its slice
  uint64_t deadline = 0;
  uint64_t period = 0;
};

constexpr uint64_t kSlice = 100'000;  // the shortest that the kernel accepts

}  // namespace

void takeShortSlices() noexcept {
#if defined(SYS_sched_getattr) && defined(SYS_sched_setattr)
  SchedulingAttributes attributes;
  constexpr uint32_t kOther = 0;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0 && attributes.policy == kOther) {
    attributes.runtime = kSlice;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
  }
#endif
}

}  // namespace meshfuse
