// Memory that passes from one binding to the next.
#include "host/arena_pool.h"

#include <gtest/gtest.h>

namespace meshfuse {

namespace {

TEST(ArenaPool, GivesWhatHasComeBack) {
  const auto pool = std::make_shared<ArenaPool>();
  std::vector<int64_t> allocated;
  const ArenaPool::Allocate allocate = [&](int64_t bytes) {
    allocated.push_back(bytes);
    return std::shared_ptr<void>(::operator new(bytes), [](void* memory) { ::operator delete(memory); });
  };
  std::shared_ptr<void> first = pool->take(1000, allocate);
  const void* const address = first.get();
  std::shared_ptr<void> second = pool->take(1000, allocate);
  EXPECT_NE(second.get(), address) << "the first is in use";
  first.reset();
  EXPECT_EQ(pool->take(1020, allocate).get(), address) << "capacities are rounded up";
  EXPECT_NE(pool->take(1300, allocate).get(), address) << "too small";
  EXPECT_EQ(pool->take(1, allocate).get(), address) << "the smallest that suffices";
  EXPECT_EQ(allocated, (std::vector<int64_t>{1024, 1024, 1536}));
}

TEST(ArenaPool, GivesNoLargeMemoryForSmall) {
  const auto pool = std::make_shared<ArenaPool>();
  const ArenaPool::Allocate allocate = [](int64_t bytes) {
    return std::shared_ptr<void>(::operator new(bytes), [](void* memory) { ::operator delete(memory); });
  };
  const void* const large = pool->take(1 << 20, allocate).get();
  const std::shared_ptr<void> small = pool->take(100'000, allocate);
  EXPECT_NE(small.get(), large);
  EXPECT_EQ(pool->take(1 << 19, allocate).get(), large);
}

TEST(ArenaPool, KeepsTheTwoLargest) {
  int64_t live = 0;
  const auto pool = std::make_shared<ArenaPool>();
  const ArenaPool::Allocate allocate = [&](int64_t bytes) {
    live++;
    return std::shared_ptr<void>(::operator new(bytes), [&](void* memory) {
      live--;
      ::operator delete(memory);
    });
  };
  for (const int64_t bytes : {100, 200, 400, 800}) {
    (void)pool->take(bytes, allocate);
  }
  EXPECT_EQ(live, 2);
  (void)pool->take(800, allocate);
  EXPECT_EQ(live, 2);
}

}  // namespace

}  // namespace meshfuse
