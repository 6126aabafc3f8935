#include "multidevice/transport/host/network_place.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "multidevice/transport/host/bootstrap.h"

namespace meshfuse {

namespace {

constexpr unsigned kUnreachable = 10'000;  // milliseconds until unanswered bytes close a connection

std::vector<std::string> ownAddresses() {
  std::vector<std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) == 0) {
    for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == AF_INET) {
        char buffer[INET_ADDRSTRLEN] = {};
        inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, buffer, sizeof(buffer));
        found.emplace_back(buffer);
      }
    }
    freeifaddrs(all);
  }
  std::erase_if(found, [](const std::string& address) { return address.starts_with("127."); });
  found.emplace_back("127.0.0.1");
  return found;
}

}  // namespace

std::string NetworkPlace::text() const { return fmt::format("{}\n{}", port, fmt::join(hosts, "\n")); }

NetworkPlace NetworkPlace::parse(std::string_view text) {
  const std::vector<std::string> lines = linesOf(text);
  return {lines[0], {lines.begin() + 1, lines.end()}};
}

NetworkPlace listenAnywhere(const Socket& listener, int64_t backlog) {
  const bool listens = listener.listen("", "0", backlog);
  deviceCheck(listens, "[network] this process cannot listen at any port: {}", std::strerror(errno));
  return {std::to_string(listener.port()), ownAddresses()};
}

void closeWhenUnreachable(const Socket& s) {
  setsockopt(s.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnreachable, sizeof(kUnreachable));
  const int64_t on = 1;
  const int64_t seconds = 2;
  setsockopt(s.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(s.get(), IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  setsockopt(s.get(), IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
}

}  // namespace meshfuse
