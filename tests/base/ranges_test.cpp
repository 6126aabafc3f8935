#include "base/ranges.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace meshfuse {
namespace {

struct Named {
  std::string name;
  int64_t size;
};

bool isOdd(int x) { return x % 2 == 1; }

TEST(Ranges, MappedKeepsTheOrderAndTakesFunctionsMembersAndTypes) {
  const std::vector<Named> rows{{"a", 1}, {"b", 2}};
  EXPECT_EQ(mapped(rows, &Named::name), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(mapped<double>(rows, &Named::size), (std::vector<double>{1, 2}));
  EXPECT_EQ(mapped(std::map<int, int>{{3, 4}, {1, 2}}, [](const auto& entry) { return entry.first * entry.second; }),
            (std::vector<int>{2, 12}));
  EXPECT_TRUE(mapped(std::list<int>{}, isOdd).empty());
}

TEST(Ranges, FilteredKeepsTheOrder) {
  EXPECT_EQ(filtered(std::vector{5, 2, 3, 4}, isOdd), (std::vector{5, 3}));
  EXPECT_EQ(filtered(std::set<int>{4, 3, 1}, isOdd), (std::vector{1, 3}));
}

TEST(Ranges, SumsAndProductsStartAtZeroAndOneOfTheType) {
  const std::vector<Named> rows{{"a", int64_t{1} << 40}, {"b", 2}};
  EXPECT_EQ(sumOf(rows, &Named::size), (int64_t{1} << 40) + 2);
  EXPECT_EQ(productOf(rows, &Named::size), int64_t{1} << 41);
  EXPECT_EQ(sumOf(std::vector<double>{}), 0.0);
  EXPECT_EQ(productOf(std::vector<int>{}), 1);
}

TEST(Ranges, PositionInIsTheFirstOrTheNumberOfElements) {
  const std::vector<char> letters{'a', 'b', 'b'};
  EXPECT_EQ(positionIn(letters, 'b'), 1);
  EXPECT_EQ(positionIn(letters, 'c'), 3);
  EXPECT_TRUE(contains(letters, 'a'));
  EXPECT_FALSE(contains(letters, 'c'));
}

TEST(Ranges, JoinedSeparatesEmptyTextsToo) {
  EXPECT_EQ(joined(std::vector<std::string>{"", "x", ""}, ", "), ", x, ");
  EXPECT_EQ(joined(std::vector<int>{1, 2}, " ", [](int x) { return std::to_string(x); }), "1 2");
  EXPECT_EQ(joined(std::vector<std::string>{}, ", "), "");
}

TEST(Ranges, AppendKeepsTheOrderAndItsSource) {
  std::vector<std::string> all{"a"};
  const std::vector<std::string> more{"b", "c"};
  append(all, more);
  EXPECT_EQ(all, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(more, (std::vector<std::string>{"b", "c"}));
  for (const int64_t k : indices(all)) {
    EXPECT_EQ(all[k], std::string(1, static_cast<char>('a' + k)));
  }
}

}  // namespace
}  // namespace meshfuse
