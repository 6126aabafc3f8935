// Reductions, contractions, factories and redistributions.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "base/error.h"
#include "base/ranges.h"
#include "interpret/program.h"

namespace meshfuse::reference {

namespace {

// The position of a logical dim in the root domain: one step of it is `stride` steps of root dim `root`.
struct Digit {
  int64_t root = 0;
  IntExpr stride = 1;
};

// Of a dim that splits made; a partial reduction's logical dims are such.
Digit digitOf(const TensorView* out, const IterDomain* id, const std::vector<IterDomain*>& root) {
  const int64_t place = positionIn(root, id);
  if (place < std::ssize(root)) {
    return {place, 1};
  }
  const IdExpr* definition = id->definition();
  check(definition != nullptr && definition->kind == IdExprKind::Split,
        "[{}] a dim of T{} results from a merge or a resize, expected dims that result from splits; interpret the "
        "program before its sums are partial",
        out->definition()->opName(), out->id());
  Digit digit = digitOf(out, definition->in[0], root);
  if (definition->out[0] == id) {
    digit.stride *= definition->out[1]->extent();
  }
  return digit;
}

// Loops over the logical dims of `out`, reductions included, with the steps that root dims make in the operands.
std::vector<Loop> loopsOf(const Program& program, const TensorView* out, std::span<const int64_t> aSteps,
                          std::span<const int64_t> bSteps, const Sizes& sizes) {
  std::vector<IterDomain*> root = out->getRootDomain();
  std::vector<int64_t> strides = contiguousStrides(sizes);
  std::vector<int64_t> covered(root.size(), 1);
  std::vector<Loop> loops;
  size_t next = 0;
  for (const IterDomain* id : out->getLogicalDomain()) {
    Digit digit = digitOf(out, id, root);
    int64_t stride = program.evaluate(digit.stride);
    int64_t extent = program.evaluate(id->extent());
    covered[digit.root] *= extent;
    loops.push_back({.extent = extent,
                     .a = aSteps[digit.root] * stride,
                     .b = bSteps.empty() ? 0 : bSteps[digit.root] * stride,
                     .target = id->isReduction() ? 0 : strides[next++]});
  }
  for (int64_t k : indices(root)) {
    int64_t extent = program.evaluate(root[k]->extent());
    check(covered[k] == extent,
          "[interpret] dim {} of T{} has size {}, cut into parts that cover {}; expected parts that divide it", k,
          out->id(), extent, covered[k]);
  }
  return loops;
}

// A dim of the result, before it is reduced, is as long as that of the operand it comes of.
void checkDim(const Expr* expr, size_t k, int64_t got, int64_t operand, int64_t expected) {
  check(got == expected, "[{}] dim {} of T{} has size {}, expected {} as in T{}", expr->opName(), k,
        expr->output()->id(), got, expected, expr->input(operand)->id());
}

}  // namespace

Array Program::computeReduce(const Expr* expr) {
  const Array& x = operand(expr, 0);
  const TensorView* out = expr->tensorOutput();
  Sizes sizes = sizesOf(out);
  std::vector<int64_t> steps = contiguousStrides(x.sizes);
  const std::vector<IterDomain*>& root = out->getRootDomain();
  for (int64_t k : indices(root)) {
    checkDim(expr, k, evaluate(root[k]->extent()), 0, x.sizes.at(k));
  }
  return reduceArray(expr->attributes().reduce, x, sizes, loopsOf(*this, out, steps, {}, sizes), context_);
}

Array Program::computeContraction(const Expr* expr) {
  const bool isLinear = expr->kind() == ExprKind::Linear;
  const Array& a = operand(expr, 0);
  const Array& b = operand(expr, 1);
  const TensorView* out = expr->tensorOutput();
  const Sizes sizes = sizesOf(out);
  const size_t rank = out->getRootDomain().size();  // batches, M, N, K as far as there are
  const size_t ra = a.sizes.size();
  const size_t rb = b.sizes.size();
  std::vector<int64_t> aOwn = contiguousStrides(a.sizes);
  std::vector<int64_t> bOwn = contiguousStrides(b.sizes);
  std::vector<int64_t> aSteps(rank, 0);
  std::vector<int64_t> bSteps(rank, 0);
  std::vector<int64_t> biasSteps(rank, 0);
  const size_t bInner = isLinear || rb == 1 ? rb - 1 : rb - 2;  // the dim of K
  const int64_t inner = a.sizes[ra - 1];
  check(inner == b.sizes[bInner], "[{}] inner sizes differ: T{} has {}, T{} has {}; transpose one", expr->opName(),
        expr->input(0)->id(), inner, expr->input(1)->id(), b.sizes[bInner]);
  auto checkRoot = [&](size_t k, int64_t operand, int64_t size) {
    checkDim(expr, k, evaluate(out->getRootDomain()[k]->extent()), operand, size);
  };
  checkRoot(rank - 1, 0, inner);
  aSteps[rank - 1] = aOwn[ra - 1];
  bSteps[rank - 1] = bOwn[bInner];
  const bool hasN = rb > 1;
  if (hasN) {
    const size_t bColumns = isLinear ? 0 : rb - 1;
    checkRoot(rank - 2, 1, b.sizes[bColumns]);
    bSteps[rank - 2] = bOwn[bColumns];
    biasSteps[rank - 2] = 1;
  }
  const size_t before = rank - 1 - (hasN ? 1 : 0);                      // dims ahead of N
  const size_t rows = isLinear ? ra - 1 : std::min<size_t>(ra - 1, 1);  // dims of a that are M
  const size_t aBatches = ra - 1 - rows;
  const size_t bBatches = isLinear || rb == 1 ? 0 : rb - 2;
  for (size_t k = aBatches; k + 1 < ra; k++) {
    const size_t at = before - (ra - 1) + k;
    checkRoot(at, 0, a.sizes[k]);
    aSteps[at] = aOwn[k];
  }
  // The step of batch dim k of an operand, which may stretch to dim `at` of the result.
  auto batchStep = [&](int64_t operand, const Array& array, size_t k, size_t at, int64_t own) {
    const bool stretched = stretches(expr->input(operand)->asTensor()->noReductions()[k], array.sizes[k]);
    const int64_t expected = evaluate(out->getRootDomain()[at]->extent());
    check(stretched || array.sizes[k] == expected,
          "[matmul] batch dim {} of T{} has {}, of the result {}; expected equal sizes", k, expr->input(operand)->id(),
          array.sizes[k], expected);
    return stretched ? 0 : own;
  };
  for (size_t k = 0; k < aBatches; k++) {
    const size_t at = before - (ra - 1) + k;
    aSteps[at] = batchStep(0, a, k, at, aOwn[k]);
  }
  for (size_t k = 0; k < bBatches; k++) {
    const size_t at = before - rows - bBatches + k;
    bSteps[at] = batchStep(1, b, k, at, bOwn[k]);
  }
  std::vector<Loop> loops = loopsOf(*this, out, aSteps, bSteps, sizes);
  ContractOptions options{.loops = loops, .dtype = out->dtype()};
  Array bias;
  if (isLinear && expr->inputs().size() > 2) {
    const Array& given = operand(expr, 2);
    check(!hasN || given.sizes[0] == b.sizes[0],
          "[linear] the bias T{} has {} elements, the weight T{} has {} rows; give one element for each row",
          expr->input(2)->id(), given.sizes[0], expr->input(1)->id(), b.sizes[0]);
    std::vector<int64_t> strides;
    std::vector<Loop> biasLoops = loopsOf(*this, out, biasSteps, {}, sizes);
    for (int64_t k = 0; k < std::ssize(biasLoops); k++) {
      if (!out->getLogicalDomain()[k]->isReduction()) {
        strides.push_back(biasLoops[k].a);
      }
    }
    bias = take(given, sizes, stridedOffsets(sizes, strides));
    options.bias = &bias;
  }
  return contractArrays(a, b, sizes, options, context_);
}

Array Program::computeFactory(const Expr* expr) {
  const TensorView* out = expr->tensorOutput();
  Sizes sizes = sizesOf(out);
  Array result = makeArray(out->dtype(), sizes);
  const int64_t total = result.numel();
  if (expr->kind() == ExprKind::Full) {
    const Array& value = operand(expr, 0);
    for (int64_t i = 0; i < total; i++) {
      result.set(i, value, 0);
    }
    return result;
  }
  int64_t first = evaluate(expr->attributes().starts.at(0));
  if (expr->kind() == ExprKind::Eye) {
    int64_t column = evaluate(expr->attributes().starts.at(1));
    Array one = makeArray(DataType::Bool, {});
    one.setWhole(0, 1);
    for (int64_t i = 0; i < total; i++) {
      if (i / sizes[1] + first == i % sizes[1] + column) {
        result.set(i, one, 0);
      }
    }
    return result;
  }
  const Array& start = operand(expr, 0);
  const Array& step = operand(expr, 1);
  for (int64_t i = 0; i < total; i++) {
    if (!result.floating()) {
      auto turns = static_cast<uint64_t>(first + i);
      result.setWhole(i, static_cast<int64_t>(static_cast<uint64_t>(start.integer(0)) +
                                              turns * static_cast<uint64_t>(step.integer(0))));
      continue;
    }
    double distance = static_cast<double>(first + i) * step.value(0);
    result.setReal(i, start.value(0) + distance);
    // Integers that the type holds are exact however they are computed.
    double size = std::fabs(start.value(0)) + std::fabs(distance);
    bool exact = size * unitOf(out->dtype()) <= 1 && std::trunc(start.value(0)) == start.value(0) &&
                 std::trunc(step.value(0)) == step.value(0);
    if (context_.bounds && !exact) {
      result.setError(i, 4 * unitOf(out->dtype()) * size);
    }
  }
  return result;
}

Array Program::computeRandom(const Expr* expr) {
  const ExprAttributes& attributes = expr->attributes();
  const TensorView* out = expr->tensorOutput();
  Sizes sizes = sizesOf(out);
  Sizes starts = evaluateAll(attributes.starts);
  std::vector<int64_t> strides = contiguousStrides(evaluateAll(attributes.stops));
  const int64_t offset = std::inner_product(starts.begin(), starts.end(), strides.begin(), int64_t{0});
  auto seed = static_cast<uint64_t>(operand(expr, 0).integer(0));
  auto counter = static_cast<uint64_t>(operand(expr, 1).integer(0)) + static_cast<uint64_t>(attributes.ordinal);
  return randomArray(sizes, stridedOffsets(sizes, strides, offset),
                     {.kind = attributes.random, .dtype = out->dtype(), .seed = seed, .counter = counter}, context_);
}

Array Program::computeScan(const Expr* expr) {
  const Array& x = operand(expr, 0);
  const int64_t dim = expr->attributes().dim;
  return scanArray(expr->attributes().reduce, x, productOf(std::span(x.sizes).first(dim)),
                   productOf(std::span(x.sizes).subspan(dim + 1)), context_);
}

Array Program::computeArgSort(const Expr* expr) {
  const Array& x = operand(expr, 0);
  const int64_t dim = expr->attributes().dim;
  Sizes sizes = sizesOf(expr->tensorOutput());
  check(sizes[dim] <= x.sizes[dim],
        "[argsort] {} elements of dim {} of T{} are requested, but it has {}; request no more than that", sizes[dim],
        dim, expr->input(0)->id(), x.sizes[dim]);
  const bool descending = expr->attributes().flags.at(0);
  return argSortArray(x, dim, sizes, descending ? Order::Descending : Order::Ascending);
}

Array Program::computeIndexPut(const Expr* expr) {
  const Array& x = operand(expr, 0);
  const Array& index = operand(expr, 1);
  const Array& value = operand(expr, 2);
  Sizes expected = index.sizes;
  expected.insert(expected.end(), x.sizes.begin() + 1, x.sizes.end());
  check(value.sizes == expected,
        "[{}] T{} has sizes [{}], expected [{}]: those of index T{}, then those of a row of T{}", expr->opName(),
        expr->input(2)->id(), fmt::join(value.sizes, ", "), fmt::join(expected, ", "), expr->input(1)->id(),
        expr->input(0)->id());
  Array result = accumulateRows(x, placesOf(expr), value, context_);
  if (std::ranges::any_of(index.error, [](double e) { return e > 0; })) {
    result.error.assign(result.numel(), kInfinity);
    result.uncertain = result.numel();
  }
  return result;
}

// Data stay as they are, whole; a partial sum's dim of parts is combined.
Array Program::computeRedistribute(const Expr* expr) {
  const Array& x = operand(expr, 0);
  Sizes sizes = sizesOf(expr->tensorOutput());
  std::vector<int64_t> steps = contiguousStrides(x.sizes);
  const int64_t dim = expr->attributes().dim;
  const bool combines = x.sizes.size() != sizes.size();
  Sizes expected = x.sizes;
  if (combines) {
    invariant(x.sizes.size() == sizes.size() + 1 && dim >= 0 && dim < std::ssize(x.sizes),
              "[interpret] {} combines dim {} of {} dims into {}", expr->opName(), dim, x.sizes.size(), sizes.size());
    expected.erase(expected.begin() + dim);
  }
  check(sizes == expected, "[{}] T{} has sizes {}, its redistribution T{} {}; expected equal ones", expr->opName(),
        expr->input(0)->id(), describe(expected), expr->output()->id(), describe(sizes));
  if (!combines) {
    return take(x, sizes, stridedOffsets(sizes, steps));
  }
  std::vector<int64_t> targets = contiguousStrides(sizes);
  std::vector<Loop> loops;
  for (int64_t k = 0; k < std::ssize(x.sizes); k++) {
    loops.push_back({.extent = x.sizes[k], .a = steps[k], .target = k == dim ? 0 : targets[k < dim ? k : k - 1]});
  }
  return reduceArray(expr->attributes().reduce, x, sizes, loops, context_);
}

}  // namespace meshfuse::reference
