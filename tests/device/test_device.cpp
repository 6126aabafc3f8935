#include "device/test_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/refused_index.h"
#include "device/open.h"

namespace meshfuse {

namespace {

// One file, mapped twice: at addresses that tensors have, without access, and where the device works.
class TwiceMapped {
 public:
  explicit TwiceMapped(int64_t bytes) : bytes_(bytes) {
    const int file = memfd_create("test device", 0);
    invariant(file >= 0 && ftruncate(file, bytes) == 0, "[test device] no memory of {} bytes", bytes);
    void* const seen = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    void* const own = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    invariant(seen != MAP_FAILED && own != MAP_FAILED, "[test device] {} bytes cannot be mapped", bytes);
    seen_ = static_cast<char*>(seen);
    own_ = static_cast<char*>(own);
    free_[0] = bytes;
  }

  bool contains(uint64_t address) const {
    const auto begin = std::bit_cast<uint64_t>(seen_);
    return address >= begin && address < begin + static_cast<uint64_t>(bytes_);
  }
  // The address at which the device works; others stay as they are.
  uint64_t own(uint64_t address) const {
    return contains(address) ? address - std::bit_cast<uint64_t>(seen_) + std::bit_cast<uint64_t>(own_) : address;
  }
  template <class T>
  T* own(T* address) const {
    return std::bit_cast<T*>(own(std::bit_cast<uint64_t>(address)));
  }

  void* allocate(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const int64_t size = rounded(bytes);
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < size) {
        continue;
      }
      const auto [at, room] = *it;
      free_.erase(it);
      if (room > size) {
        free_[at + size] = room - size;
      }
      std::memset(own_ + at, kPattern, size);
      return seen_ + at;
    }
    throwUserError(fmt::format("[test device] no memory for {} bytes", bytes));
  }

  void deallocate(void* block, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const int64_t at = static_cast<char*>(block) - seen_;
    const auto it = free_.emplace(at, rounded(bytes)).first;
    if (const auto next = std::next(it); next != free_.end() && next->first == at + it->second) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it != free_.begin() && std::prev(it)->first + std::prev(it)->second == at) {
      std::prev(it)->second += it->second;
      free_.erase(it);
    }
  }

 private:
  static constexpr int kPattern = 0xCB;
  static int64_t rounded(int64_t bytes) { return (std::max<int64_t>(bytes, 1) + 255) / 256 * 256; }

  int64_t bytes_;
  char* seen_ = nullptr;
  char* own_ = nullptr;
  std::mutex mutex_;
  std::map<int64_t, int64_t> free_;  // offset -> bytes
};

// Set when the work before it has ended, or has failed.
class Point {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    isSet_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return isSet_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool isSet_ = false;
};

class TestEvent final : public Event {
 public:
  std::shared_ptr<Point> point;
};

class Worker {
 public:
  explicit Worker(int64_t mostDelay) : mostDelay_(mostDelay), thread_([this] { work(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
  }

  // always: also after a failure
  void post(std::function<void()> piece, bool always = false) {
    {
      const std::lock_guard lock(mutex_);
      pieces_.push_back({std::move(piece), always});
    }
    changed_.notify_all();
  }

  // Throws the error since the last time: the first refused index, or what later work did not run after.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return pieces_.empty(); });
    failed_ = false;
    if (failure_) {
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }
  // The same without an error: for another thread than that of the queue.
  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return pieces_.empty(); });
  }

 private:
  void work() {
    static std::atomic<uint32_t> workers{0};
    std::minstd_rand random(++workers);  // other delays on each queue
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !pieces_.empty(); });
      if (pieces_.empty()) {
        return;
      }
      const bool runs = !failed_ || pieces_.front().always;
      lock.unlock();
      std::exception_ptr failure;
      if (runs) {
        if (mostDelay_ > 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int64_t>(random()) % (mostDelay_ + 1)));
        }
        try {
          pieces_.front().work();
        } catch (const RefusedIndexError&) {  // later work runs
          failure = std::current_exception();
        } catch (...) {
          failure = std::current_exception();
          failed_ = true;
        }
      }
      lock.lock();
      failure_ = failure && (!failure_ || failed_) ? failure : failure_;
      pieces_.pop_front();
      changed_.notify_all();
    }
  }

  const int64_t mostDelay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  struct Piece {
    std::function<void()> work;
    bool always = false;
  };
  std::deque<Piece> pieces_;  // the first one is running
  std::exception_ptr failure_;
  bool failed_ = false;  // by another error than a refused index
  bool ending_ = false;
  std::jthread thread_;
};

class DelayingDevice final : public TestDevice {
 public:
  DelayingDevice(DeviceId id, const TestDeviceOptions& options)
      : id_(id),
        options_(options),
        memory_(options.bytes),
        cpu_(openDevice(DeviceId::cpu(), {.threads = 2, .spin = false})) {}

  TestDeviceCounters& counters() override { return counters_; }
  DeviceId id() const override { return id_; }
  const DeviceInfo& info() const override { return cpu_->info(); }
  bool isHostMemory() const override { return false; }

  std::shared_ptr<void> allocate(int64_t bytes) override {
    void* const memory = memory_.allocate(bytes);
    counters_.bytesInUse += bytes;
    return {memory, [this, bytes](void* block) {
              finish();  // work in flight may use the block
              counters_.bytesInUse -= bytes;
              memory_.deallocate(block, bytes);
            }};
  }
  void read(void* host, const void* memory, int64_t bytes) override {
    expectInside(memory, bytes);
    finish();
    counters_.bytesRead += bytes;
    std::memcpy(host, memory_.own(memory), bytes);
  }
  void write(void* memory, const void* host, int64_t bytes) override {
    expectInside(memory, bytes);
    finish();
    counters_.bytesWritten += bytes;
    std::memcpy(memory_.own(memory), host, bytes);
  }

  std::vector<std::shared_ptr<const Kernel>> compile(std::span<const tile::Program> programs) override {
    return cpu_->compile(programs);
  }
  int64_t scratchBytes(const Kernel& kernel, std::span<const uint64_t> slots) const override {
    return cpu_->scratchBytes(kernel, slots);
  }
  void expectRoutine(const Expr& op) const override {
    if (options_.expectRoutine) {
      options_.expectRoutine(op);
    }
  }
  std::shared_ptr<const Routine> routine(const Expr& op, const RoutineOptions& options) const override {
    if (options_.beforeRoutine) {
      options_.beforeRoutine(op);
    }
    return cpu_->routine(op, options);
  }
  std::unique_ptr<Queue> makeQueue() override { return std::make_unique<DelayingQueue>(*this); }
  std::unique_ptr<Event> makeEvent() override { return std::make_unique<TestEvent>(); }
  std::unique_ptr<Timer> makeTimer(int64_t points) override { return std::make_unique<DelayedTimer>(points); }
  std::optional<std::string_view> routineName(const Expr& op) const override { return cpu_->routineName(op); }
  Listings listings(const tile::Program& program) override { return cpu_->listings(program); }

 private:
  class DelayingQueue final : public Queue {
   public:
    explicit DelayingQueue(DelayingDevice& device)
        : device_(device), cpu_(device.cpu_->makeQueue()), worker_(device.options_.mostDelay) {
      const std::lock_guard lock(device_.mutex_);
      device_.workers_.insert(&worker_);
    }
    ~DelayingQueue() override {
      const std::lock_guard lock(device_.mutex_);
      device_.workers_.erase(&worker_);
    }

    void launch(const Launch& l) override {
      std::vector<uint64_t> slots(l.slots.begin(), l.slots.end());
      for (uint64_t& slot : slots) {
        slot = device_.memory_.own(slot);
      }
      const bool fails = device_.counters_.launches++ == device_.options_.failingLaunch;
      worker_.post([this, own = l, name = std::string(l.name), slots = std::move(slots), fails]() mutable {
        deviceCheck(!fails, "[test device] the launch of {} fails, as the test wants", name);
        Launch launch{.kernel = own.kernel,
                      .name = name,
                      .slots = slots,
                      .parts = own.parts,
                      .scratch = device_.memory_.own(own.scratch),
                      .scratchBytes = own.scratchBytes,
                      .checksIndices = own.checksIndices};
        cpu_->launch(launch);
      });
    }
    void call(const Routine& routine, std::span<void* const> operands, void* out, void* workspace) override {
      device_.counters_.calls++;
      std::vector<void*> own(operands.begin(), operands.end());
      for (void*& operand : own) {
        operand = device_.memory_.own(operand);
      }
      worker_.post([this, &routine, own = std::move(own), out, workspace] {
        cpu_->call(routine, own, device_.memory_.own(out), device_.memory_.own(workspace));
      });
    }
    void clear(void* memory, int64_t bytes) override {
      worker_.post([this, memory, bytes] { cpu_->clear(device_.memory_.own(memory), bytes); });
    }
    void copy(void* to, const void* from, std::span<const BytePiece> pieces) override {
      device_.counters_.copies++;
      worker_.post([this, to, from, own = std::vector<BytePiece>(pieces.begin(), pieces.end())] {
        cpu_->copy(device_.memory_.own(to), device_.memory_.own(from), own);
      });
    }
    void copyElements(const StridedElements& to, const StridedElements& from) override {
      device_.counters_.copies++;
      StridedElements target = to;
      StridedElements source = from;
      target.data = device_.memory_.own(to.data);
      source.data = device_.memory_.own(from.data);
      worker_.post([this, target, source] { cpu_->copyElements(target, source); });
    }
    void record(Event& event) override {
      const auto point = std::make_shared<Point>();
      static_cast<TestEvent&>(event).point = point;
      worker_.post([point] { point->set(); }, true);
    }
    void waitFor(const Event& event) override {
      if (const std::shared_ptr<Point> point = static_cast<const TestEvent&>(event).point) {
        worker_.post([point] { point->wait(); });
      }
    }
    void wait() override { worker_.wait(); }
    void noteTime(Timer::Clock::time_point& time) {
      worker_.post([&time] { time = Timer::Clock::now(); }, true);
    }

   private:
    DelayingDevice& device_;
    const std::unique_ptr<Queue> cpu_;
    Worker worker_;
  };

  class DelayedTimer final : public Timer {
   public:
    explicit DelayedTimer(int64_t points) : times_(points) {}
    void mark(int64_t point, Queue& queue) override { static_cast<DelayingQueue&>(queue).noteTime(times_[point]); }
    Clock::time_point timeOf(int64_t point) const override { return times_[point]; }

   private:
    std::vector<Clock::time_point> times_;
  };

  void expectInside(const void* memory, int64_t bytes) const {
    invariant(bytes == 0 || memory_.contains(std::bit_cast<uint64_t>(memory)),
              "[test device] {} was given an address that is not its own", id_.toString());
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    for (Worker* w : workers_) {
      w->drain();
    }
  }

  const DeviceId id_;
  const TestDeviceOptions options_;
  TwiceMapped memory_;
  const std::shared_ptr<Device> cpu_;
  TestDeviceCounters counters_;
  std::mutex mutex_;
  std::set<Worker*> workers_;
};

}  // namespace

TestDevice& testDevice(DeviceId id, const TestDeviceOptions& options) {
  static std::mutex mutex;
  static auto* const devices = new std::map<std::string, std::shared_ptr<DelayingDevice>>;
  const std::lock_guard lock(mutex);
  std::shared_ptr<DelayingDevice>& device = (*devices)[id.toString()];
  if (device == nullptr) {
    device = std::make_shared<DelayingDevice>(id, options);
    registerDevice(device);
  }
  return *device;
}

}  // namespace meshfuse
