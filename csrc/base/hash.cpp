#include "base/hash.h"

#include <fmt/format.h>

namespace meshfuse {

namespace {

constexpr uint64_t begin(uint64_t seed) { return 0xcbf29ce484222325ull ^ (seed * 0x9e3779b97f4a7c15ull); }
constexpr uint64_t next(uint64_t h, unsigned char c) { return (h ^ c) * 0x100000001b3ull; }

// 8 bytes, the first one least.
uint64_t wordOf(const char* at) {
  uint64_t word = 0;
  for (int i = 0; i < 8; i++) {
    word |= uint64_t{static_cast<unsigned char>(at[i])} << (8 * i);
  }
  return word;
}

}  // namespace

uint64_t hash64(std::string_view text, uint64_t seed) {
  uint64_t h = begin(seed);
  for (unsigned char c : text) {
    h = next(h, c);
  }
  return hashCombine(h, text.size());
}

Hash128 hashText(std::string_view text) {
  Hash128 h{begin(1), begin(2)};
  const std::string_view rest = text.substr(text.size() / 8 * 8);
  for (size_t i = 0; i + 8 <= text.size(); i += 8) {
    const uint64_t word = wordOf(text.data() + i);
    h = {hashCombine(h.hi, word), hashCombine(h.lo, word)};
  }
  for (unsigned char c : rest) {
    h = {next(h.hi, c), next(h.lo, c)};
  }
  return {hashCombine(h.hi, text.size()), hashCombine(h.lo, text.size())};
}

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", hi, lo); }

}  // namespace meshfuse
