// Elementwise ops, and ops that only move elements.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "interpret/program.h"

namespace meshfuse::reference {

Array Program::computePoint(const Expr* expr) {
  const Val* out = expr->output();
  const PointOp op = expr->attributes().point;
  Sizes sizes = out->isTensor() ? sizesOf(out->asTensor()) : Sizes{};
  std::vector<const Array*> operands;
  const int64_t first = op == PointOp::Where ? 1 : 0;
  DataType type = expr->input(first)->dtype();
  bool typed = false;
  for (int64_t k = 0; k < std::ssize(expr->inputs()); k++) {
    operands.push_back(&operand(expr, k));
    const Val* in = expr->input(k);
    if (!in->isTensor()) {
      continue;
    }
    if (k >= first && !typed) {
      type = in->dtype();
      typed = true;
    }
    // A dim that happens to be 1 does not stretch: only broadcast dims do.
    std::vector<IterDomain*> dims = in->asTensor()->noReductions();
    for (int64_t d : indices(dims)) {
      int64_t own = operands.back()->sizes[d];
      check(own == sizes[d] || stretches(dims[d], own),
            "[{}] extents differ in dim {}: T{} has {}, the result T{} {}; give operands of equal sizes",
            expr->opName(), d, in->id(), own, out->id(), sizes[d]);
    }
  }
  return pointArray(op, operands, info(op).givesBool ? type : out->dtype(), out->dtype(), sizes, context_);
}

Array Program::computeShape(const Expr* expr) {
  const Array& x = operand(expr, 0);
  const ExprAttributes& attributes = expr->attributes();
  Sizes sizes = sizesOf(expr->tensorOutput());
  std::vector<int64_t> own = contiguousStrides(x.sizes);
  std::vector<int64_t> strides;
  // The next dim of the result is dim k of the operand.
  const auto keep = [&](int64_t k) {
    const int64_t d = std::ssize(strides);
    check(x.sizes[k] == sizes[d], "[{}] dim {} of T{} has size {}, dim {} of the result T{} {}; expected equal sizes",
          expr->opName(), k, expr->input(0)->id(), x.sizes[k], d, expr->output()->id(), sizes[d]);
    strides.push_back(own[k]);
  };
  switch (expr->kind()) {
    case ExprKind::Broadcast: {
      int64_t next = 0;
      for (const bool fresh : attributes.flags) {
        if (fresh) {
          strides.push_back(0);
        } else {
          keep(next++);
        }
      }
      break;
    }
    case ExprKind::Squeeze:
      for (int64_t k : indices(own)) {
        check(!attributes.flags[k] || x.sizes[k] == 1,
              "[squeeze] dim {} of T{} has size {}, expected 1; squeeze only dims of size 1", k, expr->input(0)->id(),
              x.sizes[k]);
        if (!attributes.flags[k]) {
          keep(k);
        }
      }
      break;
    case ExprKind::Expand:
      for (int64_t k : indices(own)) {
        bool stretched = x.sizes[k] == 1 && sizes[k] != 1;
        check(stretched || x.sizes[k] == sizes[k],
              "[expand] dim {} of T{} has size {}, got {}; only a size of 1 stretches", k, expr->input(0)->id(),
              x.sizes[k], sizes[k]);
        strides.push_back(stretched ? 0 : own[k]);
      }
      break;
    case ExprKind::Permute:
      std::ranges::for_each(attributes.order, keep);
      break;
    case ExprKind::Reshape:
      check(productOf(sizes) == x.numel(),
            "[reshape] T{} of sizes {} has {} elements, the result T{} of sizes {} has {}; expected equal numbers",
            expr->input(0)->id(), describe(x.sizes), x.numel(), expr->output()->id(), describe(sizes),
            productOf(sizes));
      strides = contiguousStrides(sizes);
      break;
    default:
      check(x.sizes == sizes, "[{}] T{} has sizes {}, the result T{} {}; expected equal ones", expr->opName(),
            expr->input(0)->id(), describe(x.sizes), expr->output()->id(), describe(sizes));
      strides = own;
  }
  return take(x, sizes, stridedOffsets(sizes, strides));
}

Array Program::computeSlice(const Expr* expr) {
  const Array& x = operand(expr, 0);
  Sizes starts = evaluateAll(expr->attributes().starts);
  Sizes steps = evaluateAll(expr->attributes().steps);
  std::vector<int64_t> strides = contiguousStrides(x.sizes);
  const int64_t offset = std::inner_product(starts.begin(), starts.end(), strides.begin(), int64_t{0});
  std::ranges::transform(strides, steps, strides.begin(), std::multiplies());
  Sizes sizes = sizesOf(expr->tensorOutput());
  for (int64_t k : indices(sizes)) {
    const int64_t last = starts[k] + (sizes[k] - 1) * steps[k];
    check(sizes[k] == 0 || (starts[k] >= 0 && last < x.sizes[k]),
          "[slice] elements {} to {} of dim {} of T{} are read, which has {}; give a range inside of it", starts[k],
          last, k, expr->input(0)->id(), x.sizes[k]);
  }
  return take(x, sizes, stridedOffsets(sizes, strides, offset));
}

Array Program::computePad(const Expr* expr) {
  const Array& x = operand(expr, 0);
  const Array& fill = operand(expr, 1);
  Sizes left = evaluateAll(expr->attributes().starts);
  Sizes sizes = sizesOf(expr->tensorOutput());
  std::vector<int64_t> strides = contiguousStrides(x.sizes);
  std::vector<int64_t> ownStrides = contiguousStrides(sizes);
  std::vector<int64_t> offsets(productOf(sizes), 0);
  for (int64_t i : indices(offsets)) {
    for (int64_t k = 0; k < std::ssize(strides) && offsets[i] >= 0; k++) {
      const int64_t from = i / ownStrides[k] % sizes[k] - left[k];
      offsets[i] = from >= 0 && from < x.sizes[k] ? offsets[i] + from * strides[k] : -1;
    }
  }
  return take(x, sizes, offsets, &fill);
}

Array Program::computeCat(const Expr* expr) {
  Sizes sizes = sizesOf(expr->tensorOutput());
  const int64_t dim = expr->attributes().dim;
  Array result = makeArray(expr->output()->dtype(), sizes);
  int64_t inner = productOf(std::span(sizes).subspan(dim + 1));
  const auto lengthOf = [&](int64_t t) { return operand(expr, t).sizes[dim]; };
  const int64_t joinedLength = sumOf(indices(expr->inputs()), lengthOf);
  check(joinedLength == sizes[dim],
        "[cat] the operands have {} elements along dim {}, the result T{} {}; expected equal numbers", joinedLength,
        dim, expr->output()->id(), sizes[dim]);
  int64_t base = 0;
  for (int64_t t = 0; t < std::ssize(expr->inputs()); t++) {
    const Array& part = operand(expr, t);
    int64_t count = part.sizes[dim] * inner;
    Sizes expected = sizes;
    expected[dim] = part.sizes[dim];
    check(part.sizes == expected, "[cat] T{} has sizes {}, expected {}: those of the result outside dim {}",
          expr->input(t)->id(), describe(part.sizes), describe(expected), dim);
    for (int64_t i = 0; i < part.numel(); i++) {
      int64_t to = (i / count) * sizes[dim] * inner + base * inner + i % count;
      result.set(to, part, i);
      if (!part.error.empty()) {
        result.setError(to, part.error[i]);
      }
    }
    base += part.sizes[dim];
  }
  return result;
}

namespace {

// Along `dim` the result is as long as the index. Elsewhere takeAlongAxis stretches dims of one element, gather takes a part of the
// data, and the others take all.
void checkIndexSizes(const Expr* expr, const Sizes& data, const Sizes& index, const Sizes& sizes) {
  const bool along = expr->kind() == ExprKind::TakeAlongAxis;
  const bool gathers = expr->kind() == ExprKind::Gather;
  if (!along && !gathers) {
    return;
  }
  const int64_t dim = expr->attributes().dim;
  std::vector<IterDomain*> dataDims = expr->input(0)->asTensor()->noReductions();
  std::vector<IterDomain*> indexDims = expr->input(1)->asTensor()->noReductions();
  for (int64_t k : indices(sizes)) {
    const bool indexFits = index[k] == sizes[k] || (along && k != dim && stretches(indexDims[k], index[k]));
    const bool dataFits = k == dim || data[k] == sizes[k] || (along && stretches(dataDims[k], data[k])) ||
                          (gathers && sizes[k] <= data[k]);
    check(indexFits && dataFits, "[{}] dim {}: T{} has {}, the index T{} {}, the result {}; expected {}",
          expr->opName(), k, expr->input(0)->id(), data[k], expr->input(1)->id(), index[k], sizes[k],
          gathers ? "an index that is not larger" : "equal sizes");
  }
}

}  // namespace

Array Program::computeIndexing(const Expr* expr) {
  const bool embeds = expr->kind() == ExprKind::Embedding;
  const ExprAttributes& attributes = expr->attributes();
  const Array& x = operand(expr, embeds ? 1 : 0);
  const Array& index = operand(expr, embeds ? 0 : 1);
  const size_t dim = attributes.dim;
  int64_t first = embeds ? evaluate(attributes.starts.at(0)) : 0;
  bool zeroOutside = embeds && attributes.flags.at(0);
  Sizes sizes = sizesOf(expr->tensorOutput());
  const int64_t dims = embeds ? std::ssize(index.sizes) + 1 : std::ssize(x.sizes);
  check(std::ssize(sizes) == dims,
        "[{}] T{} has {} dims, expected {}; interpret the program before its sums are partial", expr->opName(),
        expr->output()->id(), sizes.size(), dims);
  checkIndexSizes(expr, x.sizes, index.sizes, sizes);
  // The steps that the dims of the result make in the index, and in x besides the steps along dim.
  std::vector<int64_t> indexSteps = contiguousStrides(index.sizes);
  std::vector<int64_t> steps = contiguousStrides(x.sizes);
  const int64_t stride = std::exchange(steps[dim], 0);
  if (embeds) {
    indexSteps.push_back(0);
    steps.assign(sizes.size(), 0);
    steps.back() = 1;
  } else if (expr->kind() == ExprKind::IndexSelect) {
    indexSteps.assign(sizes.size(), 0);
    indexSteps[dim] = 1;
  } else {
    for (int64_t k : indices(sizes)) {
      indexSteps[k] = index.sizes[k] == 1 ? 0 : indexSteps[k];
      steps[k] = x.sizes[k] == 1 ? 0 : steps[k];
    }
  }
  const std::vector<int64_t> where = stridedOffsets(sizes, indexSteps);
  std::vector<int64_t> offsets = stridedOffsets(sizes, steps);
  for (int64_t i : indices(offsets)) {
    int64_t chosen = index.whole[where[i]] - first;
    bool inside = chosen >= 0 && chosen < x.sizes[dim];
    check(inside || zeroOutside, "[{}] element {} of index T{} is {}, expected 0 to {}; T{} has {} there",
          expr->opName(), where[i], expr->input(embeds ? 0 : 1)->id(), chosen, x.sizes[dim] - 1,
          expr->input(embeds ? 1 : 0)->id(), x.sizes[dim]);
    offsets[i] = inside ? offsets[i] + chosen * stride : -1;
  }
  const Array zero = makeArray(DataType::Double, {});
  Array result = take(x, sizes, offsets, &zero);
  for (int64_t i : indices(where)) {
    if (index.errorAt(where[i]) > 0) {
      result.setUncertain(i);
    }
  }
  return result;
}

std::vector<int64_t> Program::placesOf(const Expr* expr) {
  const Array& index = operand(expr, 1);
  const int64_t extent = operand(expr, 0).sizes[expr->attributes().dim];
  const int64_t first = evaluate(expr->attributes().starts.at(0));
  const bool skips = expr->attributes().flags.at(0);
  std::vector<int64_t> places;
  for (int64_t i : indices(index.whole)) {
    const int64_t place = index.whole[i] - first;
    const bool inside = place >= 0 && place < extent;
    check(inside || skips, "[{}] element {} of index T{} is {}, expected 0 to {}; T{} has {} there", expr->opName(), i,
          expr->input(1)->id(), place, extent - 1, expr->input(0)->id(), extent);
    places.push_back(inside ? place : -1);
  }
  return places;
}

// An index that could be another one leaves nothing of its line certain.
Array Program::computeScatter(const Expr* expr) {
  const Array& x = operand(expr, 0);
  const Array& index = operand(expr, 1);
  const Array& src = operand(expr, 2);
  const size_t dim = expr->attributes().dim;
  Sizes expected = x.sizes;
  expected[dim] = index.sizes[dim];
  check(index.sizes == expected && src.sizes == expected,
        "[scatter] index T{} has sizes {}, T{} has {}; expected {} of both", expr->input(1)->id(),
        describe(index.sizes), expr->input(2)->id(), describe(src.sizes), describe(expected));
  const std::vector<int64_t> places = placesOf(expr);
  std::vector<int64_t> strides = contiguousStrides(x.sizes);
  const int64_t stride = std::exchange(strides[dim], 0);
  const std::vector<int64_t> lines = stridedOffsets(index.sizes, strides);
  Array result = x;
  result.uncertain = 0;
  std::set<int64_t> unknown;
  for (int64_t i : indices(lines)) {
    for (int64_t j = 0; index.errorAt(i) > 0 && j < x.sizes[dim]; j++) {
      unknown.insert(lines[i] + j * stride);
    }
    if (places[i] < 0) {
      continue;
    }
    const int64_t to = lines[i] + places[i] * stride;
    result.set(to, src, i);
    if (!result.error.empty() || src.errorAt(i) > 0) {
      result.setError(to, src.errorAt(i));
    }
  }
  for (int64_t k : unknown) {
    result.setUncertain(k);
  }
  return result;
}

}  // namespace meshfuse::reference
