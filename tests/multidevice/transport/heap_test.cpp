#include "multidevice/transport/host/heap.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <thread>
#include <vector>

#include "base/hash.h"

namespace meshfuse {
namespace {

std::shared_ptr<SharedHeap> makeHeap(size_t bytes) { return std::make_shared<SharedHeap>(SharedMemory::create(bytes)); }

TEST(SharedHeapTest, BlocksDoNotOverlapAndAreFoundByAddress) {
  auto heap = makeHeap(size_t{1} << 30);
  std::vector<std::pair<std::shared_ptr<void>, size_t>> blocks;
  uint64_t state = 3;
  for (int i = 0; i < 2000; ++i) {
    state = hashCombine(state, 1);
    if (state % 3 == 0 && !blocks.empty()) {
      blocks.erase(blocks.begin() + (state / 3 % blocks.size()));
      continue;
    }
    const size_t bytes = state % 7 == 0 ? state / 7 % 300'000 : state / 7 % 600;
    blocks.emplace_back(heap->allocate(bytes), bytes);
    auto* p = static_cast<unsigned char*>(blocks.back().first.get());
    ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % (bytes >= 4096 ? 4096 : 256), 0u);
    std::memset(p, static_cast<int>(blocks.size() % 251), bytes);
    ASSERT_GE(heap->offsetOf(p, static_cast<int64_t>(bytes)), 0);
  }
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (auto& [block, bytes] : blocks) {
    ranges.emplace_back(heap->offsetOf(block.get(), 0), static_cast<int64_t>(bytes));
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    ASSERT_LE(ranges[i - 1].first + ranges[i - 1].second, ranges[i].first);
  }
}

TEST(SharedHeapTest, FreedMemoryIsUsedAgain) {
  auto heap = makeHeap(size_t{1} << 30);
  std::vector<std::shared_ptr<void>> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(heap->allocate(100'000));
  }
  const int64_t first = heap->offsetOf(blocks[0].get(), 0);
  blocks.clear();
  EXPECT_EQ(heap->offsetOf(heap->allocate(800'000).get(), 0), first);
}

TEST(SharedHeapTest, AFullHeapGivesNothing) {
  auto heap = makeHeap(size_t{4} << 20);
  EXPECT_EQ(heap->allocate(size_t{5} << 20), nullptr);
  auto most = heap->allocate(size_t{3} << 20);
  EXPECT_NE(most, nullptr);
  EXPECT_EQ(heap->allocate(size_t{2} << 20), nullptr);
  int local = 0;
  EXPECT_EQ(heap->offsetOf(&local, 4), -1);
  EXPECT_EQ(heap->offsetOf(most.get(), size_t{5} << 20), -1) << "a block that ends outside the heap is not in it";
}

TEST(SharedHeapTest, BlocksOutliveTheHeapsOwner) {
  auto heap = makeHeap(size_t{1} << 24);
  auto block = heap->allocate(1000);
  heap.reset();
  std::memset(block.get(), 1, 1000);
  std::thread([b = std::move(block)]() mutable { b.reset(); }).join();
}

TEST(SharedMemoryTest, OthersSeeWhatTheOwnerWrites) {
  const SharedMemory own = SharedMemory::create(size_t{1} << 20);
  const SharedMemory other = SharedMemory::open(own.descriptor(), SharedMemory::Access::ReadOnly);
  ASSERT_EQ(other.bytes(), own.bytes());
  own.data()[77] = std::byte{5};
  EXPECT_EQ(other.data()[77], std::byte{5});
}

TEST(SharedMemoryTest, NobodyChangesItsSize) {
  const SharedMemory own = SharedMemory::create(size_t{1} << 20);
  EXPECT_NE(ftruncate(own.descriptor().get(), 0), 0);
  EXPECT_NE(ftruncate(own.descriptor().get(), 2 << 20), 0);
}

TEST(SharedMemoryTest, NeitherAFileNorMemoryThatCanShrinkIsMapped) {
  const Descriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const Descriptor unsealed(memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const Descriptor halfSealed(memfd_create("half sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  ASSERT_EQ(ftruncate(halfSealed.get(), 4096), 0);
  ASSERT_EQ(fcntl(halfSealed.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  for (const Descriptor* descriptor : {&file, &unsealed, &halfSealed}) {
    ASSERT_TRUE(descriptor->open());
    EXPECT_FALSE(SharedMemory::open(*descriptor, SharedMemory::Access::ReadOnly).valid());
  }
  EXPECT_FALSE(SharedMemory::open(Descriptor(), SharedMemory::Access::ReadOnly).valid());
}

}  // namespace
}  // namespace meshfuse
