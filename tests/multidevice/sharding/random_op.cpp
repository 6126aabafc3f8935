#include "multidevice/sharding/random_op.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ops/contraction.h"
#include "ops/copy_shape.h"
#include "ops/indexing.h"
#include "ops/reduction.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

using Shape = std::vector<int64_t>;

int64_t elementsOf(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t below(std::mt19937& rng, int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint32_t>(n)); }

TensorView* input(TensorView* beside, const std::vector<int64_t>& shape, DataType dtype) {
  TensorView* tv = makeContigConcreteTensor(beside->fusion(), shape, dtype);
  beside->fusion().addInput(tv);
  return tv;
}

RandomOp regroup(std::mt19937& rng, const Shape& shape) {
  Shape to = shape;
  const size_t k = rng() % shape.size();
  if (shape.size() > 1 && rng() % 2 == 0) {
    const size_t at = std::min(k, shape.size() - 2);
    to[at] *= to[at + 1];
    to.erase(to.begin() + static_cast<ptrdiff_t>(at) + 1);
  } else {
    std::vector<int64_t> factors;
    for (int64_t f = 2; f < to[k]; f++) {
      if (to[k] % f == 0) {
        factors.push_back(f);
      }
    }
    const int64_t f = factors.empty() ? 1 : factors[rng() % factors.size()];
    to[k] /= f;
    to.insert(to.begin() + static_cast<ptrdiff_t>(k) + 1, f);
  }
  return {"reshape", [to](TensorView* x) { return reshape(x, to); }};
}

RandomOp window(std::mt19937& rng, const Shape& shape) {
  Shape starts(shape.size(), 0);
  Shape stops = shape;
  Shape steps(shape.size(), 1);
  const size_t k = rng() % shape.size();
  const bool strided = rng() % 3 == 0;
  if (strided) {
    steps[k] = shape[k] % 3 == 0 && rng() % 2 == 0 ? 3 : 2;
    starts[k] = rng() % 2 == 0 ? 0 : std::min(below(rng, 3), shape[k] - 1);
  } else if (shape[k] > 1) {
    (rng() % 2 == 0 ? starts : stops)[k] = rng() % 3 == 0 ? 1 + below(rng, shape[k] - 1) : shape[k] / 2;
  }
  return {strided ? "slice with steps" : "slice", [=](TensorView* x) { return slice(x, starts, stops, steps); }};
}

RandomOp weighed(std::mt19937& rng, const Shape& shape) {
  const int64_t inner = shape.back();
  if (shape.size() == 2 && rng() % 2 == 0) {
    return {"linear's weight", [=](TensorView* x) { return linear(input(x, {4, inner}, DataType::Double), x); }};
  }
  return {"linear", [=](TensorView* x) { return linear(x, input(x, {8, inner}, DataType::Double)); }};
}

RandomOp picked(std::mt19937& rng, const Shape& shape) {
  const int64_t dim = below(rng, static_cast<int64_t>(shape.size()));
  Shape index = shape;
  index[dim] = 1 + below(rng, 4);
  switch (rng() % 6) {
    case 0:
    case 5:
      if (shape.size() == 2) {
        return {"embedding", [=](TensorView* x) { return embedding_fwd(input(x, {4}, DataType::Int), x); }};
      }
      [[fallthrough]];
    case 1:
      return {"take_along_axis", [=](TensorView* x) { return takeAlongAxis(x, input(x, index, DataType::Int), dim); }};
    case 2:
      for (size_t k = 0; k < shape.size(); k++) {
        index[k] = static_cast<int64_t>(k) != dim && shape[k] > 1 && rng() % 3 == 0 ? shape[k] / 2 : index[k];
      }
      return {"gather", [=](TensorView* x) { return gather(x, dim, input(x, index, DataType::Int)); }};
    case 3: {
      const int64_t at = below(rng, shape[dim]);
      if (rng() % 2 == 0) {
        return {"select by data", [=](TensorView* x) { return select(x, dim, input(x, {}, DataType::Int)); }};
      }
      return {"select", [=](TensorView* x) { return select(x, dim, at); }};
    }
    default:
      return {"index_select",
              [=](TensorView* x) { return index_select(x, dim, input(x, {index[dim]}, DataType::Int)); }};
  }
}

// x is what says where: of a table with a place for each of its elements.
RandomOp picking(std::mt19937& rng, const Shape& shape) {
  const int64_t dim = below(rng, static_cast<int64_t>(shape.size()));
  const int64_t places = elementsOf(shape);
  switch (rng() % 3) {
    case 0:
      return {"embedding's index", [=](TensorView* x) {
                return embedding_fwd(castOp(DataType::Int, x), input(x, {places, 4}, DataType::Double));
              }};
    case 1:
      if (shape.size() == 1) {
        return {"index_select's index", [=](TensorView* x) {
                  return index_select(input(x, {2, places}, DataType::Double), 1, castOp(DataType::Int, x));
                }};
      }
      [[fallthrough]];
    default: {
      Shape table = shape;
      table[dim] = places;
      return {"take_along_axis's index", [=](TensorView* x) {
                return takeAlongAxis(input(x, table, DataType::Double), castOp(DataType::Int, x), dim);
              }};
    }
  }
}

RandomOp ones(std::mt19937& rng, const Shape& shape) {
  std::vector<int64_t> at;
  for (size_t k = 0; k < shape.size(); k++) {
    if (shape[k] == 1) {
      at.push_back(static_cast<int64_t>(k));
    }
  }
  if (at.empty() || rng() % 4 == 0) {
    std::vector<bool> isNew(shape.size() + 1, false);
    isNew[rng() % isNew.size()] = true;
    return {"broadcast", [=](TensorView* x) { return broadcast(x, isNew); }};
  }
  const int64_t k = at[rng() % at.size()];
  if (shape.size() > 1 && rng() % 2 == 0) {
    return {"squeeze", [=](TensorView* x) { return squeeze(x, k); }};
  }
  Shape to(shape.size(), -1);
  to[k] = rng() % 2 == 0 ? 4 : 3;
  return {"expand", [=](TensorView* x) { return expand(x, to); }};
}

}  // namespace

RandomOp pickOp(std::mt19937& rng, const std::vector<int64_t>& shape) {
  const int64_t dim = below(rng, static_cast<int64_t>(shape.size()));
  switch (rng() % 17) {
    case 0:
      return {"set", [](TensorView* x) { return set(x); }};
    case 1:
    case 2: {
      Shape order(shape.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), rng);
      return {"permute", [=](TensorView* x) { return permute(x, order); }};
    }
    case 3:
    case 4:
    case 5:
      return regroup(rng, shape);
    case 6:
      return window(rng, shape);
    case 7: {
      const bool first = rng() % 2 == 0;
      return {"cat", [=](TensorView* x) {
                TensorView* other = input(x, shape, DataType::Double);
                return cat(first ? std::vector{x, other} : std::vector{other, x}, dim);
              }};
    }
    case 8: {
      const int64_t wide = rng() % 3 == 0 ? 1 : shape.back();
      return {"pad", [=](TensorView* x) { return pad(x, std::vector<int64_t>{wide, 0}, -1.0); }};
    }
    case 9:
      return {"sum", [=](TensorView* x) { return sum(x, {dim}); }};
    case 10:
      return weighed(rng, shape);
    case 11:
    case 12:
      return picked(rng, shape);
    case 13:
      return picking(rng, shape);
    default:
      return ones(rng, shape);
  }
}

}  // namespace meshfuse
