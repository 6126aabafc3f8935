#include "base/exact.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace meshfuse {
namespace {

constexpr int64_t kMost = INT64_MAX;

TEST(Exact, GivesWhatFits) {
  EXPECT_EQ(addExact(kMost - 1, 1), kMost);
  EXPECT_EQ(addExact(INT64_MIN, kMost), -1);
  EXPECT_EQ(mulExact(int64_t{1} << 31, int64_t{1} << 31), int64_t{1} << 62);
  EXPECT_EQ(mulExact(int64_t{1} << 62, -2), INT64_MIN);
  EXPECT_EQ(sumExact(std::vector<int64_t>{}), 0);
  EXPECT_EQ(sumExact(std::vector<int64_t>{1, 2, 3}, [](int64_t x) { return 10 * x; }), 60);
  EXPECT_EQ(productExact(std::vector<int64_t>{}), 1);
  EXPECT_EQ(productExact(std::vector<int64_t>{2, 3, 4}), 24);
  EXPECT_EQ(productExact(std::vector<int64_t>{kMost, kMost, 0}), 0);
  EXPECT_EQ(addedIfExact(1, 2), 3);
  EXPECT_EQ(multipliedIfExact(-3, 2), -6);
  EXPECT_EQ(exactInt(uint64_t{kMost}), kMost);
  EXPECT_EQ(exactInt(static_cast<int8_t>(-5)), -5);
}

TEST(Exact, RefusesWhatDoesNot) {
  EXPECT_EQ(addedIfExact(kMost, 1), std::nullopt);
  EXPECT_EQ(multipliedIfExact(INT64_MIN, -1), std::nullopt);
  EXPECT_THROW((void)addExact(INT64_MIN, -1), UserError);
  EXPECT_THROW((void)exactInt(uint64_t{1} << 63), UserError);
  EXPECT_THROW((void)exactInt(UINT64_MAX), UserError);
  EXPECT_THROW((void)sumExact(std::vector<int64_t>{kMost, kMost}), UserError);
  EXPECT_THROW((void)productExact(std::vector<int64_t>{int64_t{1} << 32, int64_t{1} << 32}), UserError);
  try {
    (void)mulExact(kMost, 4);
    ADD_FAILURE() << "no error";
  } catch (const UserError& e) {
    EXPECT_EQ(std::string(e.what()),
              "[sizes] got 9223372036854775807 * 4, expected a result of 64 bits; use smaller sizes");
  }
}

}  // namespace
}  // namespace meshfuse
