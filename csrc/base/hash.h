// Content hashes. The same bytes give the same hash on every rank, machine and run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace meshfuse {

// 128 bits of a text: two independently seeded streams of 64 bits, which take words of 8 bytes.
// For cache keys and plan agreement; not against an adversary.
struct Hash128 {
  uint64_t hi = 0;
  uint64_t lo = 0;

  friend bool operator==(const Hash128&, const Hash128&) = default;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;

  // 32 lower-case hexadecimal digits.
  std::string hex() const;
};

[[nodiscard]] Hash128 hashText(std::string_view text);
// FNV-1a with a final avalanche.
[[nodiscard]] uint64_t hash64(std::string_view text, uint64_t seed = 0);
[[nodiscard]] constexpr uint64_t hashCombine(uint64_t seed, uint64_t value) {
  uint64_t x = seed ^ (value + 0x9e3779b97f4a7c15ull + (seed << 6) + (seed >> 2));
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace meshfuse
