#include "multidevice/transport/host/core_share.h"

#include <sched.h>

#include <algorithm>
#include <map>

namespace meshfuse {

static_assert(kCoreSetSize == CPU_SETSIZE);

namespace {

int64_t ranksOn(std::span<const std::string> sets, int64_t core) {
  return std::ranges::count_if(sets, [&](const std::string& set) { return set[core] == '1'; });
}

}  // namespace

std::string allowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::string text(kCoreSetSize, '0');
  for (int64_t i = 0; i < kCoreSetSize; ++i) {
    text[i] = CPU_ISSET(static_cast<size_t>(i), &set) ? '1' : '0';
  }
  return text;
}

int64_t jointCores(std::span<const std::string> sets) {
  int64_t cores = 0;
  for (int64_t i = 0; i < kCoreSetSize; ++i) {
    cores += ranksOn(sets, i) > 0 ? 1 : 0;
  }
  return cores;
}

double coreShare(std::span<const std::string> sets, int64_t own, int64_t quota) {
  std::map<int64_t, int64_t> cores;  // by the number of ranks that share them: sums of equal parts are exact
  for (int64_t i = 0; i < kCoreSetSize; ++i) {
    if (sets[own][i] == '1') {
      cores[ranksOn(sets, i)]++;
    }
  }
  double share = 0;
  for (const auto& [ranks, count] : cores) {
    share += static_cast<double>(count) / static_cast<double>(ranks);
  }
  return std::min(share, static_cast<double>(quota) / static_cast<double>(std::ssize(sets)));
}

}  // namespace meshfuse
