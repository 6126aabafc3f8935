// Which entries a full disk loses.
#include "base/sweep_entries.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "base/hash.h"

namespace meshfuse {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBytesOfBlock = 4096;  // of usual file systems

// A directory with entries of a block each; a later one was used later.
class SweepEntriesTest : public ::testing::Test {
 protected:
  SweepEntriesTest() {
    std::string pattern = (fs::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    for (int64_t k = 0; k < kEntries; k++) {
      std::ofstream(fileOf(k)) << std::string(kBytesOfBlock, 'x');
      fs::last_write_time(fileOf(k), fs::file_time_type::clock::now() - std::chrono::seconds(10'000 - 100 * k));
    }
  }
  ~SweepEntriesTest() override { fs::remove_all(directory_); }

  static constexpr int64_t kEntries = 10;
  std::string fileOf(int64_t k) const { return directory_ + "/" + hashText(std::to_string(k)).hex() + ".entry"; }

  // The number of entries that make room for `blocks` where `freeBlocks` are free; -1 if others than the oldest ones did.
  int64_t deletedFor(int64_t blocks, int64_t freeBlocks) {
    freeEntries(directory_, blocks * kBytesOfBlock, [&] { return freeBlocks * kBytesOfBlock; });
    int64_t first = 0;
    while (first < kEntries && !fs::exists(fileOf(first))) {
      first++;
    }
    return kEntries - std::distance(fs::directory_iterator(directory_), fs::directory_iterator()) == first ? first : -1;
  }

  std::string directory_;
};

TEST_F(SweepEntriesTest, NothingIsDeletedWhereAllEntriesWouldNotSuffice) {
  EXPECT_EQ(deletedFor(11, 0), 0);
  EXPECT_EQ(deletedFor(14, 3), 0);
  EXPECT_EQ(deletedFor(13, 3), 10);
}

TEST_F(SweepEntriesTest, NothingIsDeletedWhereThereIsRoomAlready) {
  EXPECT_EQ(deletedFor(4, 5), 0);
  EXPECT_EQ(deletedFor(4, 4), 2);  // the write failed all the same
}

TEST_F(SweepEntriesTest, TheOldestEntriesMakeTheRoomThatIsMissing) { EXPECT_EQ(deletedFor(7, 3), 4); }

TEST_F(SweepEntriesTest, AnEighthIsDeletedAtLeast) { EXPECT_EQ(deletedFor(1, 0), 2); }

// Several processes may find the disk full at once: the others look again once the first has made room.
TEST_F(SweepEntriesTest, RoomIsLookedForAfterAnotherProcessHasSwept) {
  const int other = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  std::atomic<bool> hasSwept = false;
  bool asked = false;
  {
    const std::jthread full([&] {
      freeEntries(directory_, kBytesOfBlock, [&]() -> int64_t {
        asked = true;
        return hasSwept ? 2 * kBytesOfBlock : 0;
      });
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    hasSwept = true;
    close(other);
  }
  EXPECT_TRUE(asked);
  EXPECT_TRUE(fs::exists(fileOf(0)));
}

TEST_F(SweepEntriesTest, TheDiskOfADirectoryTellsItsFreeBytes) {
  EXPECT_GT(freeBytesOf(directory_), 0);
  EXPECT_EQ(freeBytesOf(directory_ + "/absent"), 0);
}

}  // namespace
}  // namespace meshfuse
