#include "multidevice/transport/host/world.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include "base/cores.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/ranges.h"
#include "multidevice/transport/host/binding.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/core_share.h"
#include "multidevice/transport/host/host_communicator.h"
#include "multidevice/transport/host/network_communicator.h"

namespace meshfuse {

namespace {

std::pair<std::string, std::string> splitAtLine(const std::string& text) {
  const size_t end = text.find('\n');
  return {text.substr(0, end), text.substr(end + 1)};
}

// The coreShare() of a rank, from the sets of cores and the machines of all ranks: several hosts may be one machine.
double coreShareOnMachine(std::span<const std::string> cores, std::span<const std::string> machines, int64_t rank) {
  std::vector<std::string> here;
  int64_t own = 0;
  for (int64_t r : indices(machines)) {
    if (machines[r] == machines[rank]) {
      own = r == rank ? std::ssize(here) : own;
      here.push_back(cores[r]);
    }
  }
  return coreShare(here, own, coreQuota());
}

std::string nextName() {
  static std::atomic<int64_t> opened = 0;  // ranks open their worlds in the same order
  return fmt::format("world{}", opened++);
}

}  // namespace

std::chrono::milliseconds deadlineOfEnvironment() {
  return std::chrono::seconds(
      environmentNumber("MESHFUSE_DEADLINE", 1, kMostDeadlineSeconds, "a number of seconds").value_or(300));
}

Key Bootstrap::key() {
  const RandomBytes mine = randomBytes();
  const std::string all = allGather({reinterpret_cast<const char*>(mine.data()), mine.size()}).front();
  Key key{};
  deviceCheck(all.size() == key.size(), "[host] rank 0 sent a key of {} bytes, expected {}", all.size(), key.size());
  std::memcpy(key.data(), all.data(), key.size());
  return key;
}

std::string hostIdentity() {
  const std::string name = environmentText("MESHFUSE_HOST");
  return name.empty() ? bootIdentity() + ' ' + networkNamespace() : name;
}

std::vector<std::string> linesOf(std::string_view text) {
  auto lines = mapped(std::views::split(text, '\n'), [](auto line) { return std::string(line.begin(), line.end()); });
  return lines.empty() ? std::vector<std::string>(1) : lines;  // an empty text is split into no line
}

std::string bootIdentity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string line;
  std::getline(file, line);
  return line;
}

std::string networkNamespace() {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/ns/net", none).string();
}

std::unique_ptr<Communicator> openAmong(std::shared_ptr<Bootstrap> bootstrap, TransportOptions options,
                                        const std::string& name) {
  options.flightDirectory = flightDirectory(options.flightDirectory);
  if (bootstrap->size() == 1) {
    printAdviceOnBinding(1);
    return makeSelfCommunicator();
  }
  if (options.algorithms.empty()) {
    options.algorithms = environmentText("MESHFUSE_ALGORITHMS");
  }
  const std::vector<std::string> all =
      bootstrap->allGather(hostIdentity() + '\n' + bootIdentity() + '\n' + allowedCores() + '\n' + options.algorithms);
  std::vector<std::string> names;
  std::vector<int64_t> hosts;         // by rank
  std::vector<std::string> machines;  // by rank
  std::vector<std::string> cores;     // by rank
  std::string algorithms0;
  for (int64_t r = 0; r < bootstrap->size(); ++r) {
    const auto [host, rest] = splitAtLine(all[r]);
    const auto [machine, facts] = splitAtLine(rest);
    const auto [allowed, algorithms] = splitAtLine(facts);
    deviceCheck(std::ssize(allowed) == kCoreSetSize,
                "[host] rank {} does not say which cores it may use; start the same build on all ranks", r);
    machines.push_back(machine);
    cores.push_back(allowed);
    if (r == 0) {
      algorithms0 = algorithms;
    }
    hosts.push_back(positionIn(names, host));
    if (hosts.back() == std::ssize(names)) {
      names.push_back(host);
    }
    check(algorithms == algorithms0,
          "[algorithms] ranks 0 and {} disagree: rank 0 has '{}', rank {} has '{}'; set the option or "
          "MESHFUSE_ALGORITHMS to the same value on all ranks",
          r, algorithms0, r, algorithms);
  }
  if (bootstrap->rank() == 0) {
    printAdviceOnBinding(std::ranges::count(hosts, hosts[0]));
  }
  const double share = coreShareOnMachine(cores, machines, bootstrap->rank());
  std::unique_ptr<Communicator> world;
  if (names.size() == 1 && !options.messagesOnly) {
    world = std::make_unique<HostCommunicator>(std::move(bootstrap), options, name);
  } else {
    world = std::make_unique<NetworkCommunicator>(std::move(bootstrap), options, name, std::move(hosts));
  }
  world->setCoreShare(share);
  return world;
}

bool startedByLauncher() { return pmixOffered() || starOffered(); }

std::unique_ptr<Communicator> openWorld(const TransportOptions& options) {
  if (!startedByLauncher()) {
    return makeSelfCommunicator();
  }
  return openAmong(pmixOffered() ? connectPmix(options.deadline) : connectStar(options.deadline), options, nextName());
}

Communicator::Survivors openSurvivors(const TransportOptions& options) {
  if (!startedByLauncher()) {
    return {makeSelfCommunicator(), {0}};
  }
  const RankOfLauncher place = pmixOffered() ? pmixPlace() : starPlace();
  Communicator::Survivors survivors;
  std::unique_ptr<Bootstrap> bootstrap = meetSurvivors(place.rank, place.size, options.deadline, survivors.oldRanks);
  survivors.world = openAmong(std::move(bootstrap), options, nextName());
  return survivors;
}

}  // namespace meshfuse
