// Shapes, contractions, indexing, factories.
#include <algorithm>
#include <numeric>

#include "fuzz/graph.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse::fuzz {

void Graph::reshape() {
  Item x = pick();
  Shape shape = shapeOf(x.tv);
  if (shape.empty()) {
    return;
  }
  int64_t kind = random_.below(3);
  if (kind == 0 && shape.size() > 1) {
    int64_t from = random_.below(std::ssize(shape) - 1);
    add(flatten(x.tv, from, random_.between(from + 1, std::ssize(shape) - 1)), x.magnitude);
    return;
  }
  // Factors of all dims in order, gathered anew.
  std::vector<int64_t> factors;
  for (int64_t s : shape) {
    for (int64_t p = 2; s > 1; p++) {
      for (; s % p == 0; s /= p) {
        factors.push_back(p);
      }
    }
  }
  if (factors.empty()) {
    return;
  }
  Shape to = {1};
  for (int64_t f : factors) {
    if (random_.chance(to.size() < 4 ? 35 : 0)) {
      to.push_back(1);
    }
    to.back() *= f;
  }
  if (random_.chance(10)) {
    to.push_back(1);
  }
  add(random_.chance(70) ? meshfuse::reshape(x.tv, to) : meshfuse::reshape(x.tv, shape, to), x.magnitude);
}

void Graph::order() {
  Item x = pick();
  auto rank = std::ssize(shapeOf(x.tv));
  if (rank < 2) {
    return;
  }
  if (random_.chance(40)) {
    int64_t a = random_.below(rank);
    add(transpose(x.tv, a, (a + 1 + random_.below(rank - 1)) % rank), x.magnitude);
    return;
  }
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  random_.shuffle(order);
  add(permute(x.tv, order), x.magnitude);
}

void Graph::window() {
  Item x = pick();
  Shape shape = shapeOf(x.tv);
  if (shape.empty()) {
    return;
  }
  auto at = static_cast<size_t>(random_.below(std::ssize(shape)));
  int64_t kind = random_.below(4);
  if (kind < 2) {
    std::vector<int64_t> starts(shape.size(), 0);
    std::vector<int64_t> stops = shape;
    std::vector<int64_t> steps(shape.size(), 1);
    for (size_t k = 0; k < shape.size(); k++) {
      if (shape[k] > 1 && (k == at || random_.chance(25))) {
        starts[k] = random_.below(shape[k]);
        stops[k] = random_.between(starts[k] + 1, shape[k]);
        steps[k] = random_.chance(70) ? 1 : random_.between(1, 3);
        if (random_.chance(25)) {  // a half, as shards like it
          starts[k] = random_.chance(50) ? 0 : shape[k] / 2;
          stops[k] = starts[k] + shape[k] / 2;
        }
        if (stops[k] - starts[k] <= steps[k]) {
          steps[k] = 1;  // one element is a dim that stretches only where no step made it
        }
      }
    }
    add(slice(x.tv, starts, stops, steps), x.magnitude);
    return;
  }
  if (kind == 2) {
    std::vector<int64_t> widths;
    for (size_t k = shape.size(); k-- > at;) {
      int64_t left = random_.between(0, 4);
      int64_t right = random_.between(0, 4);
      if (shape[k] > 4 && random_.chance(25)) {
        left = -random_.below(3);
      }
      widths.push_back(left);
      widths.push_back(right);
    }
    if (x.tv->dtype() == DataType::Bool) {
      add(pad(x.tv, widths, random_.chance(50)), 1);
    } else {
      add(pad(x.tv, widths, static_cast<int64_t>(random_.between(-2, 2))), x.magnitude + 2);
    }
    return;
  }
  if (shape[at] > 1) {
    for (TensorView* part : chunk(x.tv, random_.between(2, 3), static_cast<int64_t>(at))) {
      add(part, x.magnitude);
    }
  }
}

void Graph::stretch() {
  Item x = pick();
  Shape shape = shapeOf(x.tv);
  switch (random_.below(4)) {
    case 0:
      add(squeeze(x.tv), x.magnitude);
      return;
    case 1: {
      if (shape.size() < 5) {
        add(unsqueeze(x.tv, random_.between(0, std::ssize(shape))), x.magnitude);
      }
      return;
    }
    case 2: {
      int64_t n = randomExtent();
      if (shape.size() > 3 || elementsOf(shape) * n > 2048) {
        return;
      }
      int64_t at = random_.between(0, std::ssize(shape));
      std::vector<bool> flags(shape.size() + 1, false);
      flags[at] = true;
      Shape to = shape;
      to.insert(to.begin() + at, n);
      add(expand(broadcast(x.tv, flags), to), x.magnitude);
      return;
    }
    default: {
      if (shape.empty() || elementsOf(shape) > 1024) {
        return;
      }
      std::vector<int64_t> times(shape.size(), 1);
      times[random_.below(std::ssize(shape))] = random_.between(2, 3);
      add(repeat(x.tv, times), x.magnitude);
      return;
    }
  }
}

void Graph::join() {
  Item x = pick();
  Shape shape = shapeOf(x.tv);
  if (shape.empty() || elementsOf(shape) > 1024) {
    return;
  }
  auto at = static_cast<size_t>(random_.below(std::ssize(shape)));
  std::vector<Item> fitting = {x};
  for (const Item& i : items_) {
    Shape other = shapeOf(i.tv);
    if (other.size() != shape.size() || i.tv->dtype() != x.tv->dtype()) {
      continue;
    }
    other[at] = shape[at];
    if (other == shape && shapeOf(i.tv)[at] <= 64) {
      fitting.push_back(i);
    }
  }
  std::vector<TensorView*> tensors;
  double magnitude = 0;
  int64_t count = random_.between(2, 3);
  for (int64_t k = 0; k < count; k++) {
    const Item& i = k == 0 ? x : random_.of(fitting);
    tensors.push_back(i.tv);
    magnitude = std::max(magnitude, i.magnitude);
  }
  random_.shuffle(tensors);
  add(cat(tensors, static_cast<int64_t>(at)), magnitude);
}

void Graph::contraction() {
  Item x = pickFloating(30);
  Shape shape = shapeOf(x.tv);
  if (shape.empty()) {
    return;
  }
  int64_t k = shape.back();
  // Half precision operands keep their type: the weight has it too.
  DataType type = x.tv->dtype();
  Item other;
  bool asLinear = random_.chance(50);
  for (const Item& i : items_) {
    Shape s = shapeOf(i.tv);
    if (s.size() == 2 && i.tv->dtype() == type && s[asLinear ? 1 : 0] == k && i.magnitude <= 30 && random_.chance(50)) {
      other = i;
    }
  }
  int64_t n = random_.chance(20) ? random_.between(1, 7) : random_.of<int64_t>({4, 8, 12, 16});
  if (other.tv == nullptr && !asLinear && random_.chance(20) && shape.size() > 1) {
    other = x;  // times its own transpose
    other.tv = transpose(x.tv, std::ssize(shape) - 2, std::ssize(shape) - 1);
  } else if (other.tv == nullptr) {
    if (inputs_ >= 6) {
      return;
    }
    other = input(asLinear ? Shape{n, k} : Shape{k, n}, type, -1, 1);
  }
  double magnitude = x.magnitude * other.magnitude * static_cast<double>(k);
  if (!asLinear) {
    add(matmul(x.tv, other.tv), magnitude);
    return;
  }
  TensorView* bias = nullptr;
  if (inputs_ < 6 && random_.chance(40)) {
    bias = input({shapeOf(other.tv)[0]}, type, -1, 1).tv;
  }
  add(linear(x.tv, other.tv, bias), magnitude + 1);
}

// Positions below `extent`: given, or made of integers at hand.
Item Graph::indexInto(int64_t extent, const Shape& shape) {
  std::vector<Item> fitting;
  for (const Item& i : items_) {
    if (isIntegral(i.tv->dtype()) && shapeOf(i.tv) == shape && extent <= highestInteger(i.tv->dtype())) {
      fitting.push_back(i);
    }
  }
  if ((!fitting.empty() && random_.chance(50)) || inputs_ >= 6) {
    if (fitting.empty() && shape.size() != 1) {
      return {};
    }
    TensorView* base = fitting.empty() ? iota(fusion_, shape[0], random_.between(0, 5), random_.between(-3, 3))
                                       : random_.of(fitting).tv;
    return {remainder(base, extent), static_cast<double>(extent)};
  }
  return input(shape, integerType(static_cast<double>(extent)), 0, static_cast<double>(extent));
}

void Graph::indexing() {
  Item x = pick();
  Shape shape = shapeOf(x.tv);
  if (shape.empty()) {
    return;
  }
  auto at = static_cast<size_t>(random_.below(std::ssize(shape)));
  auto dim = static_cast<int64_t>(at);
  int64_t n = random_.of<int64_t>({1, 4, 8, 6});
  Shape like = shape;
  like[at] = n;
  switch (random_.below(6)) {
    case 0: {
      Item index = indexInto(shape[at], {n});
      if (index.tv != nullptr) {
        add(index_select(x.tv, dim, index.tv), x.magnitude);
      }
      return;
    }
    case 1: {
      if (random_.chance(30) && shape.size() > 1) {
        like[at == 0 ? 1 : 0] = 1;  // an index that stretches
      }
      Item index = indexInto(shape[at], like);
      if (index.tv != nullptr) {
        add(takeAlongAxis(x.tv, index.tv, dim), x.magnitude);
      }
      return;
    }
    case 2: {
      for (size_t k = 0; k < like.size(); k++) {
        like[k] = k == at || random_.chance(70) ? like[k] : (like[k] + 1) / 2;
      }
      Item index = indexInto(shape[at], like);
      if (index.tv != nullptr) {
        add(gather(x.tv, dim, index.tv), x.magnitude);
      }
      return;
    }
    case 3: {  // elements of x itself, elsewhere
      Item from = indexInto(shape[at], like);
      Item to = indexInto(shape[at], like);
      if (from.tv != nullptr && to.tv != nullptr) {
        add(scatter(x.tv, dim, to.tv, takeAlongAxis(x.tv, from.tv, dim)), x.magnitude);
      }
      return;
    }
    case 4: {
      if (x.tv->dtype() == DataType::Bool || x.magnitude > 1000) {
        return;
      }
      const Shape counted = random_.chance(70) ? Shape{n} : Shape{n, 2};
      Item to = indexInto(shape[0], counted);
      if (to.tv != nullptr) {
        Shape values = counted;
        values.insert(values.end(), shape.begin() + 1, shape.end());
        TensorView* ones = full(fusion_, values, 1.0, DataType::Float);
        TensorView* rows = index_select(x.tv, 0, meshfuse::reshape(to.tv, Shape{elementsOf(counted)}));
        rows = random_.chance(70) ? meshfuse::reshape(rows, values) : castOp(x.tv->dtype(), ones);
        add(indexPutAccumulate(x.tv, to.tv, rows), x.magnitude * static_cast<double>(elementsOf(counted) + 1) + 1);
      }
      return;
    }
    default: {
      TensorView* weight = shape.size() == 2 ? x.tv
                           : inputs_ < 6     ? input({random_.of<int64_t>({8, 12, 5}), 8}, DataType::Float, -2, 2).tv
                                             : nullptr;
      if (weight == nullptr) {
        return;
      }
      Item index = indexInto(shapeOf(weight)[0], random_.chance(50) ? Shape{n} : Shape{2, n});
      if (index.tv != nullptr) {
        add(embedding_fwd(index.tv, weight), x.magnitude + 2);
      }
      return;
    }
  }
}

void Graph::factory() {
  Item x = pick();
  Shape shape = shapeOf(x.tv);
  switch (random_.below(6)) {
    case 0:
      add(full(fusion_, shape, 0.75, DataType::Float), 1);
      return;
    case 1:
      add(castOp(DataType::Float,
                 iota(fusion_, shape.empty() ? 4 : shape.back(), random_.between(-3, 3), random_.between(-2, 3))),
          100);
      return;
    case 2:
      add(eye(random_.of<int64_t>({4, 8}), random_.of<int64_t>({4, 8, 5}), DataType::Float), 1);
      return;
    case 3:
      add(full_like(x.tv, 1.25), 1.25);
      return;
    case 4:
      add(random_.chance(50) ? zeros_like(x.tv) : ones_like(x.tv), 1);
      return;
    default:
      add(arange(random_.between(0, 3), random_.between(6, 20), random_.between(1, 3)), 20);
      return;
  }
}

void Graph::randomness() {
  Item x = pickFloating(100);
  Shape shape = shapeOf(x.tv);
  int64_t seed = random_.below(1000);
  int64_t offset = random_.below(50);
  switch (random_.below(4)) {
    case 0:
      add(rand(shape, DataType::Float, seed, offset), 1);
      return;
    case 1:
      add(randn_like(x.tv, seed, offset), 6);
      return;
    case 2:
      add(uniform(shape, -1.0, 2.0, DataType::Float, seed, offset), 2);
      return;
    default:
      add(dropout(x.tv, 0.25).output, x.magnitude * 2);
      return;
  }
}

}  // namespace meshfuse::fuzz
