// DeviceFailure: the error of a device itself, and its texts for this rank and for its peers.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <string>
#include <string_view>

#include "base/error.h"

namespace meshfuse {

// A call of the device of this rank failed, at once or because of earlier work. A failure of a peer is another DeviceError.
struct DeviceFailure : DeviceError {
  using DeviceError::DeviceError;
};

// The text of such a failure, which may be told at a later call than the one that has caused it.
inline std::string withHint(std::string_view failure) {
  return fmt::format("{}; without verification, an earlier step may be the cause", failure);
}

// What peers are told of an exception, once steps have been issued.
inline std::string explained(const std::exception& why) {
  return dynamic_cast<const DeviceFailure*>(&why) != nullptr ? withHint(why.what()) : why.what();
}

}  // namespace meshfuse
