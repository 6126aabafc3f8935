#include "base/hash.h"

#include <fmt/format.h>

namespace meshfuse {

uint64_t hash64(std::string_view text, uint64_t seed) {
  uint64_t h = 0xcbf29ce484222325ull ^ (seed * 0x9e3779b97f4a7c15ull);
  for (unsigned char c : text) {
    h = (h ^ c) * 0x100000001b3ull;
  }
  return hashCombine(h, text.size());
}

Hash128 hashText(std::string_view text) { return {hash64(text, 1), hash64(text, 2)}; }

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", hi, lo); }

}  // namespace meshfuse
