#include "autoplan/terms.h"

#include <fmt/ranges.h>

#include <numeric>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ops/contraction.h"
#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/scan_sort.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

using Index = std::vector<int64_t>;

int64_t numberOf(const Index& index, const Sizes& shape) {
  int64_t number = 0;
  for (int64_t k = 0; k < std::ssize(shape); k++) {
    number = number * shape[k] + index[k];
  }
  return number;
}

std::vector<Index> indicesOf(const Sizes& shape) {
  std::vector<Index> all;
  for (int64_t n = 0; n < productOf(shape); n++) {
    Index index(shape.size());
    int64_t rest = n;
    for (int64_t k = std::ssize(shape) - 1; k >= 0; k--) {
      index[k] = rest % shape[k];
      rest /= shape[k];
    }
    all.push_back(std::move(index));
  }
  return all;
}

class Maker {
 public:
  Maker(std::mt19937& rng, Fusion& fusion) : rng_(rng), fusion_(fusion) {}

  OpWithTerms make() {
    switch (rng_() % 12) {
      case 0:
        return unary();
      case 1:
        return binary();
      case 2:
        return summed();
      case 3:
        return product();
      case 4:
        return batchedProduct();
      case 5:
        return weighed();
      case 6:
        return permuted();
      case 7:
        return regrouped();
      case 8:
        return cutOut();
      case 9:
        return looked();
      case 10:
        return running();
      default:
        return joinedUp();
    }
  }

 private:
  int64_t extent() {
    constexpr int64_t kExtents[] = {1, 2, 3, 4, 6};
    return kExtents[rng_() % 5];
  }
  // Not 1: such dims broadcast.
  int64_t extentAbove1() {
    constexpr int64_t kExtents[] = {2, 3, 4, 6};
    return kExtents[rng_() % 4];
  }

  TensorView* input(const Sizes& shape, DataType type = DataType::Float) {
    TensorView* tv = makeContigConcreteTensor(fusion_, shape, type);
    fusion_.addInput(tv);
    return tv;
  }

  OpWithTerms done(OpWithTerms op, TensorView* out) {
    fusion_.addOutput(out);
    op.result = out->constantShape();
    return op;
  }

  OpWithTerms unary() {
    const Sizes shape{extent(), extent()};
    OpWithTerms op{"unary", {shape}};
    for (int64_t n = 0; n < productOf(shape); n++) {
      op.terms.push_back({n, {n}});
    }
    return done(op, exp(input(shape)));
  }

  OpWithTerms binary() {
    const Sizes shape{extentAbove1(), extentAbove1()};
    const bool rows = rng_() % 2 == 0;
    const Sizes other{shape[0], rows ? 1 : shape[1]};
    OpWithTerms op{"binary", {shape, other}};
    for (const Index& i : indicesOf(shape)) {
      op.terms.push_back({numberOf(i, shape), {numberOf(i, shape), numberOf({i[0], rows ? 0 : i[1]}, other)}});
    }
    TensorView* b = rows ? broadcast(input({shape[0]}), {false, true}) : input(other);
    return done(op, add(input(shape), b));
  }

  OpWithTerms summed() {
    const Sizes shape{extentAbove1(), extentAbove1()};
    const int64_t dim = rng_() % 2;
    OpWithTerms op{"sum", {shape}};
    op.combines = true;
    for (const Index& i : indicesOf(shape)) {
      op.terms.push_back({i[1 - dim], {numberOf(i, shape)}});
    }
    return done(op, sum(input(shape), {dim}));
  }

  OpWithTerms product() {
    const int64_t m = extentAbove1();
    const int64_t k = extentAbove1();
    const int64_t n = extentAbove1();
    OpWithTerms op{"matmul", {{m, k}, {k, n}}};
    op.combines = true;
    for (const Index& i : indicesOf({m, k, n})) {
      op.terms.push_back({i[0] * n + i[2], {i[0] * k + i[1], i[1] * n + i[2]}});
    }
    return done(op, matmul(input({m, k}), input({k, n})));
  }

  OpWithTerms batchedProduct() {
    const int64_t b = 2;
    const int64_t m = 2;
    const int64_t k = rng_() % 2 == 0 ? 2 : 4;
    const int64_t n = 2;
    OpWithTerms op{"batched matmul", {{b, m, k}, {b, k, n}}};
    op.combines = true;
    for (const Index& i : indicesOf({b, m, k, n})) {
      op.terms.push_back({(i[0] * m + i[1]) * n + i[3], {(i[0] * m + i[1]) * k + i[2], (i[0] * k + i[2]) * n + i[3]}});
    }
    return done(op, matmul(input({b, m, k}), input({b, k, n})));
  }

  OpWithTerms weighed() {
    const int64_t m = extentAbove1();
    const int64_t k = extentAbove1();
    const int64_t n = extentAbove1();
    OpWithTerms op{"linear", {{m, k}, {n, k}}};
    op.combines = true;
    for (const Index& i : indicesOf({m, k, n})) {
      op.terms.push_back({i[0] * n + i[2], {i[0] * k + i[1], i[2] * k + i[1]}});
    }
    return done(op, linear(input({m, k}), input({n, k})));
  }

  OpWithTerms permuted() {
    const Sizes shape{extentAbove1(), extentAbove1(), 2};
    std::vector<int64_t> order{0, 1, 2};
    std::ranges::shuffle(order, rng_);
    const Sizes to{shape[order[0]], shape[order[1]], shape[order[2]]};
    OpWithTerms op{"permute", {shape}};
    for (const Index& i : indicesOf(shape)) {
      op.terms.push_back({numberOf({i[order[0]], i[order[1]], i[order[2]]}, to), {numberOf(i, shape)}});
    }
    return done(op, permute(input(shape), order));
  }

  OpWithTerms regrouped() {
    const Sizes shape{extentAbove1(), extentAbove1() * 2};
    const Sizes to = rng_() % 2 == 0 ? Sizes{shape[0] * shape[1]} : Sizes{shape[0], 2, shape[1] / 2};
    OpWithTerms op{"reshape", {shape}};
    for (int64_t n = 0; n < productOf(shape); n++) {
      op.terms.push_back({n, {n}});
    }
    return done(op, reshape(input(shape), to));
  }

  // From a position that no block begins at.
  OpWithTerms cutOut() {
    const Sizes shape{7, extentAbove1()};
    const Sizes to{4, shape[1]};
    OpWithTerms op{"slice", {shape}};
    for (const Index& i : indicesOf(to)) {
      op.terms.push_back({numberOf(i, to), {numberOf({i[0] + 1, i[1]}, shape)}});
    }
    return done(op, slice(input(shape), {1, 0}, {5, shape[1]}));
  }

  // Each index may name each row.
  OpWithTerms looked() {
    const int64_t count = extentAbove1();
    const Sizes table{extentAbove1(), extentAbove1()};
    OpWithTerms op{"embedding", {{count}, table}};
    op.combines = true;
    for (const Index& i : indicesOf({count, table[0], table[1]})) {
      op.terms.push_back({i[0] * table[1] + i[2], {i[0], i[1] * table[1] + i[2]}});
    }
    return done(op, embedding_fwd(input({count}, DataType::Int), input(table)));
  }

  OpWithTerms running() {
    const Sizes shape{extentAbove1(), extentAbove1()};
    const int64_t dim = rng_() % 2;
    OpWithTerms op{"scan", {shape}};
    for (const Index& to : indicesOf(shape)) {
      for (const Index& from : indicesOf(shape)) {
        if (from[1 - dim] == to[1 - dim] && from[dim] <= to[dim]) {
          op.terms.push_back({numberOf(to, shape), {numberOf(from, shape)}});
        }
      }
    }
    return done(op, cumsum(input(shape), dim));
  }

  OpWithTerms joinedUp() {
    const Sizes shape{3, extentAbove1()};
    const Sizes other{2, shape[1]};
    OpWithTerms op{"cat", {shape, other}};
    for (const Index& i : indicesOf(shape)) {
      op.terms.push_back({numberOf(i, shape), {numberOf(i, shape), -1}});
    }
    for (const Index& i : indicesOf(other)) {
      op.terms.push_back({numberOf({i[0] + 3, i[1]}, {5, shape[1]}), {-1, numberOf(i, other)}});
    }
    return done(op, cat({input(shape), input(other)}, 0));
  }

  std::mt19937& rng_;
  Fusion& fusion_;
};

}  // namespace

OpWithTerms randomOpWithTerms(std::mt19937& rng, Fusion& fusion) { return Maker(rng, fusion).make(); }

std::string strategyText(const std::vector<Placement>& operands, const Placement& result,
                         const std::vector<int64_t>& summed) {
  std::string text;
  for (const Placement& p : operands) {
    text += fmt::format("{} ", mapped<int>(p, std::identity()));
  }
  return text + fmt::format("-> {} summed over {}", mapped<int>(result, std::identity()), summed);
}

}  // namespace meshfuse
