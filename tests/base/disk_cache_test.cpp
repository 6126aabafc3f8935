#include "base/disk_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace meshfuse {
namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public ::testing::Test {
 protected:
  DiskCacheTest() {
    std::string pattern = (fs::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~DiskCacheTest() override { fs::remove_all(root_); }
  std::string path() const { return root_ + "/deep/cache"; }

  std::string root_;
  Hash128 key_ = hashText("key");
};

TEST_F(DiskCacheTest, KeepsBytesBetweenObjects) {
  std::string bytes("a\0b\xff", 4);
  {
    DiskCache cache(path());
    EXPECT_FALSE(cache.load(key_));
    cache.store(key_, bytes);
    cache.store(hashText("empty"), "");
  }
  DiskCache cache(path());
  EXPECT_EQ(cache.load(key_), bytes);
  EXPECT_EQ(cache.load(hashText("empty")), "");
  EXPECT_FALSE(cache.load(hashText("other")));
  EXPECT_EQ(cache.counters().hits, 2);
  EXPECT_EQ(cache.counters().misses, 1);
  struct stat status {};
  ASSERT_EQ(stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(DiskCacheTest, AnyChangedByteIsAMissAndDeletesTheEntry) {
  DiskCache cache(path());
  std::string file = path() + "/" + key_.hex() + ".entry";
  cache.store(key_, "some bytes");
  auto size = static_cast<int>(fs::file_size(file));
  for (int at = 0; at < size; at++) {
    cache.store(key_, "some bytes");
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(at);
    int byte = f.get();
    f.seekp(at);
    f.put(static_cast<char>(byte ^ 1));
    f.close();
    ASSERT_FALSE(cache.load(key_)) << at;
    ASSERT_FALSE(fs::exists(file));
  }
  EXPECT_EQ(cache.counters().bad, size);
}

TEST_F(DiskCacheTest, TruncatedExtendedAndMisnamedEntriesAreBad) {
  DiskCache cache(path());
  std::string file = path() + "/" + key_.hex() + ".entry";
  cache.store(key_, "some bytes");
  fs::resize_file(file, 30);
  EXPECT_FALSE(cache.load(key_));
  cache.store(key_, "some bytes");
  fs::resize_file(file, fs::file_size(file) + 1);
  EXPECT_FALSE(cache.load(key_));
  cache.store(key_, "some bytes");
  fs::rename(file, path() + "/" + hashText("other").hex() + ".entry");
  EXPECT_FALSE(cache.load(hashText("other")));
}

// What is under the name of an entry may be no file, or as large as no entry: neither waits, and neither takes memory.
TEST_F(DiskCacheTest, PipesAndHugeFilesAreNoEntries) {
  DiskCache cache(path());
  const std::string file = path() + "/" + key_.hex() + ".entry";
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_FALSE(cache.load(key_));
  EXPECT_FALSE(fs::exists(file));
  cache.store(key_, "some bytes");
  constexpr uint64_t kHeaderBytes = 48;
  for (const uint64_t size : {uint64_t{1} << 42, ~uint64_t{0}, ~uint64_t{0} - kHeaderBytes}) {  // as the header says
    cache.store(key_, "some bytes");
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(24);
    f.write(reinterpret_cast<const char*>(&size), sizeof size);
    f.close();
    fs::resize_file(file, size < uint64_t{1} << 43 ? size + kHeaderBytes : kHeaderBytes);
    EXPECT_FALSE(cache.load(key_)) << size;
    EXPECT_FALSE(fs::exists(file));
  }
}

TEST_F(DiskCacheTest, LeavesNoPartialFiles) {
  DiskCache cache(path());
  cache.store(key_, std::string(100'000, 'x'));
  cache.store(key_, std::string(100'000, 'y'));
  int files = 0;
  for ([[maybe_unused]] const fs::directory_entry& e : fs::directory_iterator(path())) {
    files++;
  }
  EXPECT_EQ(files, 1);
  EXPECT_EQ((*cache.load(key_))[0], 'y');
}

// Makes an entry as old as `age`.
void makeOld(const std::string& file, std::chrono::seconds age) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - age);
}

constexpr int64_t kBlock = 4096;  // of usual file systems

int64_t filesIn(const std::string& directory) {
  return std::distance(fs::directory_iterator(directory), fs::directory_iterator());
}

TEST_F(DiskCacheTest, SmallEntriesCountAsBlocks) {
  constexpr int64_t kMost = 16 * kBlock;
  DiskCache cache(path(), kMost);
  for (int k = 0; k < 50; k++) {
    cache.store(hashText(std::to_string(k)), "some bytes");
  }
  EXPECT_LE(filesIn(path()), 16);
  EXPECT_GE(filesIn(path()), 12);
}

TEST_F(DiskCacheTest, OneProcessSweepsAtATime) {
  constexpr int64_t kMost = 4 * kBlock;
  DiskCache cache(path(), kMost);
  const auto storeTen = [&](const std::string& name) {
    for (int k = 0; k < 10; k++) {
      cache.store(hashText(name + std::to_string(k)), "some bytes");
    }
  };
  const int sweeper = open(path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(sweeper, LOCK_EX), 0);
  storeTen("first");
  EXPECT_EQ(filesIn(path()), 10);
  close(sweeper);
  storeTen("second");
  EXPECT_LE(filesIn(path()), 4);
}

// On a file system of 16 blocks.
TEST_F(DiskCacheTest, AFullDiskLosesTheEntriesThatWereNotUsedForLongest) {
  fs::create_directories(path());
  ASSERT_EQ(chmod(path().c_str(), 0700), 0);
  if (mount("tmpfs", path().c_str(), "tmpfs", 0, "size=64k,mode=0700") != 0) {
    GTEST_SKIP() << "this user cannot mount a file system of its own: " << std::strerror(errno);
  }
  DiskCache cache(path());  // with a limit that the disk cannot reach
  const auto keyOf = [](int k) { return hashText(std::to_string(k)); };
  const auto fileOf = [&](int k) { return path() + "/" + keyOf(k).hex() + ".entry"; };
  for (int k = 0; k < 40; k++) {
    cache.store(keyOf(k), std::string(kBlock - 48, 'x'));
    if (fs::exists(fileOf(k))) {
      makeOld(fileOf(k), std::chrono::seconds(10'000 - 100 * k));
    }
  }
  EXPECT_EQ(cache.counters().written, 40);
  EXPECT_FALSE(cache.load(keyOf(0)));
  for (int k = 30; k < 40; k++) {
    EXPECT_TRUE(cache.load(keyOf(k))) << k;
  }
  cache.store(key_, std::string(100 * kBlock, 'x'));  // larger than the disk
  EXPECT_FALSE(cache.load(key_));
  EXPECT_EQ(cache.counters().written, 40);
  for (int k = 30; k < 40; k++) {
    EXPECT_TRUE(cache.load(keyOf(k))) << k;  // no entry was deleted for it
  }
  for (const fs::directory_entry& e : fs::directory_iterator(path())) {
    EXPECT_EQ(e.path().extension(), ".entry");  // none half written
  }
  EXPECT_EQ(umount(path().c_str()), 0);
}

TEST_F(DiskCacheTest, TheEntriesUsedLastStayWithinTheLimit) {
  constexpr int64_t kMost = 10 * kBlock;
  DiskCache cache(path(), kMost);
  const auto fileOf = [&](int k) { return path() + "/" + hashText(std::to_string(k)).hex() + ".entry"; };
  const auto store = [&](int k) {
    cache.store(hashText(std::to_string(k)), std::string(kBlock - 48, 'x'));
  };  // with its header a block
  for (int k = 0; k < 8; k++) {
    store(k);
    makeOld(fileOf(k), std::chrono::seconds(10'000 - 100 * k));
  }
  EXPECT_TRUE(cache.load(hashText("1")));         // now it is the one used last
  makeOld(fileOf(3), std::chrono::hours(-1000));  // of a clock that was wrong
  const auto isKept = [&](int k) { return fs::exists(fileOf(k)); };
  for (int k = 8; k < 11; k++) {
    store(k);
  }
  EXPECT_FALSE(isKept(0));
  EXPECT_TRUE(isKept(1));
  EXPECT_FALSE(isKept(2));
  EXPECT_FALSE(isKept(3));
  EXPECT_TRUE(isKept(7));
  EXPECT_TRUE(isKept(10));
  int64_t bytes = 0;
  for (const fs::directory_entry& e : fs::directory_iterator(path())) {
    bytes += static_cast<int64_t>(e.file_size());
  }
  EXPECT_LE(bytes, kMost);
  EXPECT_GE(bytes, kMost * 3 / 4);
  cache.store(key_, std::string(2 * kMost, 'x'));  // more than all may have
  EXPECT_FALSE(cache.load(key_));
}

TEST_F(DiskCacheTest, WhatADeadWriterLeftIsDeletedAndNothingElse) {
  DiskCache cache(path(), 2 * kBlock);
  cache.store(key_, "some bytes");
  const std::string left = "/" + hashText("left").hex() + ".entry.1.0.partial";
  const std::string young = "/" + hashText("young").hex() + ".entry.1.1.partial";
  const std::vector<std::string> others = {"/notes", "/film.partial", "/notes.entry", "/a.entry.1.0.partial"};
  for (const std::string& name : others) {
    std::ofstream(path() + name) << std::string(5000, 'x');
    makeOld(path() + name, std::chrono::hours(2));
  }
  std::ofstream(path() + left) << std::string(5000, 'x');
  std::ofstream(path() + young) << std::string(5000, 'x');
  makeOld(path() + left, std::chrono::hours(2));
  cache.store(hashText("other"), std::string(500, 'x'));
  EXPECT_FALSE(fs::exists(path() + left));
  EXPECT_TRUE(fs::exists(path() + young));
  for (const std::string& name : others) {
    EXPECT_TRUE(fs::exists(path() + name)) << name;
  }
  EXPECT_EQ(cache.load(key_), "some bytes");
}

// Each entry is read whole or not at all while others are stored and deleted.
TEST_F(DiskCacheTest, ALimitHoldsAmongSeveralWriters) {
  constexpr int64_t kMost = 20 * kBlock;
  constexpr int kWriters = 4;
  {
    std::vector<std::jthread> writers;
    for (int w = 0; w < kWriters; w++) {
      writers.emplace_back([&, w] {
        DiskCache cache(path(), kMost);  // as a process has it
        for (int k = 0; k < 100; k++) {
          const std::string text = std::to_string((k * 7 + w * 3) % 50);
          const std::string bytes = text + std::string(4000, 'x');
          const std::optional<std::string> found = cache.load(hashText(text));
          EXPECT_TRUE(!found || *found == bytes);
          cache.store(hashText(text), bytes);
        }
        EXPECT_EQ(cache.counters().bad, 0);
      });
    }
  }
  DiskCache(path(), kMost).store(key_, "some bytes");  // with no other writer beside
  EXPECT_LE(filesIn(path()), kMost / kBlock);
  EXPECT_GT(filesIn(path()), kMost / kBlock / 2);
}

// A store of a few bytes seldom lists the directory, but on average once for 1/64 of the limit.
TEST_F(DiskCacheTest, StoresOfALargeDirectorySeldomListIt) {
  constexpr int64_t kMost = 640 * kBlock;
  DiskCache cache(path(), kMost);
  const std::string left = path() + "/" + hashText("left").hex() +
                           ".entry.1.0.partial";  // whose absence tells that a store has listed the directory
  int64_t lists = 0;
  for (int k = 0; k < 500; k++) {
    std::ofstream(left) << "x";
    makeOld(left, std::chrono::hours(2));
    cache.store(hashText(std::to_string(k)), std::string(kBlock - 48, 'x'));  // one of ten
    lists += fs::exists(left) ? 0 : 1;
  }
  EXPECT_GT(lists, 25);
  EXPECT_LT(lists, 100);
}

TEST_F(DiskCacheTest, RefusesDirectoriesThatOthersMayEnter) {
  fs::create_directories(path());
  ASSERT_EQ(chmod(path().c_str(), 0755), 0);
  EXPECT_THROW(DiskCache{path()}, UserError);
  ASSERT_EQ(chmod(path().c_str(), 0700), 0);
  EXPECT_NO_THROW(DiskCache{path()});
  fs::create_directory_symlink(path(), root_ + "/link");
  EXPECT_THROW(DiskCache{root_ + "/link"}, UserError);
  std::ofstream(root_ + "/file") << "x";
  EXPECT_THROW(DiskCache{root_ + "/file"}, UserError);
  EXPECT_THROW(DiskCache{""}, UserError);
}

}  // namespace
}  // namespace meshfuse
