// Allocations fail, one at a time: no rank waits for a rank that has left a call for want of memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "multidevice/multidevice_test.h"
#include "multidevice/transport/failure_cases.h"
#include "multidevice/transport/host/heap.h"
#include "multidevice/transport/loopback/loopback.h"
#include "multidevice/transport/processes.h"

namespace {

thread_local int64_t allocationsLeft = -1;  // of this thread, before one fails; negative: none fails

void* takeMemory(size_t bytes, size_t alignment = 0) noexcept {
  if (allocationsLeft >= 0 && allocationsLeft-- == 0) {
    return nullptr;
  }
  return alignment > 16 ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                        : std::malloc(std::max<size_t>(bytes, 1));
}

void* takeOrThrow(size_t bytes, size_t alignment = 0) {
  void* const p = takeMemory(bytes, alignment);
  if (p == nullptr) {
    throw std::bad_alloc();
  }
  return p;
}

}  // namespace

// Of this whole binary. Not inlined: else the compiler sees malloc without free, or free without malloc, and warns.
[[gnu::noinline]] void* operator new(size_t bytes) { return takeOrThrow(bytes); }
[[gnu::noinline]] void* operator new[](size_t bytes) { return takeOrThrow(bytes); }
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  return takeOrThrow(bytes, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void* operator new[](size_t bytes, std::align_val_t alignment) {
  return takeOrThrow(bytes, static_cast<size_t>(alignment));
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return takeMemory(bytes); }
[[gnu::noinline]] void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return takeMemory(bytes); }
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace meshfuse {
namespace {

constexpr std::string_view kRanOut = "out of memory";

// Runs the body; its n-th allocation, from 0, fails. True if the body left by that failure.
bool runsOut(int64_t n, const std::function<void()>& body) {
  allocationsLeft = n;
  bool ranOut = false;
  try {
    body();
  } catch (const std::bad_alloc&) {
    ranOut = true;
  }
  allocationsLeft = -1;
  return ranOut;
}

TEST(OutOfMemoryTest, ABlockThatCannotBeHandedOutIsFreeAgain) {
  constexpr size_t kHeap = size_t{1} << 20;
  int64_t n = 0;
  for (bool ranOut = true; ranOut; ++n) {
    const auto heap = std::make_shared<SharedHeap>(SharedMemory::create(kHeap));
    std::shared_ptr<void> block;
    ranOut = runsOut(n, [&] { block = heap->allocate(1000); });
    block = nullptr;
    EXPECT_NE(heap->allocate(kHeap - 4096), nullptr) << "allocation " << n;
  }
  EXPECT_GT(n, 2);
}

// Rank 0 runs out of memory in its second exchange, and stays there until its peers have ended.
std::string runOutInACall(Communicator& comm, int64_t n, const SharedCounters& ended) {
  std::string text = "no error";
  try {
    static_cast<void>(comm.exchange("a message"));
    const bool ranOut = runsOut(comm.rank() == 0 ? n : -1, [&] { static_cast<void>(comm.exchange("a message")); });
    if (ranOut) {
      text = kRanOut;
    } else {
      comm.barrier(comm.world());
    }
  } catch (const DeviceError& e) {
    text = e.what();
  }
  ended.add(0);
  ended.await(0, comm.size());
  return text;
}

void expectToldOfTheException(const std::string& text) {
  EXPECT_NE(text.find("[rank 0/3]"), std::string::npos) << text;
  EXPECT_NE(text.find("because of an exception"), std::string::npos) << text;
}

TEST(OutOfMemoryTest, OnLoopbackACallFailsOnAllRanks) {
  int64_t n = 0;
  for (bool ranOut = true; ranOut; ++n) {
    const SharedCounters ended(1);
    std::vector<std::string> texts(3);
    runLoopback(3, [&](Communicator& comm) { texts[comm.rank()] = runOutInACall(comm, n, ended); });
    ranOut = texts[0] == kRanOut;
    for (const std::string& text : {texts[1], texts[2]}) {
      if (ranOut) {
        expectToldOfTheException(text);
      } else {
        EXPECT_EQ(text, "no error");
      }
    }
  }
  EXPECT_GE(n, 2);  // a call allocates: it failed at least once
}

class OutOfMemoryOnAHostTest : public testing::Test {
 protected:
  void SetUp() override {
    if (MultiDeviceTest::launched()) {
      GTEST_SKIP() << "starts processes of its own; run it without a launcher";
    }
  }
};

TEST_F(OutOfMemoryOnAHostTest, ACallFailsOnAllRanks) {
  for (int64_t n = 0; n < 3; ++n) {
    const SharedCounters ended(1);
    const auto outcomes = runProcesses(3, [&](Communicator& comm) { return runOutInACall(comm, n, ended); },
                                       {.deadline = kFailureDeadline});
    EXPECT_EQ(outcomes[0].text, kRanOut);
    expectToldOfTheException(outcomes[1].text);
    expectToldOfTheException(outcomes[2].text);
  }
}

// Rank 0 runs out of memory when it rejoins: the others go on without it, and wait for no deadline.
std::string runOutInShrink(Communicator& comm, int64_t n, const SharedCounters& opened,
                           const SharedCounters& survived) {
  opened.meet(0, 3);
  comm.abort("a change of plan");
  if (comm.rank() == 0) {
    const bool ranOut = runsOut(n, [&] { static_cast<void>(comm.shrink()); });
    survived.await(0, 2);
    return std::string(ranOut ? kRanOut : "rejoined");
  }
  const Communicator::Survivors s = comm.shrink();
  const std::string wrong = checkSurvivors(*s.world, s.oldRanks, {1, 2});
  survived.add(0);
  return report("", wrong);
}

TEST_F(OutOfMemoryOnAHostTest, SurvivorsGoOnWithoutARankThatCannotRejoin) {
  for (int64_t n = 0; n < 4; ++n) {  // 0 to 2: the list of members; 3: the new world
    const SharedCounters opened(1);
    const SharedCounters survived(1);
    const auto outcomes = runProcesses(
        3, [&](Communicator& comm) { return runOutInShrink(comm, n, opened, survived); },
        {.deadline = kFailureDeadline}, kFailureDeadline);
    EXPECT_EQ(outcomes[0].text, kRanOut) << "allocation " << n;
    expectSay(outcomes, {1, 2}, {"\nsurvived"});
  }
}

}  // namespace
}  // namespace meshfuse
