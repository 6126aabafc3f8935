// DeviceFailure: the error of a device itself.
#pragma once

#include "base/error.h"

namespace meshfuse {

// A call of the device of this rank failed, at once or because of earlier work. A failure of a peer is another DeviceError.
struct DeviceFailure : DeviceError {
  using DeviceError::DeviceError;
};

}  // namespace meshfuse
