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
  EXPECT_EQ(hashText("").hex(), "ce134f916eb7481c0bd3c2631b33b7d9");
  EXPECT_EQ(hashText("7 bytes").hex(), "1664d7092683a30c1f70b3a9237de9ab");
  EXPECT_EQ(hashText("eight by").hex(), "6b0a4b2060f69b044aa7a49d64aed69d");
  EXPECT_EQ(hashText("nine \xff\x80\x01.").hex(), "8fb16384e96ae2fe1c4d212a6d4aa122");
  EXPECT_EQ(hashText("seventeen bytes \xfe").hex(), "dc41e6e36b409e09aa96fc3588b4e2e4");
}

}  // namespace
}  // namespace meshfuse
