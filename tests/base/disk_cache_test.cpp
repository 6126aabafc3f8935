#include "base/disk_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

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
