#include "base/regular_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace meshfuse {
namespace {

class RegularFileTest : public ::testing::Test {
 protected:
  RegularFileTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~RegularFileTest() override { std::filesystem::remove_all(root_); }
  std::string file(const std::string& name, const std::string& bytes) const {
    std::ofstream(root_ + "/" + name, std::ios::binary) << bytes;
    return root_ + "/" + name;
  }
  static std::string refusal(const std::string& path, int64_t most = 100) {
    try {
      (void)readRegularFile("x", path, most);
    } catch (const UserError& e) {
      return e.what();
    }
    return "none";
  }

  std::string root_;
};

TEST_F(RegularFileTest, IsReadInParts) {
  const std::string bytes("a\0bcd", 5);
  const RegularFile f("x", file("five", bytes));
  EXPECT_EQ(f.size(), 5);
  std::string read(5, ' ');
  f.read(read.data(), 2);
  f.read(read.data() + 2, 3);
  EXPECT_EQ(read, bytes);
  EXPECT_THROW(f.read(read.data(), 1), UserError);  // the end
  EXPECT_EQ(readRegularFile("x", f.path(), 5), bytes);
  EXPECT_EQ(readRegularFile("x", file("empty", ""), 5), "");
}

TEST_F(RegularFileTest, NothingElseIs) {
  const std::string pipe = root_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(refusal(pipe), "[x] " + pipe + " is a pipe, expected a regular file; give a file");
  EXPECT_EQ(refusal(root_), "[x] " + root_ + " is a directory, expected a regular file; give a file");
  EXPECT_EQ(refusal("/dev/zero"), "[x] /dev/zero is a device, expected a regular file; give a file");
  EXPECT_EQ(refusal(root_ + "/none"),
            "[x] cannot open " + root_ + "/none: No such file or directory; check that it exists and is readable");
  EXPECT_EQ(refusal(file("five", "abcde"), 4),
            "[x] " + root_ + "/five has 5 bytes, expected at most 4; give a smaller file");
}

// Takes no memory: a file without blocks, as long as no disk.
TEST_F(RegularFileTest, ALongerFileIsRefusedByItsSize) {
  const std::string sparse = file("sparse", "");
  std::filesystem::resize_file(sparse, uintmax_t{1} << 42);
  EXPECT_EQ(refusal(sparse, 1 << 26),
            "[x] " + sparse + " has 4398046511104 bytes, expected at most 67108864; give a smaller file");
}

}  // namespace
}  // namespace meshfuse
