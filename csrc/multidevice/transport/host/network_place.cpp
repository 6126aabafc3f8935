#include "multidevice/transport/host/network_place.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr unsigned kUnreachable = 10'000;  // milliseconds until unanswered bytes close a connection
constexpr const char* kLoopback = "127.0.0.1";

struct NetworkInterface {
  std::string name;
  std::string address;
  std::string network;  // the common part of the addresses in it: "10.1.0.0/16"
};

std::string textOfAddress(uint32_t address) {
  char text[INET_ADDRSTRLEN] = {};
  in_addr bytes{address};
  inet_ntop(AF_INET, &bytes, text, sizeof(text));
  return text;
}

std::vector<NetworkInterface> networkInterfaces() {
  std::vector<NetworkInterface> found;
  ifaddrs* first = nullptr;
  const bool known = getifaddrs(&first) == 0;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(known ? first : nullptr, freeifaddrs);
  for (const ifaddrs* i = all.get(); i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr != nullptr && i->ifa_netmask != nullptr && i->ifa_addr->sa_family == AF_INET &&
        (i->ifa_flags & (IFF_UP | IFF_RUNNING)) == (IFF_UP | IFF_RUNNING) && (i->ifa_flags & IFF_LOOPBACK) == 0) {
      const uint32_t address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr;
      const uint32_t mask = reinterpret_cast<const sockaddr_in*>(i->ifa_netmask)->sin_addr.s_addr;
      found.push_back({i->ifa_name, textOfAddress(address),
                       fmt::format("{}/{}", textOfAddress(address & mask), std::popcount(mask))});
    }
  }
  return found;
}

std::string namesOf(const std::vector<NetworkInterface>& interfaces) {
  return joined(interfaces, ", ", [](const NetworkInterface& i) { return i.name + " (" + i.address + ")"; });
}

// The address that is chosen without a look at other ranks; "" if there is none.
std::string givenAddress(const Bootstrap& bootstrap, const std::vector<NetworkInterface>& interfaces) {
  const std::string name = environmentText("MESHFUSE_INTERFACE");
  if (name.empty()) {
    return bootstrap.address();
  }
  const auto chosen = std::ranges::find(interfaces, name, &NetworkInterface::name);
  check(chosen != interfaces.end(), "[network] MESHFUSE_INTERFACE is {}, expected one of {}", name,
        namesOf(interfaces));
  return chosen->address;
}

// Whether every rank has an address in the network, and ranks of different machines different ones: a bridge for containers has the same on
// all machines. `lines` by rank: the machine, then each network with the address in it.
bool isCommon(const std::string& network, const std::vector<std::vector<std::string>>& lines) {
  std::map<std::string, std::string> machineOf;  // by network and address
  return std::ranges::all_of(lines, [&](const std::vector<std::string>& theirs) {
    const auto line = std::ranges::find_if(theirs, [&](const std::string& l) { return l.starts_with(network); });
    return line != theirs.end() && machineOf.try_emplace(*line, theirs[0]).first->second == theirs[0];
  });
}

}  // namespace

std::string NetworkPlace::text() const { return host + '\n' + port; }

NetworkPlace NetworkPlace::parse(std::string_view text) {
  const std::vector<std::string> lines = linesOf(text);
  in_addr address{};
  const bool isPlace = lines.size() == 2 && inet_pton(AF_INET, lines[0].c_str(), &address) == 1 && !lines[1].empty() &&
                       lines[1].size() <= 5 &&
                       std::ranges::all_of(lines[1], [](char c) { return c >= '0' && c <= '9'; });
  deviceCheck(isPlace, "[network] a rank sent no address and port to listen at; start the same build on all ranks");
  return {lines[0], lines[1]};
}

std::string ownNetworkAddress(Bootstrap& bootstrap) {
  const std::vector<NetworkInterface> interfaces = networkInterfaces();
  const std::string given = givenAddress(bootstrap, interfaces);
  std::string mine = bootIdentity() + ' ' + networkNamespace();
  for (const NetworkInterface& i : interfaces) {
    mine += '\n' + i.network + ' ' + i.address;
  }
  std::vector<std::vector<std::string>> lines = mapped(bootstrap.allGather(mine), linesOf);
  if (!given.empty()) {
    return given;
  }
  if (std::ranges::all_of(lines, [&](const auto& theirs) { return theirs[0] == lines[0][0]; })) {
    return kLoopback;
  }
  for (const std::string& line : lines[0] | std::views::drop(1)) {
    const std::string network = line.substr(0, line.find(' ') + 1);
    const auto own = std::ranges::find_if(interfaces, [&](const auto& i) { return network == i.network + ' '; });
    if (own != interfaces.end() && isCommon(network, lines)) {
      return own->address;
    }
  }
  throwUserError(fmt::format(
      "[network] the hosts of the ranks have no network in common; this one has {}. Set MESHFUSE_INTERFACE to the "
      "interface that the others reach",
      namesOf(interfaces)));
}

NetworkPlace listenAt(const Socket& listener, const std::string& host, int64_t backlog) {
  const bool listens = listener.listen(host, "0", backlog);
  const int error = errno;
  deviceCheck(listens, "[network] this process cannot listen at any port of {}: {}", host, std::strerror(error));
  return {host, std::to_string(listener.port())};
}

void closeWhenUnreachable(const Socket& s) {
  setsockopt(s.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnreachable, sizeof(kUnreachable));
  const int on = 1;
  const int seconds = 2;
  setsockopt(s.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(s.get(), IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  setsockopt(s.get(), IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
}

}  // namespace meshfuse
