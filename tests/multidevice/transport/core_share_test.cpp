// The cores of a host that each of its ranks has for its threads.
#include "multidevice/transport/host/core_share.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace meshfuse {
namespace {

constexpr int64_t kNoQuota = std::numeric_limits<int64_t>::max();

// Sets that begin with these characters and have no further core.
std::vector<std::string> setsOf(const std::vector<std::string>& begins) {
  std::vector<std::string> sets;
  for (const std::string& begin : begins) {
    sets.push_back(begin + std::string(kCoreSetSize - begin.size(), '0'));
  }
  return sets;
}

std::vector<double> shares(const std::vector<std::string>& begins, int64_t quota = kNoQuota) {
  const std::vector<std::string> sets = setsOf(begins);
  std::vector<double> all;
  for (int64_t r = 0; r < std::ssize(sets); r++) {
    all.push_back(coreShare(sets, r, quota));
  }
  return all;
}

TEST(CoreShare, RanksWithCoresOfTheirOwnHaveAllOfThem) {
  EXPECT_EQ(shares({"11110000", "00001111"}), (std::vector<double>{4, 4}));
  EXPECT_EQ(shares({"1110000", "0001000"}), (std::vector<double>{3, 1}));
}

TEST(CoreShare, SharedCoresAreSharedEqually) {
  EXPECT_EQ(shares({"1111"}), (std::vector<double>{4}));
  EXPECT_EQ(shares({"1111", "1111"}), (std::vector<double>{2, 2}));
  EXPECT_EQ(shares({"111111", "111111", "111111"}), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(shares({"11", "11", "11", "11"}), (std::vector<double>{0.5, 0.5, 0.5, 0.5}));
  EXPECT_EQ(shares({"1000", "1111"}), (std::vector<double>{0.5, 3.5}));
}

TEST(CoreShare, AQuotaIsForAllRanksTogether) {
  EXPECT_EQ(shares({"11110000", "00001111"}, 4), (std::vector<double>{2, 2}));
  EXPECT_EQ(shares({"1000", "0111"}, 4), (std::vector<double>{1, 2}));
}

TEST(CoreShare, JointCoresAreCountedOnce) {
  EXPECT_EQ(jointCores(setsOf({"1100", "0110"})), 3);
  EXPECT_EQ(jointCores(setsOf({"0001", "0001"})), 1);
}

}  // namespace
}  // namespace meshfuse
