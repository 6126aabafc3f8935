#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/rounding.h"

namespace meshfuse {

int64_t availableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int64_t cores =
      sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : std::thread::hardware_concurrency();
  return std::max<int64_t>(std::min(cores, coreQuota()), 1);
}

int64_t coreQuota() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  int64_t period = 0;
  if (file >> quota >> period && quota != "max" && period > 0) {
    return std::max<int64_t>(divideUp(std::strtoll(quota.c_str(), nullptr, 10), period), 1);
  }
  return INT64_MAX;
}

}  // namespace meshfuse
