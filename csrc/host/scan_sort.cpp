#include "host/scan_sort.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ir/fusion.h"
#include "ir/tensor_view.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

// An element as an unsigned number that orders as it does: NaN after all others, both zeros the same.
uint32_t keyOf(float v) {
  if (std::isnan(v)) {
    return std::numeric_limits<uint32_t>::max();
  }
  const auto bits = std::bit_cast<uint32_t>(v == 0 ? 0.0F : v);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}
uint64_t keyOf(double v) {
  if (std::isnan(v)) {
    return std::numeric_limits<uint64_t>::max();
  }
  const auto bits = std::bit_cast<uint64_t>(v == 0 ? 0.0 : v);
  return (bits >> 63) != 0 ? ~bits : bits | (uint64_t{1} << 63);
}
uint64_t keyOf(int64_t v) { return static_cast<uint64_t>(v) ^ (uint64_t{1} << 63); }
uint32_t keyOf(std::signed_integral auto v) { return static_cast<uint32_t>(v) ^ 0x80000000U; }
uint32_t keyOf(bool v) { return v ? 1 : 0; }

// An element with its position, which decides between equal elements, so every algorithm gives the same order.
struct Placed {
  uint64_t key;
  int64_t place;
  bool operator<(const Placed& other) const { return key != other.key ? key < other.key : place < other.place; }
};

// The same in one number, for 32-bit keys of lines that are not too long.
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

}  // namespace

bool ScanOrSort::does(const Expr& e) { return e.kind() == ExprKind::Scan || e.kind() == ExprKind::ArgSort; }

ScanOrSort::ScanOrSort(const Expr& e, const RoutineOptions& options)
    : sorts_(e.kind() == ExprKind::ArgSort),
      reduce_(e.attributes().reduce),
      dtype_(e.input(0)->dtype()),
      workers_(std::max(options.workers, 1)) {
  invariant(does(e), "[scan sort] {} is computed by {}, expected a scan or a sort", e.output()->toString(), e.opName());
  const TensorView* in = e.input(0)->asTensor();
  const std::vector<int64_t> shape = in->constantShape();
  const std::vector<int64_t> result = e.tensorOutput()->constantShape();
  const std::vector<int64_t> strides = layoutOf(in, options.layouts).strides;
  const std::vector<int64_t> targets = contiguousStrides(result);
  const auto dim = static_cast<size_t>(e.attributes().dim);
  descending_ = sorts_ && e.attributes().flags.at(0);
  for (size_t d = 0; d < shape.size(); d++) {
    if (d == dim) {
      extent_ = shape[d];
      wanted_ = result[d];
      stride_ = strides[d];
      resultStride_ = targets[d];
      continue;
    }
    outer_.push_back(shape[d]);
    strides_.push_back(strides[d]);
    targets_.push_back(targets[d]);
    lines_ *= shape[d];
  }
}

ScanOrSort::Line ScanOrSort::line(int64_t number) const {
  Line at;
  for (size_t d = outer_.size(); d-- > 0;) {
    at.from += number % outer_[d] * strides_[d];
    at.to += number % outer_[d] * targets_[d];
    number /= outer_[d];
  }
  return at;
}

int64_t ScanOrSort::workspaceBytes() const {
  if (!sorts_) {
    return 0;
  }
  const int64_t line = extent_ * static_cast<int64_t>(sizeof(Placed));
  return (line + kCacheLine - 1) / kCacheLine * kCacheLine * workers_;
}

template <class Wide, class T, class Combine>
void ScanOrSort::scanLines(ThreadPool& pool, const T* in, T* out, Wide identity, Combine combine) const {
  // Adjacent lines are processed together, so memory is read in order if the dim is not the last one.
  constexpr int64_t kSide = 16;
  const int64_t side = resultStride_ == 1 ? 1 : kSide;
  auto range = [&](int64_t begin, int64_t end, int) {
    for (int64_t first = begin * side; first < std::min(lines_, end * side); first += side) {
      const int64_t count = std::min(side, lines_ - first);
      Line lines[kSide];
      Wide sums[kSide];
      for (int64_t k = 0; k < count; k++) {
        lines[k] = line(first + k);
        sums[k] = identity;
      }
      for (int64_t j = 0; j < extent_; j++) {
        for (int64_t k = 0; k < count; k++) {
          sums[k] = combine(sums[k], static_cast<Wide>(in[lines[k].from + j * stride_]));
          out[lines[k].to + j * resultStride_] = static_cast<T>(sums[k]);
        }
      }
    }
  };
  pool.run((lines_ + side - 1) / side, range, linesPerRange(extent_ * side));
}

template <class T, class Wide>
void ScanOrSort::scan(ThreadPool& pool, const T* in, T* out) const {
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
void ScanOrSort::order(ThreadPool& pool, const T* in, int64_t* out, void* workspace) const {
  using Key = decltype(keyOf(T{}));
  auto key = [this](T v) { return descending_ ? static_cast<Key>(~keyOf(v)) : keyOf(v); };
  auto range = [&](int64_t begin, int64_t end, int worker) {
    char* own = static_cast<char*>(workspace) + workspaceBytes() / workers_ * worker;
    for (int64_t k = begin; k < end; k++) {
      const Line at = line(k);
      if (sizeof(Key) == sizeof(uint32_t) && extent_ < kPackedLine) {
        auto* items = static_cast<uint64_t*>(static_cast<void*>(own));
        for (int64_t j = 0; j < extent_; j++) {
          items[j] = static_cast<uint64_t>(key(in[at.from + j * stride_])) << 32 | static_cast<uint64_t>(j);
        }
        firstInOrder(items, extent_, wanted_);
        for (int64_t j = 0; j < wanted_; j++) {
          out[at.to + j * resultStride_] = static_cast<int64_t>(items[j] & 0xFFFFFFFFU);
        }
        continue;
      }
      auto* items = static_cast<Placed*>(static_cast<void*>(own));
      for (int64_t j = 0; j < extent_; j++) {
        items[j] = {static_cast<uint64_t>(key(in[at.from + j * stride_])), j};
      }
      firstInOrder(items, extent_, wanted_);
      for (int64_t j = 0; j < wanted_; j++) {
        out[at.to + j * resultStride_] = items[j].place;
      }
    }
  };
  pool.run(lines_, range, linesPerRange(extent_));
}

void ScanOrSort::run(ThreadPool& pool, std::span<void* const> operands, void* out, void* workspace) const {
  const void* in = operands[0];
  withElementType(dtype_, [&]<class T>() {
    using Wide =
        std::conditional_t<std::is_floating_point_v<T>, double, std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>>;
    if constexpr (std::is_same_v<T, Float16Bits>) {
      throwInternalError(fmt::format("[scan sort] elements of type {} are not supported; cast them", name(dtype_)));
    } else if (sorts_) {
      order<T>(pool, static_cast<const T*>(in), static_cast<int64_t*>(out), workspace);
    } else {
      scan<T, Wide>(pool, static_cast<const T*>(in), static_cast<T*>(out));
    }
  });
}

}  // namespace meshfuse
