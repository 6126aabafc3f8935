#include "base/reproducer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <vector>

namespace meshfuse {
namespace {

TEST(Reproducer, NamesThePassesUpToTheFailedOne) {
  const std::vector<std::string_view> passes = {"first", "second", "third"};
  const std::string path = writeReproducer(passes, "second", "fusion {\n}\n", {{"i0", 4}, {"i1.per2", 3}});
  ASSERT_NE(path, "");
  EXPECT_EQ(writeReproducer(passes, "second", "fusion {\n}\n", {{"i0", 4}, {"i1.per2", 3}}), path)
      << "named by the program and the sizes";
  EXPECT_NE(writeReproducer(passes, "second", "fusion {\n}\n"), path);
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(text.starts_with("# meshfuse ")) << text;
  const std::string command = "# meshfuse opt " + path + " --size i0=4 --size i1.per2=3 --pass=first,second\n";
  EXPECT_NE(text.find(": second failed\n" + command + "fusion {\n}\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace meshfuse
