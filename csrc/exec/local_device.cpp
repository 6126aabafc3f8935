#include "exec/local_device.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/environment.h"
#include "base/error.h"
#include "base/ranges.h"
#include "device/open.h"
#include "multidevice/transport/communicator.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/world.h"

namespace meshfuse {

namespace {

constexpr const char* kVariable = "MESHFUSE_DEVICE";

std::string oneLine(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// The GPU that a rank has chosen.
DeviceId chosenGpu(int64_t rank, const GpusOfRank& own) {
  for (int64_t i = 0; i < own.count; i++) {
    if (own.chosen == DeviceId::cuda(i).toString()) {
      return DeviceId::cuda(i);
    }
  }
  throwUserError(
      fmt::format("[device] {} of rank {} is \"{}\", but its host has the GPUs cuda:0 to cuda:{}; name one of them",
                  kVariable, rank, own.chosen, own.count - 1));
}

}  // namespace

std::vector<DeviceId> assignGpus(std::span<const GpusOfRank> ranks, bool share) {
  std::map<std::string, std::vector<int64_t>> waiting;  // by host: ranks that have not chosen
  std::map<std::string, std::set<int64_t>> chosen;      // by host: GPUs
  std::vector<DeviceId> gpus(ranks.size());
  for (const int64_t r : indices(ranks)) {
    deviceCheck(ranks[r].count > 0,
                "[device] rank {} has no GPU: {}; start it on a machine with one, or run on the CPU", r,
                ranks[r].missing);
    if (ranks[r].chosen.empty()) {
      waiting[ranks[r].host].push_back(r);
    } else {
      gpus[r] = chosenGpu(r, ranks[r]);
      chosen[ranks[r].host].insert(gpus[r].index);
    }
  }
  for (const auto& [host, those] : waiting) {
    std::vector<int64_t> free;
    for (int64_t i = 0; i < ranks[those[0]].count; i++) {
      if (share || !chosen[host].contains(i)) {
        free.push_back(i);
      }
    }
    const int64_t count = std::ssize(free);
    check(share || std::ssize(those) <= count,
          "[device] the ranks {} are on one host, which has {} GPU{} for them; start fewer ranks there, or let ranks "
          "share "
          "GPUs: set {}=cuda:0 or such for each of them",
          fmt::join(those, ", "), count, count == 1 ? "" : "s", kVariable);
    for (const int64_t i : indices(those)) {
      gpus[those[i]] = DeviceId::cuda(free[i % count]);
    }
  }
  return gpus;
}

DeviceId localDevice(std::string_view name, Communicator& communicator) {
  const DeviceId named = DeviceId::parse(name);
  if (name != "cuda") {
    return named;
  }
  const Gpus here = gpusOfThisMachine();
  const std::vector<std::string> all =
      communicator.exchange(fmt::format("{}\n{}\n{}\n{}", oneLine(hostIdentity()), here.count,
                                        oneLine(environmentText(kVariable)), oneLine(here.missing)));
  const std::vector<GpusOfRank> ranks = mapped(all, [](const std::string& text) {
    const std::vector<std::string> lines = linesOf(text);
    deviceCheck(lines.size() >= 4,
                "[device] a rank described its GPUs as '{}', expected 4 lines; start the same build on all ranks",
                text);
    return GpusOfRank{.host = lines[0], .count = std::stoll(lines[1]), .missing = lines[3], .chosen = lines[2]};
  });
  return assignGpus(ranks, communicator.transport() == "loopback")[communicator.rank()];
}

}  // namespace meshfuse
