// Scan and argsort on a CPU, line by line along one dim.
//
// Lines run on the caller's pool, each by one thread in the order of its elements, so the bits do not depend on the number of threads.
// Several lines are scanned together, because an element waits only for the one before it in its line. Sums and products of Float are
// kept in Double on the way; with vectors of 512 bits sums of eight neighbours are added in a tree (scan_floats.h). Equal elements stay in their order, and so do NaNs, which are the largest.
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "base/rounding.h"
#include "device/cpu/lines.h"
#include "device/cpu/routine.h"
#include "device/cpu/scan_floats.h"
#include "device/cpu/select_floats.h"
#include "ir/fusion.h"
#include "ir/tensor_view.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

// An element as an unsigned number that orders as it does: NaN after all others, both zeros the same. No branches: compilers make vectors of
// it.
template <std::floating_point T>
auto keyOf(T v) {
  using Key = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
  constexpr Key kSign = ~(std::numeric_limits<Key>::max() >> 1);
  constexpr Key kInfinity = std::bit_cast<Key>(std::numeric_limits<T>::infinity());
  const auto bits = std::bit_cast<Key>(v + T{0});  // -0 becomes 0
  const Key turned =
      (Key{0} - (bits >> (std::numeric_limits<Key>::digits - 1))) | kSign;  // all bits of a negative number
  const Key ofNaN = Key{0} - static_cast<Key>((bits & ~kSign) > kInfinity);
  return (bits ^ turned) | ofNaN;
}
uint64_t keyOf(int64_t v) { return static_cast<uint64_t>(v) ^ (uint64_t{1} << 63); }
uint32_t keyOf(std::signed_integral auto v) { return static_cast<uint32_t>(v) ^ 0x80000000U; }
uint32_t keyOf(std::unsigned_integral auto v) { return v; }
uint32_t keyOf(bool v) { return v ? 1 : 0; }

// An element with its position, which decides between equal elements, so every algorithm gives the same order.
struct Placed {
  uint64_t key;
  int64_t position;
  Placed(uint64_t k, int64_t at) : key(k), position(at) {}
  int64_t place() const { return position; }
  bool operator<(const Placed& other) const { return key != other.key ? key < other.key : position < other.position; }
};

// The same in one number, for 32-bit keys of lines that are not too long.
struct Packed {
  Packed(uint64_t key, int64_t place) : bits(key << 32 | static_cast<uint64_t>(place)) {}
  int64_t place() const { return static_cast<int64_t>(bits & 0xFFFFFFFFU); }
  bool operator<(const Packed& other) const { return bits < other.bits; }
  uint64_t bits;
};
constexpr int64_t kPackedLine = (int64_t{1} << 32) - 1;

// Runs body(whether vectors have 512 bits) in code for the widest vectors of this processor: all that it calls is compiled into it, for each
// width, which takes long where there are many types and operations.
template <class Body>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::flatten]] void on512Bits(const Body& body) {
  body(std::true_type());
}
template <class Body>
[[gnu::target("avx2"), gnu::flatten]] void on256Bits(const Body& body) {
  body(std::false_type());
}
template <bool kWorthIt = true, class Body>
void onWidestVectors(const Body& body) {
  if constexpr (!kWorthIt) {
    body(std::false_type());
  } else if (__builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
             __builtin_cpu_supports("avx512vl") != 0) {
    on512Bits(body);
  } else if (__builtin_cpu_supports("avx2") != 0) {
    on256Bits(body);
  } else {
    body(std::false_type());
  }
}

// What a scan does with two elements, or with what came of those before and the next
template <class Wide>
struct Added {
  Wide operator()(Wide a, Wide b) const { return static_cast<Wide>(a + b); }
};
template <class Wide>
struct Multiplied {
  Wide operator()(Wide a, Wide b) const { return static_cast<Wide>(a * b); }
};
// NaN propagates.
template <class T>
struct Extreme {
  bool max;
  T operator()(T a, T b) const { return a != a || (b == b && (max ? a >= b : a <= b)) ? a : b; }
};
template <class Wide, class Whole, class Operation>
struct Bitwise {
  Wide operator()(Wide a, Wide b) const {
    return static_cast<Wide>(Operation()(static_cast<Whole>(a), static_cast<Whole>(b)));
  }
};
// Whether such elements, and scans of them by such an operation, are worth code for each width of vectors
template <class T, class Combine = void>
constexpr bool kIsCommon = sizeof(T) >= sizeof(float);
template <class T, class Wide, class Whole, class Operation>
constexpr bool kIsCommon<T, Bitwise<Wide, Whole, Operation>> = false;

template <class T, class Combine>
constexpr bool kSumsFloats = std::is_same_v<T, float>&& std::is_same_v<Combine, Added<double>>;

constexpr int64_t kLeastByDigits = 256;       // fewer are sorted sooner by comparing them
constexpr int64_t kLeastByLongDigits = 2048;  // fewer take less time than the counters of long digits
constexpr int64_t kMostInCaches =
    16 * 1024;  // more are spread to so many places at a time that these are not in the caches

// Sorts items that are in the order of their places by digits of `kBits` bits of their keys, the lowest first. Returns the sorted items: at
// `items` or directly after them, where the memory has room for as many.
template <int kBits>
const Packed* sortByDigits(Packed* items, int64_t count) {
  constexpr int kDigits = (32 + kBits - 1) / kBits;
  constexpr int64_t kValues = int64_t{1} << kBits;
  uint32_t begins[kDigits][kValues] = {};
  const auto digitOf = [](const Packed& item, int digit) { return item.bits >> (32 + kBits * digit) & (kValues - 1); };
  for (int64_t k = 0; k < count; k++) {
    for (int d = 0; d < kDigits; d++) {
      begins[d][digitOf(items[k], d)]++;
    }
  }
  Packed* from = items;
  Packed* to = items + count;
  for (int d = 0; d < kDigits; d++) {
    if (begins[d][digitOf(items[0], d)] == count) {
      continue;  // all have the same
    }
    std::exclusive_scan(std::begin(begins[d]), std::end(begins[d]), std::begin(begins[d]), uint32_t{0});
    for (int64_t k = 0; k < count; k++) {
      to[begins[d][digitOf(from[k], d)]++] = from[k];
    }
    std::swap(from, to);
  }
  return from;
}

constexpr int64_t kMostByRanks = 128;  // more are sorted sooner by exchanges

// Puts items in order, each at the place that is the number of those before it, without a branch that depends on them. The memory after the
// items has room for as many.
void sortByRanks(Packed* items, int64_t count) {
  constexpr int64_t kTogether = 8;
  uint64_t all[kMostByRanks];
  for (int64_t k = 0; k < count; k++) {
    all[k] = items[k].bits;
  }
  std::fill(all + count, all + roundUp(count, kTogether), ~uint64_t{0});  // the place of these is after the last item
  onWidestVectors([&](auto) {
    for (int64_t k = 0; k < count; k += kTogether) {
      uint64_t ranks[kTogether] = {};
      for (int64_t j = 0; j < count; j++) {
        for (int64_t i = 0; i < kTogether; i++) {
          ranks[i] += all[j] < all[k + i] ? 1 : 0;
        }
      }
      for (int64_t i = 0; i < kTogether; i++) {
        items[ranks[i]].bits = all[k + i];
      }
    }
  });
}

// The first `wanted` of the items in order. The items are in the order of their places; the memory after them has room for as many Packed.
template <class Item>
const Item* sortedFirst(Item* items, int64_t count, int64_t wanted) {
  if (count > 2 * wanted) {
    std::nth_element(items, items + wanted, items + count);
    count = wanted;
  } else if constexpr (std::is_same_v<Item, Packed>) {
    if (count >= kLeastByDigits) {
      const bool byLongDigits = count >= kLeastByLongDigits && count <= kMostInCaches;
      return byLongDigits ? sortByDigits<11>(items, count) : sortByDigits<8>(items, count);
    }
    if (count <= kMostByRanks) {
      sortByRanks(items, count);
      return items;
    }
  }
  std::sort(items, items + count);
  return items;
}

constexpr int64_t kVector = 16;  // elements that are handled at once

// A bound that at least n of the keys do not exceed, and few more: the nth least, found from the highest bit to the lowest, or one that
// exactly n do not exceed. `count` is a multiple of kVector.
template <class Key>
Key boundOfLeast(const Key* keys, int64_t count, int64_t n) {
  Key found = 0;
  for (int bit = std::numeric_limits<Key>::digits - 1; bit >= 0; bit--) {
    const Key most = found | ((Key{1} << bit) - 1);
    Key below[kVector] = {};
    for (int64_t k = 0; k < count; k += kVector) {
      for (int64_t i = 0; i < kVector; i++) {
        below[i] += keys[k + i] <= most ? 1 : 0;
      }
    }
    const auto total = static_cast<int64_t>(std::accumulate(below, below + kVector, Key{0}));
    if (total == n) {
      return most;
    }
    found |= total < n ? Key{1} << bit : 0;
  }
  return found;
}

// Writes those of kVector keys, the first at `place`, that are at most the bound; returns their number. More elements may be written.
template <class Item, class Key>
int64_t append(auto /*has512Bits*/, const Key* keys, Key bound, int64_t place, Item* items) {
  Key least = std::numeric_limits<Key>::max();
  for (int64_t i = 0; i < kVector; i++) {
    least = std::min(least, keys[i]);
  }
  int64_t count = 0;
  for (int64_t i = 0; least <= bound && i < kVector; i++) {
    items[count] = Item(keys[i], place + i);
    count += keys[i] <= bound ? 1 : 0;
  }
  return count;
}

// The same with vectors of 512 bits
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] inline int64_t append(std::true_type /*has512Bits*/,
                                                                            const uint32_t* keys, uint32_t bound,
                                                                            int64_t place, Packed* items) {
  const __m512i all = _mm512_loadu_si512(keys);
  const __mmask16 wanted = _mm512_cmple_epu32_mask(all, _mm512_set1_epi32(static_cast<int>(bound)));
  if (wanted == 0) {
    return 0;
  }
  const auto half = [&](__m256i of, int64_t first) __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) {
    const __m512i places = _mm512_add_epi64(_mm512_set1_epi64(first), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    return _mm512_or_si512(_mm512_slli_epi64(_mm512_cvtepu32_epi64(of), 32), places);
  };
  const auto low = static_cast<__mmask8>(wanted);
  const auto high = static_cast<__mmask8>(wanted >> 8);
  _mm512_storeu_si512(items, _mm512_maskz_compress_epi64(low, half(_mm512_castsi512_si256(all), place)));
  items += std::popcount(low);
  _mm512_storeu_si512(items, _mm512_maskz_compress_epi64(high, half(_mm512_extracti64x4_epi64(all, 1), place + 8)));
  return std::popcount(wanted);
}

constexpr int64_t kCacheLine = 64;

class ScanOrSort : public CpuRoutine {
 public:
  ScanOrSort(const Expr& e, const RoutineOptions& options, int64_t threads)
      : sorts_(e.kind() == ExprKind::ArgSort),
        reduce_(e.attributes().reduce),
        descending_(sorts_ && e.attributes().flags.at(0)),
        dtype_(e.input(0)->dtype()),
        extent_(e.tensorInputs()[0]->constantShape()[e.attributes().dim]),
        wanted_(e.tensorOutput()->constantShape()[e.attributes().dim]),
        lines_(e.tensorInputs()[0]->constantShape(), e.attributes().dim,
               {constantStrides(e.tensorInputs()[0], options.layouts),
                contiguousStrides(e.tensorOutput()->constantShape())}),
        workers_(std::max<int64_t>(threads, 1)) {}

  int64_t workspaceBytes() const override {
    const int64_t line = extent_ * static_cast<int64_t>(std::max(sizeof(Placed), 2 * sizeof(Packed)));
    return sorts_ ? roundUp(line, kCacheLine) * workers_ : 0;
  }

  void run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const override {
    const void* in = operands[0];
    withElementType(dtype_, [&]<class T>() {
      using Wide = std::conditional_t<std::is_floating_point_v<T>, double,
                                      std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;
      if constexpr (std::is_same_v<T, Float16Bits>) {
        throwInternalError(fmt::format("[scan sort] elements of type {} are not supported; cast them", name(dtype_)));
      } else if (sorts_) {
        order<T>(pool, static_cast<const T*>(in), static_cast<int64_t*>(out), workspace);
      } else {
        scan<T, Wide>(pool, static_cast<const T*>(in), static_cast<T*>(out));
      }
    });
  }

 private:
  enum Tensors : uint8_t { kOperand, kResult, kTensors };
  static constexpr int64_t kTogether = 8;  // lines, each with an addition under way
  static constexpr int64_t kGroups =
      4 * kVector;  // whose least keys are found together, since each waits for the one before it
  static constexpr int64_t kAhead = 1024;  // elements that are fetched ahead: of this line, then of the next
  static constexpr int64_t kMostAhead =
      128 * 1024;                           // bytes that a scan fetches ahead of the operand, and as many of the result
  static constexpr int64_t kRowsAhead = 4;  // prefetched: a processor does not foresee rows that are far apart

  using Offsets = Lines<kTensors>::Offsets;

  // Whether a run of kVector elements of the result is whole cache lines that need not be in the caches.
  template <class T>
  bool streams(const T* out, int64_t step) const {
    constexpr int64_t kSize = sizeof(T);
    const auto isWhole = [](int64_t bytes) { return bytes % kCacheLine == 0; };
    return isWhole(kVector * kSize) && isWhole(reinterpret_cast<int64_t>(out)) && isWhole(step * kSize) &&
           lines_.count() * extent_ * kSize >= streamedBytes_;
  }

  template <class T>
  static void put(const T* row, T* out, bool streams) {
    if (!streams) {
      std::copy_n(row, kVector, out);
      return;
    }
    for (int64_t i = 0; i < static_cast<int64_t>(kVector * sizeof(T) / sizeof(__m128i)); i++) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(out) + i, reinterpret_cast<const __m128i*>(row)[i]);
    }
  }

  // Lines whose elements are neighbours in memory. A result may overwrite the operand.
  template <class Wide, class T, class Combine>
  void scanAdjacent(const T* in, T* out, Wide identity, int64_t lines, Combine combine) const {
    Wide sums[Lines<kTensors>::kMostAdjacent];
    std::fill_n(sums, lines, identity);
    const bool past = streams(out, lines_.step(kResult));
    onWidestVectors<kIsCommon<T, Combine>>([&](auto) {
      for (int64_t j = 0; j < extent_; j++, in += lines_.step(kOperand), out += lines_.step(kResult)) {
        const int64_t ahead = std::min(kRowsAhead, extent_ - 1 - j);
        int64_t k = 0;
        for (; k + kVector <= lines; k += kVector) {
          __builtin_prefetch(in + ahead * lines_.step(kOperand) + k);
          if (!past) {
            __builtin_prefetch(out + ahead * lines_.step(kResult) + k, 1);
          }
          alignas(kCacheLine) T row[kVector];
          std::copy_n(in + k, kVector, row);
          for (int64_t i = 0; i < kVector; i++) {
            sums[k + i] = combine(sums[k + i], static_cast<Wide>(row[i]));
            row[i] = static_cast<T>(sums[k + i]);
          }
          put(row, out + k, past);
        }
        for (; k < lines; k++) {
          sums[k] = combine(sums[k], static_cast<Wide>(in[k]));
          out[k] = static_cast<T>(sums[k]);
        }
      }
    });
    if (past) {
      _mm_sfence();
    }
  }

  // next: how far the lines are that this thread scans afterwards.
  template <class Wide, class T, class Combine, size_t... k>
  void scanTogether(const T* in, T* out, const Offsets* lines, const Offsets& next, Wide identity, Combine combine,
                    std::index_sequence<k...> /*lines*/) const {
    const T* from[] = {in + lines[k][kOperand]...};
    T* to[] = {out + lines[k][kResult]...};
    Wide sums[] = {(static_cast<void>(k), identity)...};
    const int64_t step[] = {lines_.step(kOperand), lines_.step(kResult)};
    const bool areRuns = step[kOperand] == 1 && step[kResult] == 1;
    const bool past = areRuns && (streams(to[k], kVector) && ...);
    // So many lines at a time are more than a processor fetches ahead by itself, and each short one begins on another page.
    const bool areShort = extent_ * static_cast<int64_t>(sizeof...(k) * sizeof(T)) <= kMostAhead;
    const Offsets ahead = areShort ? next : Offsets{kAhead, kAhead};
    const auto fetch = [&](size_t line, int64_t j) {
      for (int64_t i = 0; i < kVector; i += kCacheLine / static_cast<int64_t>(sizeof(T))) {
        __builtin_prefetch(from[line] + ahead[kOperand] + j + i);
        if (!past) {
          __builtin_prefetch(to[line] + ahead[kResult] + j + i, 1);
        }
      }
    };
    int64_t j = 0;
    if (areRuns) {
      // Lines that are summed alone take the same additions as others, so that the number of threads changes no bits.
      onWidestVectors<kIsCommon<T, Combine> && (sizeof...(k) != 1 || kSumsFloats<T, Combine>)>([&](auto has512Bits) {
        if constexpr (kSumsFloats<T, Combine>) {
          if constexpr (has512Bits.value) {
            j = sumFloats<sizeof...(k)>(from, to, sums, extent_, past, fetch);
          }
        }
        for (; j + kVector <= extent_; j += kVector) {
          // Conversions are of whole vectors, additions of one element of each line.
          Wide wide[sizeof...(k)][kVector];
          ((std::copy_n(from[k] + j, kVector, wide[k]), fetch(k, j)), ...);
          for (int64_t i = 0; i < kVector; i++) {
            ((wide[k][i] = sums[k] = combine(sums[k], wide[k][i])), ...);
          }
          const auto convert = [&](size_t line) {
            alignas(kCacheLine) T row[kVector];
            std::transform(wide[line], wide[line] + kVector, row, [](Wide v) { return static_cast<T>(v); });
            put(row, to[line] + j, past);
          };
          (convert(k), ...);
        }
      });
    }
    for (; j < extent_; j++) {
      ((sums[k] = combine(sums[k], static_cast<Wide>(from[k][j * step[kOperand]])),
        to[k][j * step[kResult]] = static_cast<T>(sums[k])),
       ...);
    }
    if (past) {
      _mm_sfence();
    }
  }

  template <class Wide, class T, class Combine>
  void scanLines(ThreadPool& pool, const T* in, T* out, Wide identity, Combine combine) const {
    const auto areAdjacent = [](std::span<const Offsets> lines) {
      return std::ranges::all_of(indices(lines), [&](int64_t k) {
        return lines[k][kOperand] == lines[0][kOperand] + k && lines[k][kResult] == lines[0][kResult] + k;
      });
    };
    const auto visit = [&](std::span<const Offsets> lines, const Offsets& next) {
      const bool areRuns = lines_.step(kOperand) == 1 && lines_.step(kResult) == 1;
      if (areAdjacent(lines) && !areRuns) {  // a line alone is adjacent to no other
        scanAdjacent(in + lines[0][kOperand], out + lines[0][kResult], identity, std::ssize(lines), combine);
        return;
      }
      int64_t k = 0;
      for (; k + kTogether <= std::ssize(lines); k += kTogether) {
        scanTogether(in, out, &lines[k], next, identity, combine, std::make_index_sequence<kTogether>());
      }
      for (; k < std::ssize(lines); k++) {
        scanTogether(in, out, &lines[k], next, identity, combine, std::make_index_sequence<1>());
      }
    };
    // Adjacent lines are many, so that a row of them is long; all threads have groups.
    const int64_t share = roundUp(divideUp(std::max<int64_t>(lines_.count(), 1), 4 * workers_), kVector);
    const int64_t side = lines_.step(kResult) == 1 ? std::clamp<int64_t>(lines_.count() / workers_, 1, kTogether)
                                                   : std::min(share, Lines<kTensors>::kMostAdjacent);
    lines_.forEachGroup(pool, side, extent_, visit);
  }

  template <class T, class Wide>
  void scan(ThreadPool& pool, const T* in, T* out) const {
    auto lines = [&](Wide identity, auto combine) { scanLines(pool, in, out, identity, combine); };
    using Whole = std::conditional_t<std::is_integral_v<T>, T, int64_t>;
    switch (reduce_) {
      case ReduceOp::Sum:
        return lines(0, Added<Wide>());
      case ReduceOp::Prod:
        return lines(1, Multiplied<Wide>());
      case ReduceOp::Max:
      case ReduceOp::Min: {
        const bool max = reduce_ == ReduceOp::Max;
        using Limits = std::numeric_limits<T>;
        const T least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
        const T most = Limits::has_infinity ? Limits::infinity() : Limits::max();
        return scanLines<T>(pool, in, out, max ? least : most, Extreme<T>{max});
      }
      case ReduceOp::And:
        return lines(static_cast<Wide>(-1), Bitwise<Wide, Whole, std::bit_and<>>());
      case ReduceOp::Or:
        return lines(0, Bitwise<Wide, Whole, std::bit_or<>>());
      case ReduceOp::Xor:
        return lines(0, Bitwise<Wide, Whole, std::bit_xor<>>());
    }
  }

  template <class T>
  void order(ThreadPool& pool, const T* in, int64_t* out, void* workspace) const {
    const bool areNeighbours = lines_.step(kOperand) == 1;
    if constexpr (sizeof(keyOf(T{})) == sizeof(uint32_t)) {
      if (extent_ >= kPackedLine) {
        orderAs<false, Placed>(pool, in, out, workspace);
      } else if (areNeighbours) {
        orderAs<true, Packed>(pool, in, out, workspace);
      } else {
        orderAs<false, Packed>(pool, in, out, workspace);
      }
    } else if (areNeighbours) {
      orderAs<true, Placed>(pool, in, out, workspace);
    } else {
      orderAs<false, Placed>(pool, in, out, workspace);
    }
  }

  // Turns the order of keys.
  template <class Key>
  Key turn() const {
    return descending_ ? std::numeric_limits<Key>::max() : 0;
  }

  // The keys of kVector elements of a line, from element j on.
  template <bool kAreNeighbours, class T, class Key>
  void keysOf(const T* line, int64_t j, Key* keys) const {
    const auto flip = turn<Key>();
    const int64_t step = kAreNeighbours ? 1 : lines_.step(kOperand);
    T some[kVector];
    for (int64_t i = 0; i < kVector; i++) {
      some[i] = line[(j + i) * step];
    }
    for (int64_t i = 0; i < kVector; i++) {
      keys[i] = keyOf(some[i]) ^ flip;
    }
  }

  // A key that at least as many elements as are wanted do not exceed. Of at least four times as many groups of elements the least keys are found, and
  // of these as many as are wanted; few other elements are below the last of them. The least keys go to `memory`.
  template <bool kAreNeighbours, class T, class Key>
  Key boundOf(const T* line, Key* memory) const {
    const int64_t rows = extent_ / kGroups;
    const int64_t chunks = divideUp(4 * wanted_, kGroups);  // of each, a group in each column
    if (wanted_ == 0 || rows < 4 * chunks) {
      return std::numeric_limits<Key>::max();
    }
    Key bound = 0;
    onWidestVectors<kIsCommon<T>>([&](auto) {
      for (int64_t c = 0; c < chunks; c++) {
        Key least[kGroups];
        std::fill_n(least, kGroups, std::numeric_limits<Key>::max());
        for (int64_t row = rows * c / chunks; row < rows * (c + 1) / chunks; row++) {
          Key keys[kGroups];
          for (int64_t i = 0; i < kGroups; i += kVector) {
            const int64_t j = row * kGroups + i;
            keysOf<kAreNeighbours>(line, j, keys + i);
            if (kAreNeighbours) {
              __builtin_prefetch(line + std::min(j + kAhead, extent_ - 1));
            }
          }
          for (int64_t i = 0; i < kGroups; i++) {
            least[i] = std::min(least[i], keys[i]);
          }
        }
        std::copy_n(least, kGroups, memory + c * kGroups);
      }
      bound = boundOfLeast(memory, chunks * kGroups, wanted_);
    });
    return bound;
  }

  // The elements whose keys are at most the bound, in the order of their places; returns their number. Meanwhile the beginning of the next
  // line is fetched.
  template <bool kAreNeighbours, class Item, class T, class Key>
  int64_t collect(const T* line, const T* next, Key bound, Item* items) const {
    int64_t count = 0;
    int64_t j = 0;
    onWidestVectors<kIsCommon<T>>([&](auto has512Bits) {
      for (; j + kVector <= extent_; j += kVector) {
        Key keys[kVector];
        keysOf<kAreNeighbours>(line, j, keys);
        if (kAreNeighbours && j < kAhead) {
          __builtin_prefetch(next + j);
        }
        count += append(has512Bits, keys, bound, j, items + count);
      }
    });
    for (; j < extent_; j++) {
      const Key k = keyOf(line[j * lines_.step(kOperand)]) ^ turn<Key>();
      if (k <= bound) {
        items[count++] = Item(k, j);
      }
    }
    return count;
  }

  // The same for floats; -1 if they are not selected so. The places are first written after the items.
  int64_t selected(const FloatSelection& selection, const float* line, const float* next, Packed* items) const {
    auto* places = reinterpret_cast<uint32_t*>(items + extent_);
    const int64_t count = selectFloats(selection, line, next, places);
    for (int64_t k = 0; k < count; k++) {
      items[k] = Packed(keyOf(line[places[k]]) ^ turn<uint32_t>(), places[k]);
    }
    return count;
  }

  template <bool kAreNeighbours, class Item, class T>
  void orderAs(ThreadPool& pool, const T* in, int64_t* out, void* workspace) const {
    using Key = decltype(keyOf(T{}));
    const FloatSelection selection{.extent = extent_, .wanted = wanted_, .descending = descending_};
    const bool selects = canSelectFloats(selection);
    auto range = [&](int64_t begin, int64_t end, int64_t worker) {
      void* own = static_cast<char*>(workspace) + workspaceBytes() / workers_ * worker;
      auto* items = static_cast<Item*>(own);
      for (int64_t k = begin; k < end; k++) {
        const Offsets at = lines_.begin(k);
        const T* line = in + at[kOperand];
        const T* next = in + lines_.begin(std::min(k + 1, lines_.count() - 1))[kOperand];
        int64_t count = -1;
        if constexpr (kAreNeighbours && std::is_same_v<T, float> && std::is_same_v<Item, Packed>) {
          count = selects ? selected(selection, line, next, items) : -1;
        }
        if (count < 0) {
          const Key bound = boundOf<kAreNeighbours>(line, static_cast<Key*>(own));
          count = collect<kAreNeighbours>(line, next, bound, items);
        }
        const Item* sorted = sortedFirst(items, count, wanted_);
        for (int64_t j = 0; j < wanted_; j++) {
          out[at[kResult] + j * lines_.step(kResult)] = sorted[j].place();
        }
      }
    };
    pool.run(lines_.count(), range, linesPerRange(extent_));
  }

  const bool sorts_;
  const ReduceOp reduce_;
  const bool descending_;
  const DataType dtype_;
  const int64_t extent_;  // along the dim: of the operand
  const int64_t wanted_;  // and of the result
  const Lines<kTensors> lines_;
  const int64_t workers_;
  const int64_t streamedBytes_ = DeviceInfo().lastCacheBytes;  // larger results need not be in the caches
};

}  // namespace

std::shared_ptr<const CpuRoutine> scanOrSort(const Expr& e, const RoutineOptions& options, int64_t threads) {
  const bool does = e.kind() == ExprKind::Scan || e.kind() == ExprKind::ArgSort;
  return does ? std::make_shared<ScanOrSort>(e, options, threads) : nullptr;
}

}  // namespace meshfuse
