#include "device/device.h"

#include "base/error.h"

namespace meshfuse {

namespace {

[[noreturn]] void throwNoStreams() {
  throwUserError(
      "[run] the call has a stream, but the inputs are on a device without streams; call run() without one, or copy "
      "the inputs to a GPU");
}

}  // namespace

void Queue::orderBefore(GpuStream /*stream*/) { throwNoStreams(); }
void Queue::orderAfter(GpuStream /*stream*/) { throwNoStreams(); }

}  // namespace meshfuse
