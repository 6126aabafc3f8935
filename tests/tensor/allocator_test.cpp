#include "tensor/allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/error.h"

namespace meshfuse {
namespace {

TEST(PooledAllocator, BlocksAreAlignedDisjointAndReused) {
  PooledAllocator pool;
  struct Block {
    unsigned char* at;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Block> blocks;
  for (size_t bytes : {0ul, 1ul, 63ul, 64ul, 65ul, 79ul, 81ul, 127ul, 129ul, 1000ul, 4096ul, 65537ul, 999'999ul,
                       1'048'577ul, 2'097'152ul, 2'097'153ul, 5'000'001ul}) {
    for (int repeat = 0; repeat < 3; repeat++) {
      auto* p = static_cast<unsigned char*>(pool.allocate(bytes));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % kTensorAlignment, 0u) << bytes;
      auto mark = static_cast<unsigned char>(blocks.size() * 37 + 1);
      std::memset(p, mark, bytes);
      blocks.push_back({p, bytes, mark});
    }
  }
  for (const Block& b : blocks) {
    for (size_t i = 0; i < b.bytes; i += 1 + b.bytes / 1000) {
      ASSERT_EQ(b.at[i], b.mark);
    }
    if (b.bytes > 0) {
      ASSERT_EQ(b.at[b.bytes - 1], b.mark);
    }
  }
  AllocatorStatistics before = pool.statistics();
  EXPECT_GT(before.bytesInUse, 0);
  for (const Block& b : blocks) {
    pool.deallocate(b.at, b.bytes);
  }
  EXPECT_EQ(pool.statistics().bytesInUse, 0);
  void* again = pool.allocate(5'000'001);
  EXPECT_EQ(pool.statistics().systemCalls, before.systemCalls);
  pool.deallocate(again, 5'000'001);
  pool.trim();
  EXPECT_LT(pool.statistics().bytesCached, 4 << 20);
  EXPECT_EQ(pool.statistics().peakBytesInUse, before.peakBytesInUse);
}

TEST(PooledAllocator, LargeBlocksStartOnHugePages) {
  PooledAllocator pool;
  void* p = pool.allocate(size_t{3} << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % (2 << 20), 0u);
  pool.deallocate(p, size_t{3} << 20);
}

TEST(PooledAllocator, GivesBackAboveTheLimit) {
  PooledAllocator pool(size_t{4} << 20);
  void* a = pool.allocate(size_t{4} << 20);
  void* b = pool.allocate(size_t{4} << 20);
  pool.deallocate(a, size_t{4} << 20);
  pool.deallocate(b, size_t{4} << 20);
  EXPECT_EQ(pool.statistics().bytesCached, 4 << 20);
}

TEST(PooledAllocator, RefusesWhatNoMachineHas) {
  PooledAllocator pool;
  EXPECT_THROW(pool.allocate(~size_t{0} - 5), UserError);
}

TEST(PooledAllocator, ThreadsShareIt) {
  PooledAllocator pool;
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&pool, &wrong, t] {
      for (int i = 0; i < 2000; i++) {
        size_t bytes = static_cast<size_t>(64 << (i % 6));
        auto* p = static_cast<int*>(pool.allocate(bytes));
        p[0] = t;
        p[bytes / 4 - 1] = i;
        wrong += p[0] != t || p[bytes / 4 - 1] != i;
        pool.deallocate(p, bytes);
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(pool.statistics().allocations, 8000);
  EXPECT_EQ(pool.statistics().bytesInUse, 0);
}

}  // namespace
}  // namespace meshfuse
