#include "base/nearest_word.h"

#include <gtest/gtest.h>

#include <vector>

namespace meshfuse {
namespace {

TEST(NearestWord, IsSuggestedIfItIsNear) {
  const std::vector<std::string> words = {"explain", "run", "w0", "layers.0.weight"};
  EXPECT_EQ(nearestWord("rum", words), "; did you mean run?");
  EXPECT_EQ(nearestWord("layers.0.wieght", words), "; did you mean layers.0.weight?");
  EXPECT_EQ(nearestWord("compile", words), "");
  EXPECT_EQ(nearestWord("w", std::vector<std::string>{"x", "w0", "w1"}), "; did you mean w0?");
  EXPECT_EQ(nearestWord("run", {}), "");
  EXPECT_EQ(nearestWord("x", std::vector<std::string>{"", "weights"}), "") << "inputs without a name";
  EXPECT_EQ(nearestWord(std::string(100000, 'a'), std::vector{std::string(100000, 'b')}), "");
}

}  // namespace
}  // namespace meshfuse
