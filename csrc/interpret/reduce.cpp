// Sums and their like over arrays: reductions, contractions, and the bounds of adding up in any order.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "interpret/ops.h"

namespace meshfuse::reference {

namespace {

double realIdentity(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return 0;
    case ReduceOp::Prod:
      return 1;
    case ReduceOp::Max:
      return -kInfinity;
    case ReduceOp::Min:
      return kInfinity;
    case ReduceOp::And:
    case ReduceOp::Or:
    case ReduceOp::Xor:
      break;
  }
  throwInternalError(fmt::format("[interpret] {} is not defined for floating-point numbers", name(op)));
}

double combineReal(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::Sum:
      return a + b;
    case ReduceOp::Prod:
      return a * b;
    case ReduceOp::Max:
      return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
    case ReduceOp::Min:
      return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b);
    case ReduceOp::And:
    case ReduceOp::Or:
    case ReduceOp::Xor:
      break;
  }
  return a;
}

int64_t wholeIdentity(ReduceOp op, DataType dtype) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Or:
    case ReduceOp::Xor:
      return 0;
    case ReduceOp::Prod:
      return 1;
    case ReduceOp::And:
      return dtype == DataType::Bool ? 1 : -1;
    case ReduceOp::Max:
      return lowestInteger(dtype);
    case ReduceOp::Min:
      return highestInteger(dtype);
  }
  return 0;
}

int64_t combineWhole(ReduceOp op, int64_t a, int64_t b) {
  auto wrapped = [](uint64_t value) { return static_cast<int64_t>(value); };
  switch (op) {
    case ReduceOp::Sum:
      return wrapped(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    case ReduceOp::Prod:
      return wrapped(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    case ReduceOp::Max:
      return std::max(a, b);
    case ReduceOp::Min:
      return std::min(a, b);
    case ReduceOp::And:
      return a & b;
    case ReduceOp::Or:
      return a | b;
    case ReduceOp::Xor:
      return a ^ b;
  }
  return a;
}

// Sums that are kept for each result element, from which its bound follows.
struct Tally {
  std::vector<double> sizes;   // of |v| + e; of products: their product
  std::vector<double> exact;   // product of |v|
  std::vector<double> errors;  // sum of e, or the largest
  std::vector<int64_t> counts;
  // Of products: how far those of some of the factors may go up and down, in whatever order, and whether one is infinite.
  std::vector<double> highest, lowest;
  std::vector<bool> infinite;

  explicit Tally(int64_t n, double start)
      : sizes(n, start), exact(n, start), errors(n, 0), counts(n, 0), highest(n, 1), lowest(n, 1), infinite(n, false) {}
};

// The bound that rounding each of several partial results to `dtype` adds.
double partialsTerm(DataType dtype, int64_t partials, double size) {
  return partials > 1 ? 2 * static_cast<double>(partials + 1) * unitOf(dtype) * size : 0;
}

double accumulationUnit(DataType dtype) { return unitOf(accumulateType(dtype)); }

double boundOf(ReduceOp op, DataType dtype, const Tally& tally, int64_t k, const Context& context) {
  double unit = accumulationUnit(dtype);
  double steps = static_cast<double>(tally.counts[k]) + 1;
  double reference = dtype == DataType::Double ? 2 : 1;  // the reference adds in double too
  switch (op) {
    case ReduceOp::Sum:
      return tally.errors[k] + reference * steps * unit * tally.sizes[k] +
             partialsTerm(dtype, context.partials, tally.sizes[k]);
    case ReduceOp::Prod: {
      // A product on the way that leaves the type's range is infinite or 0, whatever the last factors bring.
      const bool wide = dtype == DataType::Double;
      const double most = wide ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
      const double least = wide ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
      const double size = tally.sizes[k];
      const bool vanishes = tally.lowest[k] < least;
      if (!std::isfinite(size) || !(tally.highest[k] <= most) || (vanishes && tally.infinite[k])) {
        return kInfinity;
      }
      const double lost = vanishes ? steps * least * tally.highest[k] : 0;
      return size - tally.exact[k] + reference * steps * unit * size + lost;
    }
    case ReduceOp::Max:
    case ReduceOp::Min:
      return tally.errors[k];
    case ReduceOp::And:
    case ReduceOp::Or:
    case ReduceOp::Xor:
      return tally.errors[k] > 0 ? (dtype == DataType::Bool ? 1 : kInfinity) : 0;
  }
  return 0;
}

void count(Tally& tally, ReduceOp op, int64_t k, double value, double error) {
  double size = std::isfinite(value) ? std::fabs(value) : 0;  // infinities and NaN decide the result themselves
  tally.counts[k]++;
  if (op == ReduceOp::Prod) {
    tally.sizes[k] *= size + error;
    tally.exact[k] *= size;
    tally.infinite[k] = tally.infinite[k] || !std::isfinite(value);
    if (std::isfinite(value) && size + error > 0) {
      tally.highest[k] *= std::max(1.0, size + error);
      tally.lowest[k] *= std::min(1.0, std::max(size - error, 0.0));
    }
    return;
  }
  tally.sizes[k] += size + error;
  bool largest = op == ReduceOp::Max || op == ReduceOp::Min;
  tally.errors[k] = largest ? std::max(tally.errors[k], error) : tally.errors[k] + error;
}

}  // namespace

Array reduceArray(ReduceOp op, const Array& x, const Sizes& sizes, std::span<const Loop> loops,
                  const Context& context) {
  Array result = makeArray(x.dtype, sizes);
  const int64_t total = result.numel();
  if (result.floating()) {
    std::vector<double> sums(total, realIdentity(op));
    runLoops(loops, [&](int64_t i, int64_t, int64_t k) { sums[k] = combineReal(op, sums[k], x.real[i]); });
    for (int64_t k = 0; k < total; k++) {
      result.setReal(k, sums[k]);
    }
  } else {
    std::vector<int64_t> sums(total, wholeIdentity(op, x.dtype));
    runLoops(loops, [&](int64_t i, int64_t, int64_t k) { sums[k] = combineWhole(op, sums[k], x.whole[i]); });
    for (int64_t k = 0; k < total; k++) {
      result.setWhole(k, sums[k]);
    }
  }
  bool adds = op == ReduceOp::Sum || op == ReduceOp::Prod;
  if (!context.bounds || (x.error.empty() && !(result.floating() && adds))) {
    return result;
  }
  Tally tally(total, op == ReduceOp::Prod ? 1 : 0);
  runLoops(loops, [&](int64_t i, int64_t, int64_t k) { count(tally, op, k, x.value(i), x.errorAt(i)); });
  for (int64_t k = 0; k < total; k++) {
    double bound = boundOf(op, x.dtype, tally, k, context);
    result.setError(k, bound);
    result.uncertain += isBitwise(op) && bound > 0 ? 1 : 0;
  }
  return result;
}

Array scanArray(ReduceOp op, const Array& x, int64_t outer, int64_t inner, const Context& context) {
  Array result = makeArray(x.dtype, x.sizes);
  const bool adds = op == ReduceOp::Sum || op == ReduceOp::Prod;
  const bool bounded = context.bounds && (!x.error.empty() || (result.floating() && adds));
  const int64_t lines = outer * inner;
  const int64_t extent = lines == 0 ? 0 : result.numel() / lines;
  for (int64_t line = 0; line < lines; line++) {
    double real = result.floating() ? realIdentity(op) : 0;
    int64_t whole = result.floating() ? 0 : wholeIdentity(op, x.dtype);
    Tally tally(1, op == ReduceOp::Prod ? 1 : 0);
    for (int64_t j = 0; j < extent; j++) {
      const int64_t at = (line / inner * extent + j) * inner + line % inner;
      if (result.floating()) {
        real = combineReal(op, real, x.real[at]);
        result.setReal(at, real);
      } else {
        whole = wrapInteger(x.dtype, combineWhole(op, whole, x.whole[at]));
        result.setWhole(at, whole);
      }
      if (bounded) {
        count(tally, op, 0, x.value(at), x.errorAt(at));
        const double bound = boundOf(op, x.dtype, tally, 0, context);
        result.setError(at, bound);
        result.uncertain += isBitwise(op) && bound > 0 ? 1 : 0;
      }
    }
  }
  return result;
}

Array accumulateRows(const Array& x, std::span<const int64_t> places, const Array& rows, const Context& context) {
  Array result = makeArray(x.dtype, x.sizes);
  const int64_t total = result.numel();
  const int64_t width = product(std::span(x.sizes).subspan(1));
  const bool bounded = context.bounds && (result.floating() || !x.error.empty() || !rows.error.empty());
  std::vector<double> real = x.real;
  std::vector<int64_t> whole = x.whole;
  Tally tally(bounded ? total : 0, 0);
  for (int64_t k = 0; bounded && k < total; k++) {
    count(tally, ReduceOp::Sum, k, x.value(k), x.errorAt(k));
  }
  for (size_t i = 0; i < places.size(); i++) {
    for (int64_t d = 0; places[i] >= 0 && d < width; d++) {
      const int64_t from = static_cast<int64_t>(i) * width + d;
      const int64_t to = places[i] * width + d;
      if (result.floating()) {
        real[to] += rows.real[from];
      } else {
        whole[to] = combineWhole(ReduceOp::Sum, whole[to], rows.whole[from]);
      }
      if (bounded) {
        count(tally, ReduceOp::Sum, to, rows.value(from), rows.errorAt(from));
      }
    }
  }
  for (int64_t k = 0; k < total; k++) {
    if (result.floating()) {
      result.setReal(k, real[k]);
    } else {
      result.setWhole(k, whole[k]);
    }
    if (bounded) {
      const bool isCopy = tally.counts[k] == 1;
      const double bound = isCopy ? x.errorAt(k) : boundOf(ReduceOp::Sum, x.dtype, tally, k, context);
      const bool rounds = !isCopy && isHalfPrecision(x.dtype) && std::isfinite(real[k]);
      result.setError(k, bound + (rounds ? 2 * unitOf(x.dtype) * (std::fabs(real[k]) + bound) : 0));
    }
  }
  return result;
}

Array contractArrays(const Array& a, const Array& b, const Sizes& sizes, const ContractOptions& options,
                     const Context& context) {
  const auto [loops, dtype, bias] = options;
  Array result = makeArray(dtype, sizes);
  const int64_t total = result.numel();
  if (!result.floating()) {
    runLoops(loops, [&](int64_t i, int64_t j, int64_t k) {
      int64_t term = combineWhole(ReduceOp::Prod, a.whole[i], b.whole[j]);
      result.setWhole(k, combineWhole(ReduceOp::Sum, result.whole[k], term));
    });
    for (int64_t k = 0; bias != nullptr && k < total; k++) {
      result.setWhole(k, combineWhole(ReduceOp::Sum, result.whole[k], bias->whole[k]));
    }
    if (context.bounds && (!a.error.empty() || !b.error.empty())) {
      result.error.assign(total, kInfinity);
    }
    return result;
  }
  std::vector<double> sums(total, 0);
  Tally tally(context.bounds ? total : 0, 0);
  runLoops(loops, [&](int64_t i, int64_t j, int64_t k) {
    double x = a.real[i];
    double y = b.real[j];
    sums[k] += x * y;
    if (context.bounds) {
      double ex = a.errorAt(i);
      double ey = b.errorAt(j);
      double change = (ey == 0 ? 0 : std::fabs(x) * ey) + (ex == 0 ? 0 : std::fabs(y) * ex) + ex * ey;
      count(tally, ReduceOp::Sum, k, x * y, change);
    }
  });
  for (int64_t k = 0; k < total; k++) {
    double value = sums[k] + (bias != nullptr ? bias->real[k] : 0);
    result.setReal(k, value);
    if (context.bounds) {
      if (bias != nullptr) {
        count(tally, ReduceOp::Sum, k, bias->real[k], bias->errorAt(k));
      }
      double bound = boundOf(ReduceOp::Sum, dtype, tally, k, context);
      double rounding =
          isHalfPrecision(dtype) && std::isfinite(value) ? 2 * unitOf(dtype) * (std::fabs(value) + bound) : 0;
      result.setError(k, bound + rounding);
    }
  }
  return result;
}

}  // namespace meshfuse::reference
