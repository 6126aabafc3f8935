#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace meshfuse {
namespace {

TEST(Hash, AllBytesAndTheLengthCount) {
  std::set<Hash128> seen;
  std::set<uint64_t> halves;
  const auto add = [&](const std::string& text) {
    const Hash128 h = hashText(text);
    EXPECT_EQ(h, hashText(std::string(text)));
    EXPECT_TRUE(seen.insert(h).second) << text.size();
    EXPECT_TRUE(halves.insert(h.hi).second && halves.insert(h.lo).second) << text.size();
  };
  for (size_t size = 0; size <= 40; size++) {
    const std::string zeros(size, '\0');
    add(zeros);
    for (size_t at = 0; at < size; at++) {
      for (const int bit : {0, 3, 7}) {
        std::string changed = zeros;
        changed[at] = static_cast<char>(1 << bit);
        add(changed);
      }
    }
  }
}

// Words are read in one order on every machine: the value is part of files and of messages between ranks.
TEST(Hash, IsTheSameOnEveryMachine) {
  EXPECT_EQ(hashText("").hex(), hashText({}).hex());
  EXPECT_EQ(hashText("eight by").hex().size(), 32u);
  EXPECT_NE(hashText("eight by"), hashText("yb thgie"));
}

}  // namespace
}  // namespace meshfuse
