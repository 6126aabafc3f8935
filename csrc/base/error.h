// The three kinds of failure, and a function that raises each: check, invariant, deviceCheck.
//
//   UserError      the caller's mistake: a shape, a type, an annotation, an argument
//   InternalError  our bug: a broken invariant
//   DeviceError    a device, a library or a peer failed: call, status, rank
//
// A message states the problem, the value that was found, the value that was expected, and what to do:
//   [matmul] inner extents differ: T3 has 64, T5 has 32; transpose T5
// Messages are formatted only on failure.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace meshfuse {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct UserError : Error {
  using Error::Error;
};

struct InternalError : Error {
  using Error::Error;
};

struct DeviceError : Error {
  using Error::Error;
};

[[noreturn]] void throwUserError(std::string message);
[[noreturn]] void throwInternalError(std::string message);
[[noreturn]] void throwDeviceError(std::string message);

// Raises UserError unless `cond` holds.
template <class... Args>
void check(bool cond, fmt::format_string<Args...> message, Args&&... args) {
  if (!cond) [[unlikely]] {
    throwUserError(fmt::format(message, std::forward<Args>(args)...));
  }
}

// Raises InternalError unless `cond` holds: a failure here is a bug of meshfuse.
template <class... Args>
void invariant(bool cond, fmt::format_string<Args...> message, Args&&... args) {
  if (!cond) [[unlikely]] {
    throwInternalError(fmt::format(message, std::forward<Args>(args)...));
  }
}

// Raises DeviceError unless `cond` holds.
template <class... Args>
void deviceCheck(bool cond, fmt::format_string<Args...> message, Args&&... args) {
  if (!cond) [[unlikely]] {
    throwDeviceError(fmt::format(message, std::forward<Args>(args)...));
  }
}

}  // namespace meshfuse
