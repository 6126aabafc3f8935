// The network address at which a process listens for the other ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/socket.h"

namespace meshfuse {

struct NetworkPlace {
  std::string host;
  std::string port;

  std::string text() const;
  // DeviceError if the text is not of a place.
  static NetworkPlace parse(std::string_view text);
};

// The address of this rank that the others reach: of the interface MESHFUSE_INTERFACE, if it is set; else the one that the bootstrap knows;
// else the loopback address, if all ranks are on one machine; else of the first network that all machines have in common. Collective over
// the bootstrap's ranks. UserError if there is none.
[[nodiscard]] std::string ownNetworkAddress(Bootstrap& bootstrap);

// Listens at any port of this address. DeviceError if that fails.
[[nodiscard]] NetworkPlace listenAt(const Socket& listener, const std::string& host, int64_t backlog);

// Lets the kernel close the connection if the other host stops answering.
void closeWhenUnreachable(const Socket& s);

}  // namespace meshfuse
