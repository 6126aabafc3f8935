// Contexts that have failed and devices that are lost. Their work goes no further, and each call on them returns the error.
#include <algorithm>

#include "work.h"

namespace simgpu {

int32_t Devices::failureOf(uint64_t process, uint32_t device) const {
  if (lost_.contains(device)) {
    return kDeviceUnavailable;
  }
  return failedContexts_.contains({process, device}) ? kLaunchFailed : kSuccess;
}

uint32_t Devices::deviceOf(const Request& r) const {
  const bool isOfEvent = r.call == Call::EventDestroy || r.call == Call::EventWait || r.call == Call::EventQuery ||
                         r.call == Call::EventTime;
  if (isOfEvent && isEvent(r.a)) {
    return events_.at(r.a).device;
  }
  return isStream(r.stream) ? streams_.at(r.stream).device : r.device;
}

void Devices::loseDevice(uint32_t device) {
  lost_.insert(device);
  communicators_.failOn(device, std::nullopt);
}

void Devices::failContext(uint64_t process, uint32_t device) {
  failedContexts_.insert({process, device});
  communicators_.failOn(device, process);
}

bool Devices::isStickyLaunch(const Request& r, uint64_t process) {
  return r.stickyLaunch != 0 && ++launches_[process] == r.stickyLaunch;
}

}  // namespace simgpu
