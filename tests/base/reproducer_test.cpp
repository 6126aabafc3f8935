#include "base/reproducer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <vector>

namespace meshfuse {
namespace {

TEST(Reproducer, NamesTheFailedPassAndThoseAfterIt) {
  const std::vector<std::string_view> passes = {"first", "second", "third"};
  const std::string path = writeReproducer(passes, "second", "fusion {\n}\n");
  ASSERT_NE(path, "");
  EXPECT_EQ(writeReproducer(passes, "second", "fusion {\n}\n"), path) << "named by the program";
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(text.starts_with("# meshfuse ")) << text;
  EXPECT_NE(text.find(": second failed\n# remaining passes: second,third\nfusion {\n}\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace meshfuse
