#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/error.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

TEST(ThreadPool, EveryPartOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool({.threads = threads});
    ASSERT_EQ(pool.threads(), threads);
    for (int64_t parts : {0, 1, 2, 7, 64, 1001}) {
      for (int64_t grain : {0, 1, 5, 5000}) {
        std::vector<std::atomic<int>> seen(parts);
        std::atomic<bool> badWorker{false};
        pool.run(
            parts,
            [&](int64_t begin, int64_t end, int worker) {
              badWorker = badWorker || worker < 0 || worker >= threads;
              for (int64_t p = begin; p < end; p++) {
                seen[p]++;
              }
            },
            grain);
        for (const std::atomic<int>& s : seen) {
          ASSERT_EQ(s, 1);
        }
        ASSERT_FALSE(badWorker);
      }
    }
  }
}

// A helper that ends the last range of a run looks for more while the caller already prepares the next run, which may have more ranges.
TEST(ThreadPool, ARangeOfTheNextRunIsNotClaimedEarly) {
  std::vector<std::atomic<int>> seen(48);
  for (int threads : {2, 3, 8}) {
    ThreadPool pool({.threads = threads});
    for (int run = 0; run < (kSanitized ? 10'000 : 100'000); run++) {
      const int64_t parts = run % 2 == 0 ? 2 + run / 2 % 3 : 16 + run / 2 % 32;
      pool.run(
          parts, [&](int64_t begin, int64_t, int) { seen[begin]++; }, 1);
      for (int64_t p = 0; p < parts; p++) {
        ASSERT_EQ(seen[p].exchange(0), 1) << "part " << p << " of run " << run;
      }
    }
  }
}

TEST(ThreadPool, AWorkerRunsOneRangeAtATime) {
  ThreadPool pool({.threads = 4});
  std::vector<std::atomic<int>> busy(4);
  std::atomic<int> clashes{0};
  for (int repeat = 0; repeat < 200; repeat++) {
    pool.run(
        64,
        [&](int64_t, int64_t, int worker) {
          auto& b = busy[worker];
          clashes += b.exchange(1) != 0;
          b = 0;
        },
        1);
  }
  EXPECT_EQ(clashes, 0);
}

TEST(ThreadPool, ThrowsTheExceptionOfARangeAndStaysUsable) {
  ThreadPool pool({.threads = 3});
  for (int repeat = 0; repeat < 20; repeat++) {
    EXPECT_THROW(pool.run(
                     30,
                     [](int64_t begin, int64_t, int) {
                       if (begin == 7) {
                         throw std::runtime_error("seven");
                       }
                     },
                     1),
                 std::runtime_error);
    std::atomic<int64_t> sum{0};
    pool.run(
        30, [&](int64_t begin, int64_t end, int) { sum += end - begin; }, 1);
    EXPECT_EQ(sum, 30);
  }
}

TEST(ThreadPool, NestedRunsAreDoneByTheirWorker) {
  ThreadPool pool({.threads = 2});
  std::atomic<int64_t> sum{0};
  std::atomic<int> moved{0};
  pool.run(
      8,
      [&](int64_t, int64_t, int outer) {
        pool.run(10, [&](int64_t begin, int64_t end, int worker) {
          sum += end - begin;
          moved += worker != outer;
        });
      },
      1);
  EXPECT_EQ(sum, 80);
  EXPECT_EQ(moved, 0);
}

TEST(ThreadPool, CallersTakeTurnsAndRanksHoldTheirOwn) {
  ThreadPool shared({.threads = 2});
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; t++) {
    callers.emplace_back([&] {
      ThreadPool own({.threads = 2, .spin = false});
      for (int i = 0; i < 100; i++) {
        shared.run(
            5, [&](int64_t begin, int64_t end, int) { sum += end - begin; }, 1);
        own.run(
            5, [&](int64_t begin, int64_t end, int) { sum += end - begin; }, 1);
      }
    });
  }
  for (std::thread& t : callers) {
    t.join();
  }
  EXPECT_EQ(sum, 3 * 100 * 10);
}

TEST(ThreadPool, WakesHelpersThatSleep) {
  ThreadPool pool({.threads = 2, .spin = false});
  for (int i = 0; i < 3; i++) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<bool> other{false};
    // Part 0 ends only when another thread has run part 1.
    pool.run(
        2,
        [&](int64_t begin, int64_t, int) {
          if (begin == 1) {
            other = true;
          }
          while (!other) {
            std::this_thread::yield();
          }
        },
        1);
  }
}

TEST(ThreadPool, RefusesNonsense) { EXPECT_THROW(ThreadPool({.threads = -1}), UserError); }

}  // namespace
}  // namespace meshfuse
