#include "multidevice/sharding/random_op.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "ops/contraction.h"
#include "ops/indexing.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

using Shape = std::vector<int64_t>;

IntExpr elementsOf(const TensorView* x) {
  const std::vector<IntExpr> shape = x->shape();
  return std::accumulate(shape.begin(), shape.end(), IntExpr(1), std::multiplies<>());
}

using Extents = std::vector<IntExpr>;

TensorView* input(TensorView* beside, const Extents& shape, DataType dtype) {
  std::vector<Dim> dims;
  for (const IntExpr& extent : shape) {
    dims.push_back({extent, extent.isConst(1) ? IterType::Broadcast : IterType::Iteration});
  }
  TensorView* tv = beside->fusion().tensor(dtype, dims);
  beside->fusion().addInput(tv);
  return tv;
}

RandomOp regroup(std::mt19937& rng, const Shape& shape) {
  const size_t k = rng() % shape.size();
  if (shape.size() > 1 && rng() % 2 == 0) {
    const size_t at = std::min(k, shape.size() - 2);
    return {"reshape", [at](TensorView* x) {
              Extents to = x->shape();
              to[at] *= to[at + 1];
              to.erase(to.begin() + static_cast<ptrdiff_t>(at) + 1);
              return reshape(x, to);
            }};
  }
  std::vector<int64_t> factors;
  for (int64_t f = 2; f < shape[k]; f++) {
    if (shape[k] % f == 0) {
      factors.push_back(f);
    }
  }
  const int64_t f = factors.empty() ? 1 : factors[rng() % factors.size()];
  return {"reshape", [k, f](TensorView* x) {
            Extents to = x->shape();
            to[k] = floorDiv(to[k], f);
            to.insert(to.begin() + static_cast<ptrdiff_t>(k) + 1, f);
            return reshape(x, to);
          }};
}

RandomOp window(std::mt19937& rng, const Shape& shape) {
  const size_t k = rng() % shape.size();
  const bool strided = rng() % 3 == 0;
  int64_t step = 1;
  std::optional<int64_t> at;  // absent: half of the dim
  bool fromStart = false;
  if (strided) {
    step = shape[k] % 3 == 0 && rng() % 2 == 0 ? 3 : 2;
    at = rng() % 2 == 0 ? 0 : std::min(below(rng, 3), shape[k] - 1);
  } else if (shape[k] > 1) {
    at = rng() % 3 == 0 ? std::optional(1 + below(rng, shape[k] - 1)) : std::nullopt;
    fromStart = rng() % 2 != 0;
  } else {
    at = 0;
  }
  return {strided ? "slice with steps" : "slice", [=](TensorView* x) {
            std::vector<Slice> ranges(x->shape().size());
            Val* place = x->fusion().intScalar(at ? IntExpr(*at) : floorDiv(x->shape()[k], 2));
            (fromStart ? ranges[k].stop : ranges[k].start) = place;
            ranges[k].step = x->fusion().intScalar(step);
            return slice(x, ranges);
          }};
}

RandomOp weighed(std::mt19937& rng, const Shape& shape) {
  if (shape.size() == 2 && rng() % 2 == 0) {
    return {"linear's weight", [](TensorView* x) {
              return linear(input(x, {4, x->shape().back()}, DataType::Double), x);
            }};
  }
  return {"linear", [](TensorView* x) { return linear(x, input(x, {8, x->shape().back()}, DataType::Double)); }};
}

RandomOp picked(std::mt19937& rng, const Shape& shape) {
  const int64_t dim = below(rng, std::ssize(shape));
  const int64_t picks = 1 + below(rng, 4);
  const auto index = [=](TensorView* x) {
    Extents extents = x->shape();
    extents[dim] = picks;
    return extents;
  };
  switch (rng() % 6) {
    case 0:
    case 5:
      if (shape.size() == 2) {
        return {"embedding", [=](TensorView* x) { return embedding_fwd(input(x, {4}, DataType::Int), x); }};
      }
      [[fallthrough]];
    case 1:
      return {"take_along_axis",
              [=](TensorView* x) { return takeAlongAxis(x, input(x, index(x), DataType::Int), dim); }};
    case 2: {
      std::vector<size_t> halves;
      for (size_t k = 0; k < shape.size(); k++) {
        if (static_cast<int64_t>(k) != dim && shape[k] > 1 && rng() % 3 == 0) {
          halves.push_back(k);
        }
      }
      return {"gather", [=](TensorView* x) {
                Extents extents = index(x);
                for (const size_t k : halves) {
                  extents[k] = floorDiv(extents[k], 2);
                }
                return gather(x, dim, input(x, extents, DataType::Int));
              }};
    }
    case 3: {
      const int64_t at = below(rng, shape[dim]);
      if (rng() % 2 == 0) {
        return {"select by data", [=](TensorView* x) { return select(x, dim, input(x, {}, DataType::Int)); }};
      }
      return {"select", [=](TensorView* x) { return select(x, dim, at); }};
    }
    default:
      return {"index_select", [=](TensorView* x) { return index_select(x, dim, input(x, {picks}, DataType::Int)); }};
  }
}

// x is what says where: of a table with a place for each of its elements.
RandomOp picking(std::mt19937& rng, const Shape& shape) {
  const int64_t dim = below(rng, std::ssize(shape));
  switch (rng() % 3) {
    case 0:
      return {"embedding's index", [=](TensorView* x) {
                return embedding_fwd(castOp(DataType::Int, x), input(x, {elementsOf(x), 4}, DataType::Double));
              }};
    case 1:
      if (shape.size() == 1) {
        return {"index_select's index", [=](TensorView* x) {
                  return index_select(input(x, {2, elementsOf(x)}, DataType::Double), 1, castOp(DataType::Int, x));
                }};
      }
      [[fallthrough]];
    default: {
      return {"take_along_axis's index", [=](TensorView* x) {
                Extents table = x->shape();
                table[dim] = elementsOf(x);
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

int64_t below(std::mt19937& rng, int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint32_t>(n)); }

RandomOp pickOp(std::mt19937& rng, const std::vector<int64_t>& shape) {
  const int64_t dim = below(rng, std::ssize(shape));
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
                TensorView* other = input(x, x->shape(), DataType::Double);
                return cat(first ? std::vector{x, other} : std::vector{other, x}, dim);
              }};
    }
    case 8: {
      const bool narrow = rng() % 3 == 0;
      return {"pad", [=](TensorView* x) { return pad(x, Extents{narrow ? IntExpr(1) : x->shape().back(), 0}, -1.0); }};
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
