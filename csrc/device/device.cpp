#include "device/device.h"

#include "base/error.h"

namespace meshfuse {

namespace {

[[noreturn]] void throwNoStreams() {
  throwUserError("[run] the call has a stream, but the device of the inputs has none; leave it out");
}

}  // namespace

void Queue::orderBefore(GpuStream /*stream*/) { throwNoStreams(); }
void Queue::orderAfter(GpuStream /*stream*/) { throwNoStreams(); }

}  // namespace meshfuse
