#include "multidevice/transport/host/random_bytes.h"

#include <fmt/ranges.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace meshfuse {

RandomBytes randomBytes() {
  RandomBytes bytes{};
  const ssize_t read = getrandom(bytes.data(), bytes.size(), 0);
  const int error = errno;
  deviceCheck(read == std::ssize(bytes), "[host] the system gives no random bytes: {}", std::strerror(error));
  return bytes;
}

std::string hexadecimal(const RandomBytes& bytes) { return fmt::format("{:02x}", fmt::join(bytes, "")); }

}  // namespace meshfuse
