// Random numbers that are the same on every machine: SplitMix64 (Steele, Lea and Flood, 2014).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace meshfuse::fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(mixed(seed)) {}  // mixed, so that seeds in a row do not share their numbers

  uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15ULL); }
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
};

}  // namespace meshfuse::fuzz
