// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3; SC 2011), as ops/factory.h says.
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "base/ranges.h"
#include "interpret/ops.h"

namespace meshfuse::reference {

namespace {

using Words = std::array<uint32_t, 4>;

Words philox(Words counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int64_t round = 0; round < 10; round++) {
    uint64_t p0 = kMultiplier0 * counter[0];
    uint64_t p1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double uniformFloat(uint32_t word) { return static_cast<double>(word >> 8) * 0x1p-24; }
double uniformDouble(uint32_t low, uint32_t high) {
  return static_cast<double>((uint64_t{low} | uint64_t{high} << 32) >> 11) * 0x1p-53;
}

}  // namespace

Array randomArray(const Sizes& sizes, std::span<const int64_t> positions, const RandomOptions& options,
                  const Context& context) {
  const auto [kind, dtype, seed, counter] = options;
  Array result = makeArray(dtype, sizes);
  const bool wide = dtype == DataType::Double;
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int64_t i : indices(positions)) {
    auto position = static_cast<uint64_t>(positions[i]);
    Words w = philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                      static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32)},
                     key);
    double u = wide ? uniformDouble(w[0], w[1]) : uniformFloat(w[0]);
    if (kind == RandomKind::Uniform) {
      result.setReal(i, u);
      continue;
    }
    double v = wide ? uniformDouble(w[2], w[3]) : uniformFloat(w[1]);
    double radius = std::sqrt(-2 * std::log(1 - u));
    result.setReal(i, radius * std::cos(2 * std::numbers::pi * v));
    if (context.bounds) {
      // log and sqrt are off by ulps; the angle, up to 2 pi, by an ulp of its own
      result.setError(i, 32 * unitOf(dtype) * radius + 0x1p-126);
    }
  }
  return result;
}

}  // namespace meshfuse::reference
