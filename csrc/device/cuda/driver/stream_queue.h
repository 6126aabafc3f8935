// A queue whose work is that of a stream.
#pragma once

#include "device/cuda/api/driver.h"
#include "device/device.h"

namespace meshfuse {

class StreamQueue : public Queue {
 public:
  virtual cuda::Stream stream() const = 0;
};

}  // namespace meshfuse
