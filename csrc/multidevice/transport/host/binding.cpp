#include "multidevice/transport/host/binding.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>

namespace meshfuse {

namespace {

// Cores that a process may run on, 0 if that is not known. 0: this process.
int64_t coresOfProcess(pid_t process) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(process, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

std::string adviceOnBinding(int64_t ranks) {
  const int64_t cores = coresOfProcess(getppid());
  if (coresOfProcess(0) != 1 || cores < 2 * ranks) {
    return "";
  }
  return fmt::format(
      "meshfuse: the launcher has bound rank 0 to one of {} cores, so by default it computes with one thread; ranks of "
      "this host: "
      "{}; start them with mpirun --bind-to none, or srun --cpu-bind=none",
      cores, ranks);
}

void printAdviceOnBinding(int64_t ranks) {
  static std::once_flag printed;
  if (const std::string advice = adviceOnBinding(ranks); !advice.empty()) {
    std::call_once(printed, [&] { fmt::print(stderr, "{}\n", advice); });
  }
}

}  // namespace meshfuse
