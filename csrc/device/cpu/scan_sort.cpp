// Scan and argsort on a CPU, line by line along one dim.
//
// Lines run on the caller's pool, each by one thread in the order of its elements, so the bits do not depend on the number of threads.
// Sums and products of Float are kept in Double on the way. Equal elements stay in their order, and so do NaNs, which are the largest.
#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/rounding.h"
#include "device/cpu/lines.h"
#include "device/cpu/routine.h"
#include "ir/fusion.h"
#include "ir/tensor_view.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

// An element as an unsigned number that orders as it does: NaN after all others, both zeros the same.
template <std::floating_point T>
auto keyOf(T v) {
  using Key = std::conditional_t<sizeof(T) == sizeof(uint32_t), uint32_t, uint64_t>;
  constexpr Key kSign = ~(std::numeric_limits<Key>::max() >> 1);
  const auto bits = std::bit_cast<Key>(v == 0 ? T{0} : v);
  return std::isnan(v) ? std::numeric_limits<Key>::max() : (bits & kSign) != 0 ? ~bits : bits | kSign;
}
uint64_t keyOf(int64_t v) { return static_cast<uint64_t>(v) ^ (uint64_t{1} << 63); }
uint32_t keyOf(std::signed_integral auto v) { return static_cast<uint32_t>(v) ^ 0x80000000U; }
uint32_t keyOf(std::unsigned_integral auto v) { return v; }
uint32_t keyOf(bool v) { return v ? 1 : 0; }

// An element with its position, which decides between equal elements, so every algorithm gives the same order.
struct Placed {
  uint64_t key;
  int64_t position;
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
constexpr int64_t kPackedLine = int64_t{1} << 32;

template <class Item>
void firstInOrder(Item* items, int64_t count, int64_t wanted) {
  if (wanted < count / 4) {
    std::nth_element(items, items + wanted, items + count);
    count = wanted;
  }
  std::sort(items, items + count);
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
               {layoutOf(e.tensorInputs()[0], options.layouts).strides,
                contiguousStrides(e.tensorOutput()->constantShape())}),
        workers_(std::max<int64_t>(threads, 1)) {}

  int64_t workspaceBytes() const override {
    const int64_t line = extent_ * static_cast<int64_t>(sizeof(Placed));
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
  using Offsets = Lines<kTensors>::Offsets;

  template <class Wide, class T, class Combine>
  void scanLines(ThreadPool& pool, const T* in, T* out, Wide identity, Combine combine) const {
    const auto visit = [&](std::span<const Offsets> lines) {
      Wide sums[Lines<kTensors>::kMostAdjacent];
      std::fill_n(sums, lines.size(), identity);
      for (int64_t j = 0; j < extent_; j++) {
        for (int64_t k = 0; k < std::ssize(lines); k++) {
          sums[k] = combine(sums[k], static_cast<Wide>(in[lines[k][kOperand] + j * lines_.step(kOperand)]));
          out[lines[k][kResult] + j * lines_.step(kResult)] = static_cast<T>(sums[k]);
        }
      }
    };
    lines_.forEachGroup(pool, kResult, extent_, visit);
  }

  template <class T, class Wide>
  void scan(ThreadPool& pool, const T* in, T* out) const {
    auto lines = [&](Wide identity, auto combine) { scanLines<Wide>(pool, in, out, identity, combine); };
    auto whole = [](Wide v) { return static_cast<std::conditional_t<std::is_integral_v<T>, T, int64_t>>(v); };
    switch (reduce_) {
      case ReduceOp::Sum:
        return lines(0, [](Wide a, Wide b) { return static_cast<Wide>(a + b); });
      case ReduceOp::Prod:
        return lines(1, [](Wide a, Wide b) { return static_cast<Wide>(a * b); });
      case ReduceOp::Max:
      case ReduceOp::Min: {
        // NaN propagates. The accumulator has the type T of the elements.
        const bool max = reduce_ == ReduceOp::Max;
        using Limits = std::numeric_limits<T>;
        const T least = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
        const T most = Limits::has_infinity ? Limits::infinity() : Limits::max();
        auto combine = [max](T a, T b) { return a != a || (b == b && (max ? a >= b : a <= b)) ? a : b; };
        return scanLines<T>(pool, in, out, max ? least : most, combine);
      }
      case ReduceOp::And:
        return lines(static_cast<Wide>(-1), [=](Wide a, Wide b) { return static_cast<Wide>(whole(a) & whole(b)); });
      case ReduceOp::Or:
        return lines(0, [=](Wide a, Wide b) { return static_cast<Wide>(whole(a) | whole(b)); });
      case ReduceOp::Xor:
        return lines(0, [=](Wide a, Wide b) { return static_cast<Wide>(whole(a) ^ whole(b)); });
    }
  }

  template <class T>
  void order(ThreadPool& pool, const T* in, int64_t* out, void* workspace) const {
    if (sizeof(keyOf(T{})) == sizeof(uint32_t) && extent_ < kPackedLine) {
      orderAs<Packed>(pool, in, out, workspace);
    } else {
      orderAs<Placed>(pool, in, out, workspace);
    }
  }

  template <class Item, class T>
  void orderAs(ThreadPool& pool, const T* in, int64_t* out, void* workspace) const {
    using Key = decltype(keyOf(T{}));
    auto key = [this](T v) { return descending_ ? static_cast<Key>(~keyOf(v)) : keyOf(v); };
    auto range = [&](int64_t begin, int64_t end, int64_t worker) {
      void* own = static_cast<char*>(workspace) + workspaceBytes() / workers_ * worker;
      auto* items = static_cast<Item*>(own);
      for (int64_t k = begin; k < end; k++) {
        const Offsets at = lines_.begin(k);
        for (int64_t j = 0; j < extent_; j++) {
          items[j] = Item{static_cast<uint64_t>(key(in[at[kOperand] + j * lines_.step(kOperand)])), j};
        }
        firstInOrder(items, extent_, wanted_);
        for (int64_t j = 0; j < wanted_; j++) {
          out[at[kResult] + j * lines_.step(kResult)] = items[j].place();
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
};

}  // namespace

std::shared_ptr<const CpuRoutine> scanOrSort(const Expr& e, const RoutineOptions& options, int64_t threads) {
  const bool does = e.kind() == ExprKind::Scan || e.kind() == ExprKind::ArgSort;
  return does ? std::make_shared<ScanOrSort>(e, options, threads) : nullptr;
}

}  // namespace meshfuse
