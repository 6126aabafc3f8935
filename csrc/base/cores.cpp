#include "base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "base/rounding.h"

namespace meshfuse {

int64_t availableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int64_t cores = sched_getaffinity(0, sizeof set, &set) == 0
                      ? CPU_COUNT(&set)
                      : static_cast<int64_t>(std::thread::hardware_concurrency());
  std::ifstream quotaFile("/sys/fs/cgroup/cpu.max");
  std::string quota;
  long period = 0;
  if (quotaFile >> quota >> period && quota != "max" && period > 0) {
    long limit = divideUp(std::strtol(quota.c_str(), nullptr, 10), period);
    cores = std::min(cores, std::max(limit, 1l));
  }
  return std::max<int64_t>(cores, 1);
}

}  // namespace meshfuse
