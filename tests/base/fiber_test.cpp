#include "base/fiber.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <csignal>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace meshfuse {
namespace {

TEST(Fiber, PausesUntilWhatItWaitsForHasCome) {
  std::string order;
  int64_t come = 0;
  Fiber fiber([&] {
    order += 'a';
    Fiber::pauseUntil([&] { return come >= 1; });
    order += 'b';
    Fiber::pauseUntil([&] { return come >= 2; });
    order += 'c';
  });
  for (int64_t run = 0; run < 3; run++) {
    order.clear();
    come = 0;
    EXPECT_FALSE(fiber.start());
    EXPECT_TRUE(fiber.isPaused());
    EXPECT_FALSE(fiber.resume());
    EXPECT_EQ(order, "a");
    come = 1;
    EXPECT_FALSE(fiber.resume());
    EXPECT_FALSE(fiber.resume());
    EXPECT_EQ(order, "ab");
    come = 2;
    EXPECT_TRUE(fiber.resume());
    EXPECT_FALSE(fiber.isPaused());
    EXPECT_EQ(order, "abc");
  }
  EXPECT_TRUE(fiber.start());  // all has come: it never pauses
}

TEST(Fiber, MustEndWhenItIsFinished) {
  std::vector<bool> pauses;
  Fiber fiber([&] {
    for (int64_t wait = 0; wait < 3; wait++) {
      pauses.push_back(Fiber::pauses());
      Fiber::pauseUntil([] { return false; });
    }
  });
  for (int64_t run = 0; run < 2; run++) {  // the next run pauses again
    pauses.clear();
    EXPECT_FALSE(fiber.start());
    EXPECT_FALSE(fiber.resume());
    fiber.finish();
    EXPECT_FALSE(fiber.isPaused());
    EXPECT_EQ(pauses, (std::vector{true, false, false}));
  }
  EXPECT_FALSE(Fiber::pauses());
  Fiber::pauseUntil([] { return false; });  // no fiber: returns
}

TEST(Fiber, ThrowsWhatItsWorkThrows) {
  bool fails = true;
  Fiber fiber([&] {
    Fiber::pauseUntil([] { return false; });
    if (fails) {
      throw std::runtime_error("lost");
    }
  });
  EXPECT_FALSE(fiber.start());
  try {
    throw std::logic_error("first");
  } catch (const std::logic_error&) {  // while another exception is handled
    EXPECT_THROW(fiber.finish(), std::runtime_error);
    EXPECT_NE(std::current_exception(), nullptr);
  }
  fails = false;
  EXPECT_FALSE(fiber.start());
  fiber.finish();
}

bool isBlocked(int signal) {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  return sigismember(&mask, signal) == 1;
}

// The modes of the caller at each switch, not those of the fiber's last one; the work's own modes are not the caller's.
TEST(Fiber, ComputesInTheModesOfItsCaller) {
  std::vector<int> roundings;
  std::vector<bool> blocked;
  const auto note = [&] {
    roundings.push_back(std::fegetround());
    blocked.push_back(isBlocked(SIGUSR2));
  };
  Fiber fiber([&] {
    note();
    Fiber::pauseUntil([first = true]() mutable { return !std::exchange(first, false); });
    note();
    std::fesetround(FE_TOWARDZERO);
  });
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGUSR2);
  EXPECT_FALSE(fiber.start());
  std::fesetround(FE_UPWARD);
  EXPECT_TRUE(fiber.resume());
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  std::fesetround(FE_DOWNWARD);
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  EXPECT_FALSE(fiber.start());
  pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  std::fesetround(FE_TONEAREST);
  fiber.finish();
  EXPECT_EQ(std::fegetround(), FE_TONEAREST);
  EXPECT_EQ(roundings, (std::vector{FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TONEAREST}));
  EXPECT_EQ(blocked, (std::vector{false, false, true, false}));
}

TEST(Fiber, GoesOnOnlyIfItIsPaused) {
  Fiber fiber([] { Fiber::pauseUntil([] { return false; }); });
  EXPECT_THROW(fiber.resume(), InternalError);
  EXPECT_THROW(fiber.finish(), InternalError);
  EXPECT_FALSE(fiber.start());
  EXPECT_THROW(fiber.start(), InternalError);
  fiber.finish();
  EXPECT_THROW(fiber.finish(), InternalError);
}

TEST(Fiber, ManyArePausedAtATime) {
  constexpr int64_t kFibers = 20;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<int64_t> sums(kFibers);
  int64_t come = 0;
  for (int64_t k = 0; k < kFibers; k++) {
    fibers.push_back(std::make_unique<Fiber>([&, k] {
      for (int64_t i = 1; i <= 10; i++) {
        Fiber::pauseUntil([&] { return come >= i; });
        sums[k] += i * k;
      }
    }));
    EXPECT_FALSE(fibers.back()->start());
  }
  for (come = 1; come <= 10; come++) {
    for (const auto& fiber : fibers) {
      EXPECT_EQ(fiber->resume(), come == 10);
    }
  }
  for (int64_t k = 0; k < kFibers; k++) {
    EXPECT_EQ(sums[k], 55 * k);
  }
}

}  // namespace
}  // namespace meshfuse
