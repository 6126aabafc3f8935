// The part of a dim that a rank holds, as one run, against all indices of the dim.
#include "multidevice/sharding/held_part.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace meshfuse {
namespace {

struct TestDigit {
  int64_t size;
  bool isOwned;
  int64_t value;  // if owned
};

// In row-major order of the digits
std::vector<int64_t> indicesWith(const std::vector<TestDigit>& digits) {
  std::vector<int64_t> held{0};
  for (const TestDigit& d : digits) {
    std::vector<int64_t> next;
    for (int64_t prefix : held) {
      for (int64_t v = 0; v < d.size; v++) {
        if (!d.isOwned || v == d.value) {
          next.push_back(prefix * d.size + v);
        }
      }
    }
    held = std::move(next);
  }
  return held;
}

TEST(HeldRun, IsTheIndicesOfTheOwnedDigits) {
  std::mt19937 rng(5);
  int runs = 0;
  int others = 0;
  for (int round = 0; round < 2000; round++) {
    std::vector<TestDigit> digits(1 + rng() % 4);
    std::vector<RankDigit> symbolic;
    std::map<std::string, int64_t> values;
    for (size_t k = 0; k < digits.size(); k++) {
      const int64_t size = 2 + static_cast<int64_t>(rng() % 3);
      digits[k] = {size, rng() % 2 == 0, static_cast<int64_t>(rng()) % size};
      const std::string number = std::to_string(k);
      values["size" + number] = size;
      values["at" + number] = digits[k].value;
      const IntExpr extent = IntExpr::symbol("size" + number, {.lower = 1});
      symbolic.push_back({extent, digits[k].isOwned ? std::optional(IntExpr::symbol("at" + number)) : std::nullopt});
    }
    const std::vector<int64_t> held = indicesWith(digits);
    const std::optional<SymbolicRun> run = heldRun(symbolic);
    bool isOneRun = true;
    for (size_t i = 2; i < held.size(); i++) {
      isOneRun = isOneRun && held[i] - held[i - 1] == held[1] - held[0];
    }
    if (!run) {
      others++;
      EXPECT_FALSE(isOneRun);
      continue;
    }
    runs++;
    const auto valueOf = [&](const IntExpr& e) { return e.evaluate(valuesIn(values)); };
    ASSERT_EQ(valueOf(run->count), static_cast<int64_t>(held.size()));
    EXPECT_EQ(valueOf(run->start), held.front());
    EXPECT_EQ(valueOf(run->last()), held.back());
    if (held.size() > 1) {
      EXPECT_EQ(valueOf(run->step), held[1] - held[0]);
    }
  }
  EXPECT_GT(runs, 1000);
  EXPECT_GT(others, 100);
}

}  // namespace
}  // namespace meshfuse
