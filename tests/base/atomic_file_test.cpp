#include "base/atomic_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/regular_file.h"

namespace meshfuse {
namespace {

class AtomicFileTest : public ::testing::Test {
 protected:
  AtomicFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~AtomicFileTest() override { std::filesystem::remove_all(root_); }
  int64_t files() const {
    return std::distance(std::filesystem::directory_iterator(root_), std::filesystem::directory_iterator());
  }
  void write(const std::string& text) const {
    AtomicFile f("x", root_ + "/f");
    f.write(text.data(), std::ssize(text));
    f.commit();
  }

  std::string root_;
};

TEST_F(AtomicFileTest, AppearsWhole) {
  write("old");
  {
    AtomicFile f("x", root_ + "/f");
    f.write("new", 3);
    EXPECT_EQ(readRegularFile("x", root_ + "/f", 10), "old");
    f.commit();
  }
  EXPECT_EQ(readRegularFile("x", root_ + "/f", 10), "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFileTest, WithoutACommitNothingRemains) {
  write("old");
  {
    AtomicFile f("x", root_ + "/f");
    f.write("new", 3);
  }
  EXPECT_EQ(readRegularFile("x", root_ + "/f", 10), "old");
  EXPECT_EQ(files(), 1);
}

TEST_F(AtomicFileTest, AMapKeepsTheOlderFile) {
  write("old");
  const auto old = RegularFile("x", root_ + "/f").map();
  write("new");
  EXPECT_EQ(std::string(old.get(), 3), "old");
  old.get()[0] = 'c';  // the memory, not the file
  EXPECT_EQ(std::string(old.get(), 3), "cld");
  EXPECT_EQ(readRegularFile("x", root_ + "/f", 10), "new");
}

TEST_F(AtomicFileTest, OnlyARegularFileIsReplaced) {
  EXPECT_THROW(AtomicFile("x", root_), UserError);
  EXPECT_THROW(AtomicFile("x", "/dev/null"), UserError);
  EXPECT_THROW(AtomicFile("x", root_ + "/none/f"), UserError);
  struct stat status {};
  ASSERT_EQ(stat("/dev/null", &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
}

}  // namespace
}  // namespace meshfuse
