#include "multidevice/transport/machine_time.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>

#include "base/error.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kTick = 5ms;
constexpr auto kStandstill = 100ms;  // what takes a tick longer than this is not the machine's work

// A process that sleeps for a tick again and again and counts how long that took, up to a standstill, until its owner has ended.
class Ticker {
 public:
  Ticker() {
    void* memory = mmap(nullptr, sizeof(*counted_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED, "[test] no shared memory");
    counted_ = new (memory) std::atomic<int64_t>(0);
    const pid_t owner = getpid();
    if (fork() == 0) {
      for (auto last = Clock::now(); getppid() == owner;) {
        std::this_thread::sleep_for(kTick);
        const auto now = Clock::now();
        counted_->fetch_add(std::chrono::nanoseconds(std::min<Clock::duration>(now - last, kStandstill)).count());
        last = now;
      }
      _exit(0);
    }
  }
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;

  std::chrono::nanoseconds counted() const { return std::chrono::nanoseconds(counted_->load()); }

 private:
  std::atomic<int64_t>* counted_;  // nanoseconds
};

}  // namespace

std::chrono::milliseconds machineTime() {
  static const Ticker ticker;
  return std::chrono::duration_cast<std::chrono::milliseconds>(ticker.counted());
}

}  // namespace meshfuse
