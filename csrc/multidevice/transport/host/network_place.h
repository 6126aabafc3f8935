// The network addresses of a process: a port, at each of the addresses of its machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/host/socket.h"

namespace meshfuse {

struct NetworkPlace {
  std::string port;
  std::vector<std::string> hosts;  // the loopback address is last: ranks on the same host use it

  std::string text() const;
  static NetworkPlace parse(std::string_view text);
};

// Listens at any port of all addresses. DeviceError if that fails.
[[nodiscard]] NetworkPlace listenAnywhere(const Socket& listener, int64_t backlog);

// Lets the kernel close the connection if the other host stops answering.
void closeWhenUnreachable(const Socket& s);

}  // namespace meshfuse
