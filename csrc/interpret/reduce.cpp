// Sums and their like over arrays: reductions, contractions, and the bounds of adding up in any order.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "interpret/ops.h"

namespace meshfuse::reference {

namespace {

double realIdentity(ReduceOp op) {
  invariant(!isBitwise(op), "[interpret] {} is not defined for floating-point numbers", name(op));
  return op == ReduceOp::Prod ? 1 : op == ReduceOp::Max ? -kInfinity : op == ReduceOp::Min ? kInfinity : 0;
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
      return wrapInteger(dtype, -1);
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

// What is kept for each result element, from which its bound follows.
struct Tally {
  double size = 0;   // sum of |v| + e; of products: their product
  double exact = 0;  // sum of v; product of |v|
  double error = 0;  // sum of e, or the largest
  int64_t terms = 0;
  // How far the sums or products of some of the terms may go up and down, in whatever order.
  double highest = 0;
  double lowest = 0;
  bool infinite = false;  // a factor is infinite
};

// The least and the largest positive normal number.
std::pair<double, double> normalRange(DataType dtype) {
  switch (dtype) {
    case DataType::Double:
      return {std::numeric_limits<double>::min(), std::numeric_limits<double>::max()};
    case DataType::Half:
      return {0x1p-14, 65504};
    default:  // the exponents of Float
      return {std::numeric_limits<float>::min(), std::numeric_limits<float>::max()};
  }
}

// Each of several parts is rounded to `dtype`, and so is each of their sums or products: p + 1 roundings with the last one, each relative
// to no more than `size`. See Higham, "Accuracy and Stability of Numerical Algorithms", lemma 3.1.
double errorOfParts(DataType dtype, double size, const Context& context) {
  if (context.partials <= 1) {
    return 0;
  }
  const double roundings = static_cast<double>(context.partials + 1) * unitOf(dtype);
  return roundings < 1 ? roundings / (1 - roundings) * size : kInfinity;
}

// A sum of some terms that leaves the type's range is infinite, whatever the other terms bring. The bound of the others then says nothing,
// except if the whole sum leaves the range on the only side on which a part of it may.
bool mayOverflow(const Tally& sum, double error, double most) {
  const bool rises = !(sum.highest + error <= most);
  const bool falls = !(sum.lowest - error >= -most);
  const bool isNan = std::isnan(sum.exact);  // some term is, or two are infinite: so is every sum
  return (rises || falls) && !isNan && !(!falls && sum.exact - error > most) && !(!rises && sum.exact + error < -most);
}

double boundOf(ReduceOp op, DataType dtype, const Tally& tally, const Context& context) {
  double unit = unitOf(accumulateType(dtype));
  double steps = static_cast<double>(tally.terms) + 1;
  double reference = dtype == DataType::Double ? 2 : 1;  // the reference adds in double too
  const auto [least, most] = normalRange(context.partials > 1 ? dtype : accumulateType(dtype));  // of what is rounded
  switch (op) {
    case ReduceOp::Sum: {
      const double error =
          tally.error + reference * steps * unit * tally.size + errorOfParts(dtype, tally.size, context);
      return mayOverflow(tally, error, most) ? kInfinity : error;
    }
    case ReduceOp::Prod: {
      // A product on the way that leaves the type's range is infinite or 0, whatever the last factors bring.
      const bool vanishes = tally.lowest < least;
      if (!std::isfinite(tally.size) || !(tally.highest <= most) || (vanishes && tally.infinite)) {
        return kInfinity;
      }
      const double lost = vanishes ? steps * least * tally.highest : 0;
      return tally.size - tally.exact + reference * steps * unit * tally.size + lost +
             errorOfParts(dtype, tally.size, context);
    }
    case ReduceOp::Max:
    case ReduceOp::Min:
      return tally.error;
    case ReduceOp::And:
    case ReduceOp::Or:
    case ReduceOp::Xor:
      return tally.error > 0 ? (dtype == DataType::Bool ? 1 : kInfinity) : 0;
  }
  return 0;
}

void count(Tally& tally, ReduceOp op, double value, double error) {
  double size = std::isfinite(value) ? std::fabs(value) : 0;  // infinities and NaN decide the result themselves
  tally.terms++;
  if (op == ReduceOp::Prod) {
    tally.size *= size + error;
    tally.exact *= size;
    tally.infinite = tally.infinite || !std::isfinite(value);
    if (std::isfinite(value) && size + error > 0) {
      tally.highest *= std::max(1.0, size + error);
      tally.lowest *= std::min(1.0, std::max(size - error, 0.0));
    }
    return;
  }
  tally.size += size + error;
  tally.exact += value;
  tally.highest += std::max(0.0, value + error);
  tally.lowest += std::min(0.0, value - error);
  bool largest = op == ReduceOp::Max || op == ReduceOp::Min;
  tally.error = largest ? std::max(tally.error, error) : tally.error + error;
}

// Elements of a result while terms are combined into them.
struct Totals {
  ReduceOp op;
  DataType dtype;
  const Context& context;
  std::vector<double> real;
  std::vector<int64_t> whole;
  std::vector<Tally> tallies;  // empty without bounds

  Totals(ReduceOp op, DataType dtype, int64_t n, bool isBounded, const Context& context)
      : op(op), dtype(dtype), context(context) {
    const double start = op == ReduceOp::Prod ? 1 : 0;
    tallies.assign(isBounded ? n : 0, {.size = start, .exact = start, .highest = start, .lowest = start});
    if (isFloatingPoint(dtype)) {
      real.assign(n, realIdentity(op));
    } else {
      whole.assign(n, wholeIdentity(op, dtype));
    }
  }

  void add(int64_t k, double value, double error) {
    real[k] = combineReal(op, real[k], value);
    if (!tallies.empty()) {
      count(tallies[k], op, value, error);
    }
  }
  void add(int64_t k, int64_t value, double error) {
    whole[k] = combineWhole(op, whole[k], value);
    if (!tallies.empty()) {
      count(tallies[k], op, static_cast<double>(value), error);
    }
  }
  void add(int64_t k, const Array& x, int64_t i) {
    x.floating() ? add(k, x.real[i], x.errorAt(i)) : add(k, x.whole[i], x.errorAt(i));
  }

  // Element k, rounded, as element i of `result`.
  void store(Array& result, int64_t i, int64_t k) const {
    result.floating() ? result.setReal(i, real[k]) : result.setWhole(i, whole[k]);
    if (!tallies.empty()) {
      const double bound = boundOf(op, dtype, tallies[k], context);
      result.setError(i, bound);
      result.uncertain += isBitwise(op) && bound > 0 ? 1 : 0;
    }
  }
  // The same of sums in Float of 16-bit elements: the bound covers the rounding.
  void storeSum(Array& result, int64_t k) const {
    store(result, k, k);
    if (!tallies.empty() && isHalfPrecision(dtype) && std::isfinite(real[k])) {
      result.setError(k, result.error[k] + 2 * unitOf(dtype) * (std::fabs(real[k]) + result.error[k]));
    }
  }
};

// Of a reduction or scan: exact elements have a bound if combining them rounds.
bool hasBounds(ReduceOp op, const Array& x, const Context& context) {
  const bool adds = op == ReduceOp::Sum || op == ReduceOp::Prod;
  return context.bounds && (!x.error.empty() || (x.floating() && adds));
}

}  // namespace

Array reduceArray(ReduceOp op, const Array& x, const Sizes& sizes, std::span<const Loop> loops,
                  const Context& context) {
  Array result = makeArray(x.dtype, sizes);
  Totals totals(op, x.dtype, result.numel(), hasBounds(op, x, context), context);
  runLoops(loops, [&](int64_t i, int64_t, int64_t k) { totals.add(k, x, i); });
  for (int64_t k = 0, total = result.numel(); k < total; k++) {
    totals.store(result, k, k);
  }
  return result;
}

Array scanArray(ReduceOp op, const Array& x, int64_t outer, int64_t inner, const Context& context) {
  Array result = makeArray(x.dtype, x.sizes);
  const int64_t lines = outer * inner;
  const int64_t extent = lines == 0 ? 0 : result.numel() / lines;
  for (int64_t line = 0; line < lines; line++) {
    Totals total(op, x.dtype, 1, hasBounds(op, x, context), context);
    for (int64_t j = 0; j < extent; j++) {
      const int64_t at = (line / inner * extent + j) * inner + line % inner;
      total.add(0, x, at);
      total.store(result, at, 0);
    }
  }
  return result;
}

Array accumulateRows(const Array& x, std::span<const int64_t> places, const Array& rows, const Context& context) {
  Array result = makeArray(x.dtype, x.sizes);
  const int64_t width = productOf(std::span(x.sizes).subspan(1));
  const bool isBounded = context.bounds && (result.floating() || !x.error.empty() || !rows.error.empty());
  Totals sums(ReduceOp::Sum, x.dtype, result.numel(), isBounded, context);
  sums.real = x.real;
  sums.whole = x.whole;
  for (int64_t k : indices(sums.tallies)) {
    count(sums.tallies[k], ReduceOp::Sum, x.value(k), x.errorAt(k));
  }
  for (int64_t i : indices(places)) {
    for (int64_t d = 0; places[i] >= 0 && d < width; d++) {
      sums.add(places[i] * width + d, rows, i * width + d);
    }
  }
  for (int64_t k = 0, total = result.numel(); k < total; k++) {
    sums.storeSum(result, k);
    if (isBounded && sums.tallies[k].terms == 1) {
      result.setError(k, x.errorAt(k));  // a copy
    }
  }
  return result;
}

Array contractArrays(const Array& a, const Array& b, const Sizes& sizes, const ContractOptions& options,
                     const Context& context) {
  const auto [loops, dtype, bias] = options;
  Array result = makeArray(dtype, sizes);
  const bool isBounded = context.bounds && result.floating();
  Totals sums(ReduceOp::Sum, dtype, result.numel(), isBounded, context);
  // processors' instructions for BFloat16 take subnormal operands and sums as zeros
  constexpr double kSmallestNormal = 0x1p-126;
  const bool flushes = isHalfPrecision(a.dtype);
  const auto flushed = [&](double x, double xError, double y, double yError) {
    return std::min(std::fabs(x) - xError, std::fabs(y) - yError) < kSmallestNormal
               ? (std::fabs(x) + xError) * (std::fabs(y) + yError) + kSmallestNormal
               : kSmallestNormal;
  };
  const double least = dtype == DataType::Double ? 0x1p-1074 : 0x1p-149;  // a sum is rounded to multiples of it
  // Each part, and the reference, is rounded to a multiple of 2^-24; what is less than half of it may vanish.
  const double halves = static_cast<double>(std::max<int64_t>(context.partials, 1) + 1) * 0x1p-25;
  runLoops(loops, [&](int64_t i, int64_t j, int64_t k) {
    if (result.floating()) {
      const double error = isBounded ? productError(a.real[i], a.errorAt(i), b.real[j], b.errorAt(j)) +
                                           (flushes ? flushed(a.real[i], a.errorAt(i), b.real[j], b.errorAt(j)) : least)
                                     : 0;
      sums.add(k, a.real[i] * b.real[j], error);
    } else {
      sums.add(k, combineWhole(ReduceOp::Prod, a.whole[i], b.whole[j]), 0);
    }
  });
  for (int64_t k = 0, total = result.numel(); k < total; k++) {
    if (bias != nullptr) {
      sums.add(k, *bias, k);
    }
    sums.storeSum(result, k);
    if (isBounded && dtype == DataType::Half) {
      result.setError(k, result.error[k] + std::min(halves, 2 * sums.tallies[k].size));
    }
  }
  if (context.bounds && !result.floating() && (!a.error.empty() || !b.error.empty())) {
    result.error.assign(result.numel(), kInfinity);
  }
  return result;
}

}  // namespace meshfuse::reference
