// Random numbers that are the same on every machine: SplitMix64 (Steele, Lea and Flood, 2014).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace meshfuse::fuzz {

class Random {
 public:
  // Mixed, so that seeds in a row do not share their numbers. The first numbers are the choices, two bytes each: who changes a byte changes
  // one decision.
  explicit Random(uint64_t seed, std::string_view choices = {}) : state_(mixed(seed)), choices_(choices) {}

  uint64_t next() {
    if (choices_.size() >= 2) {
      const uint64_t chosen = static_cast<uint8_t>(choices_[0]) + 256U * static_cast<uint8_t>(choices_[1]);
      choices_.remove_prefix(2);
      return chosen;
    }
    return mixed(state_ += 0x9e3779b97f4a7c15ULL);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }  // both included
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  const T& of(const std::vector<T>& items) {
    return items[below(std::ssize(items))];
  }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; i--) {
      std::swap(items[i - 1], items[below(static_cast<int64_t>(i))]);
    }
  }

 private:
  static uint64_t mixed(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  uint64_t state_;
  std::string_view choices_;
};

}  // namespace meshfuse::fuzz
