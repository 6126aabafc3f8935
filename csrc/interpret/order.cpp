// The positions of elements in sorted order, and the elements whose position is uncertain because of rounding.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "base/ranges.h"
#include "interpret/ops.h"

namespace meshfuse::reference {

namespace {

// Elements of one line of x: value(j) for j in [0, extent).
struct Line {
  const Array& x;
  int64_t start;
  int64_t stride;
  int64_t extent;

  int64_t at(int64_t j) const { return start + j * stride; }
  double value(int64_t j) const { return x.value(at(j)); }
  double error(int64_t j) const { return x.errorAt(at(j)); }
  // NaN is larger than all, and equal to itself.
  bool less(int64_t a, int64_t b) const {
    if (!x.floating()) {
      return x.whole[at(a)] < x.whole[at(b)];
    }
    const double va = x.real[at(a)];
    const double vb = x.real[at(b)];
    return std::isnan(vb) ? !std::isnan(va) : va < vb;
  }
};

// For each place of an order that ascends in sign * value, whether the element there could belong before it: not, if all before it are
// less by more than both their errors, or exact and it is exact too.
std::vector<bool> canPrecede(const Line& line, const std::vector<int64_t>& order, double sign) {
  std::vector<bool> could(order.size(), false);
  double highest = -kInfinity;        // of value + error
  double highestMoving = -kInfinity;  // of those with errors
  bool anyMoves = false;
  for (int64_t p = 0; p < std::ssize(order); p++) {
    const double error = line.error(order[p]);
    const double value = sign * (std::isnan(line.value(order[p])) ? kInfinity : line.value(order[p]));
    could[p] = p > 0 && (error > 0 ? highest >= value - error : anyMoves && highestMoving >= value);
    anyMoves = anyMoves || error > 0;
    highest = std::max(highest, value + error);
    highestMoving = error > 0 ? std::max(highestMoving, value + error) : highestMoving;
  }
  return could;
}

}  // namespace

Array argSortArray(const Array& x, size_t dim, const Sizes& sizes, Order wantedOrder) {
  Array result = makeArray(DataType::Int, sizes);
  const int64_t extent = x.sizes[dim];
  const int64_t wanted = sizes[dim];
  const bool descending = wantedOrder == Order::Descending;
  const int64_t inner = productOf(std::span(sizes).subspan(dim + 1));
  const int64_t outer = productOf(std::span(sizes).first(dim));
  std::vector<int64_t> order(extent);
  for (int64_t k = 0; k < outer * inner; k++) {
    const Line line{x, k / inner * extent * inner + k % inner, inner, extent};
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return descending ? line.less(b, a) : line.less(a, b); });
    for (int64_t j = 0; j < wanted; j++) {
      result.setWhole((k / inner * wanted + j) * inner + k % inner, order[j]);
    }
    if (x.error.empty()) {
      continue;
    }
    const double sign = descending ? -1 : 1;
    const std::vector<bool> before = canPrecede(line, order, sign);
    std::reverse(order.begin(), order.end());
    const std::vector<bool> after = canPrecede(line, order, -sign);
    for (int64_t j = 0; j < wanted; j++) {
      if (before[j] || after[extent - 1 - j]) {
        result.setUncertain((k / inner * wanted + j) * inner + k % inner);
      }
    }
  }
  return result;
}

}  // namespace meshfuse::reference
