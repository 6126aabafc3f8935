#include "calibration.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "figures.h"

namespace meshfuse {

namespace {

struct Node {
  int64_t value;
  std::vector<int64_t> digits;
};

// 40,000 nodes by name: one string, one small allocation and one map insert each, then a walk in order.
int64_t loop() {
  std::map<std::string, std::unique_ptr<Node>> nodes;
  uint64_t random = 1;
  for (int64_t i = 0; i < 40'000; i++) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    std::string name = "T" + std::to_string(random >> 40) + "[" + std::to_string(i % 97) + "]";
    nodes.emplace(std::move(name), std::make_unique<Node>(Node{i, {i, i + 1, i + 2}}));
  }
  int64_t sum = 0;
  for (const auto& [name, node] : nodes) {
    sum += node->value * std::ssize(name) + node->digits.back();
  }
  return sum;
}

}  // namespace

double calibrationMilliseconds() {
  static const double time = [] {
    std::vector<double> times;
    volatile int64_t sum = 0;
    for (int i = 0; i < 9; i++) {
      times.push_back(1e3 * secondsOf([&] { sum = loop(); }));
    }
    return median(times);
  }();
  return time;
}

}  // namespace meshfuse
