#include "fuzz/graph.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "meshfuse/meshfuse.h"

namespace meshfuse::fuzz {

namespace {

constexpr int64_t kMostElements = 4096;

}  // namespace

Shape shapeOf(const TensorView* tv) {
  Shape shape;
  for (const IntExpr& e : tv->shape()) {
    shape.push_back(e.constValue());
  }
  return shape;
}

int64_t elementsOf(const Shape& shape) {
  int64_t n = 1;
  for (int64_t s : shape) {
    n *= s;
  }
  return n;
}

int64_t Graph::valueOf(const IntExpr& extent) const {
  return extent.evaluate([&](std::string_view symbol) -> std::optional<int64_t> {
    auto found = symbols_.find(symbol);
    return found == symbols_.end() ? std::nullopt : std::optional<int64_t>(found->second);
  });
}

Shape Graph::shapeOf(const TensorView* tv) const {
  Shape shape;
  for (const IntExpr& e : tv->shape()) {
    shape.push_back(valueOf(e));
  }
  return shape;
}

// -- tensors at hand ----------------------------------------------------------------------------------------------------

void Graph::add(TensorView* tv, double magnitude) {
  if (elementsOf(shapeOf(tv)) <= 4 * kMostElements) {
    items_.push_back({tv, magnitude});
  }
}

Item Graph::pick() {
  auto n = std::ssize(items_);
  if (random_.chance(60)) {
    return items_[n - 1 - random_.below(std::min<int64_t>(n, 3))];
  }
  return items_[random_.below(n)];
}

Item Graph::limited(Item x, double limit) {
  if (x.magnitude <= limit) {
    return x;
  }
  if (x.magnitude < 1e4 && random_.chance(60)) {
    return {mul(x.tv, limit / x.magnitude), limit};
  }
  return {clamp(x.tv, -limit, limit), limit};
}

Item Graph::pickFloating(double limit) {
  Item x = pick();
  if (!isFloatingPoint(x.tv->dtype())) {
    x.tv = castOp(random_.chance(85) ? DataType::Float : DataType::Double, x.tv);
  }
  return limited(x, limit);
}

Item Graph::pickInteger(double limit) {
  std::vector<Item> fitting;
  for (const Item& i : items_) {
    if (isIntegral(i.tv->dtype()) && i.magnitude <= limit) {
      fitting.push_back(i);
    }
  }
  if (!fitting.empty() && random_.chance(80)) {
    return random_.of(fitting);
  }
  if (inputs_ < 5 && random_.chance(40)) {
    return input(shapeOf(pick().tv), integerType(10), -6, 10);
  }
  Item x = pick();
  if (x.tv->dtype() != DataType::Bool) {
    x = pickFloating(20);
    x.tv = mul(x.tv, 3.7);  // away from the jumps of the cast
    x.magnitude *= 3.7;
  }
  return {toInteger(integerType(x.magnitude), x.tv), x.tv->dtype() == DataType::Bool ? 1 : x.magnitude};
}

DataType Graph::integerType(double magnitude) {
  static const std::vector<DataType> types = {DataType::Int,   DataType::Int,   DataType::Int,  DataType::Int,
                                              DataType::Int32, DataType::Int32, DataType::Char, DataType::Short};
  const DataType type = random_.of(types);
  return magnitude < static_cast<double>(highestInteger(type)) ? type : DataType::Int;
}

Item Graph::pickBool() {
  std::vector<Item> fitting;
  for (const Item& i : items_) {
    if (i.tv->dtype() == DataType::Bool) {
      fitting.push_back(i);
    }
  }
  if (!fitting.empty() && random_.chance(60)) {
    return random_.of(fitting);
  }
  Item x = pick();
  return {x.tv->dtype() == DataType::Bool ? x.tv : gt(x.tv, 0.25), 1};
}

Item Graph::positive(Item x) { return {meshfuse::add(abs(x.tv), 0.5), x.magnitude + 0.5}; }

// The other operand of a binary op: a tensor of the same shape, one that stretches to it, or x itself, changed.
Item Graph::partner(const Item& x, double limit, bool stretchesX) {
  Shape shape = shapeOf(x.tv);
  std::vector<Item> fitting;
  for (const Item& i : items_) {
    if (i.tv == x.tv || i.tv->dtype() == DataType::Bool ||
        (isFloatingPoint(i.tv->dtype()) != isFloatingPoint(x.tv->dtype()))) {
      continue;
    }
    Shape other = shapeOf(i.tv);
    bool fits = other.size() <= shape.size();
    for (size_t k = 0; fits && k < other.size(); k++) {
      int64_t mine = shape[shape.size() - other.size() + k];
      bool otherStretches = i.tv->noReductions()[k]->isBroadcast();
      bool mineStretches = x.tv->noReductions()[shape.size() - other.size() + k]->isBroadcast();
      fits = (other[k] == mine && otherStretches == mineStretches) || otherStretches ||
             (stretchesX && mineStretches && elementsOf(shape) * other[k] <= kMostElements);
    }
    if (fits && i.magnitude <= limit * 4) {
      fitting.push_back(i);
    }
  }
  if (!fitting.empty() && random_.chance(80)) {
    Item found = random_.of(fitting);
    return isFloatingPoint(found.tv->dtype()) ? limited(found, limit) : found;
  }
  if (inputs_ < 4 && random_.chance(40)) {
    Shape part(shape.begin() + random_.below(std::ssize(shape) + 1), shape.end());
    return isFloatingPoint(x.tv->dtype()) ? input(part, DataType::Float, -2, 2) : input(part, x.tv->dtype(), -6, 10);
  }
  if (isFloatingPoint(x.tv->dtype())) {
    return limited({sin(x.tv), 1}, limit);
  }
  return {meshfuse::add(x.tv, 3), x.magnitude + 3};
}

// -- inputs -------------------------------------------------------------------------------------------------------------

int64_t Graph::randomExtent() {
  static const std::vector<int64_t> even = {4, 8, 8, 12, 16, 16, 2, 4};
  static const std::vector<int64_t> threes = {3, 6, 9, 12, 12, 15, 6, 3};
  static const std::vector<int64_t> odd = {1, 2, 3, 5, 6, 7, 9, 17, 24, 32, 33};
  return random_.chance(75) ? random_.of(factor_ == 3 ? threes : even) : random_.of(odd);
}

Shape Graph::randomShape() {
  static const std::vector<int64_t> ranks = {1, 2, 2, 2, 3, 3, 3, 4};
  while (true) {
    Shape shape(random_.of(ranks));
    for (int64_t& s : shape) {
      s = randomExtent();
    }
    if (elementsOf(shape) <= kMostElements / 2) {
      return shape;
    }
  }
}

Item Graph::input(Shape shape, DataType dtype, double low, double high) {
  Tensor t = randomTensor(shape, dtype, inputSeed_ + static_cast<uint64_t>(inputs_), low, high);
  if (isFloatingPoint(dtype) && t.numel() > 1 && random_.chance(2)) {
    double infinity = std::numeric_limits<double>::infinity();
    t.view({t.numel()})
        .set(std::vector<int64_t>{random_.below(t.numel())}, random_.of<double>({infinity, -infinity, std::nan("")}));
    special_ = true;
  }
  TensorView* tv = nullptr;
  if (symbolic_ && std::find(shape.begin(), shape.end(), 1) == shape.end()) {
    tv = makeContigTensor(fusion_, std::ssize(shape), dtype);
    for (size_t k = 0; k < shape.size(); k++) {
      symbols_[std::string(tv->shape()[k].symbolName())] = shape[k];
    }
  } else {
    tv = makeContigConcreteTensor(fusion_, shape, dtype);
  }
  if (!symbolic_ && random_.chance(10) && shape.size() > 1) {  // any strides, and strides that say so
    tv = makeConcreteTensor(fusion_, shape, dtype);
    int last = static_cast<int>(shape.size()) - 1;
    t = t.transpose(0, last).clone().transpose(0, last);
  }
  fusion_.addInput(tv);
  arguments_.emplace_back(t);
  inputs_++;
  items_.push_back({tv, std::max(std::abs(low), std::abs(high))});
  return items_.back();
}

Val* Graph::scalar() {
  Val* s = IrBuilder::create<Val>(fusion_, DataType::Double);
  fusion_.addInput(s);
  arguments_.emplace_back(static_cast<double>(random_.between(-12, 12)) / 8);
  return s;
}

// What a cast of no number to an integer gives is nowhere said.
TensorView* Graph::toInteger(DataType dtype, TensorView* x) {
  bool guard = special_ && isFloatingPoint(x->dtype());
  return castOp(dtype, guard ? where(isfinite(x), x, 0.0) : x);
}

std::vector<int64_t> Graph::someAxes(int rank) {
  std::vector<int64_t> axes;
  while (axes.empty()) {
    for (int k = 0; k < rank; k++) {
      if (random_.chance(rank == 1 ? 100 : 45)) {
        axes.push_back(random_.chance(20) ? k - rank : k);
      }
    }
  }
  return axes;
}

// -- the whole ----------------------------------------------------------------------------------------------------------

void Graph::step() {
  using Step = void (Graph::*)();
  static const std::vector<std::pair<int, Step>> steps = {
      {14, &Graph::unary},     {16, &Graph::binary},     {4, &Graph::integers},   {5, &Graph::ternary},
      {6, &Graph::activation}, {6, &Graph::cast},        {13, &Graph::reduction}, {8, &Graph::normalization},
      {5, &Graph::reshape},    {4, &Graph::order},       {6, &Graph::window},     {5, &Graph::stretch},
      {3, &Graph::join},       {7, &Graph::contraction}, {5, &Graph::indexing},   {3, &Graph::factory},
      {2, &Graph::randomness}, {5, &Graph::scanOrSort},  {3, &Graph::statistics},
  };
  int64_t total = 0;
  for (const auto& s : steps) {
    total += s.first;
  }
  int64_t at = random_.below(total);
  for (const auto& [weight, add] : steps) {
    at -= weight;
    if (at < 0) {
      (this->*add)();
      return;
    }
  }
}

void Graph::grow(int ops) {
  inputSeed_ = random_.next();
  static const std::vector<DataType> types = {DataType::Float,  DataType::Float, DataType::Float,
                                              DataType::Float,  DataType::Half,  DataType::BFloat16,
                                              DataType::Double, DataType::Int,   DataType::Char};
  int64_t first = random_.between(1, 3);
  Shape shape = randomShape();
  for (int64_t k = 0; k < first; k++) {
    DataType type = random_.of(types);
    input(shape, type, isIntegral(type) ? -6 : -2, isIntegral(type) ? 10 : 2);
    if (random_.chance(40)) {
      shape = random_.chance(50) ? randomShape() : Shape(shape.begin() + random_.below(std::ssize(shape)), shape.end());
    }
  }
  size_t wanted = items_.size() + static_cast<size_t>(ops);
  for (int attempt = 0; items_.size() < wanted && attempt < 4 * ops; attempt++) {
    try {
      step();
    } catch (const UserError&) {
      if (!symbolic_) {
        throw;  // what fits by its sizes is refused only where sizes are not known
      }
    }
    if (random_.chance(3)) {
      Item x = pick();
      add(random_.chance(50) ? segment_set(x.tv) : set(x.tv), x.magnitude);
    }
  }
  outputs();
}

// What nobody reads, at most five of it, and something that is read.
void Graph::outputs() {
  std::vector<Item> unread;
  std::vector<Item> read;
  for (const Item& i : items_) {
    if (!i.tv->isFusionInput()) {
      (fusion_.uses(i.tv).empty() ? unread : read).push_back(i);
    }
  }
  random_.shuffle(unread);
  if (unread.size() > 5) {
    unread.resize(5);
  }
  if (unread.empty() || (!read.empty() && random_.chance(25))) {
    unread.push_back(read.empty() ? Item{set(items_[0].tv), items_[0].magnitude} : random_.of(read));
  }
  for (const Item& i : unread) {
    if (!i.tv->isFusionOutput()) {
      fusion_.addOutput(i.tv);
    }
  }
  if (random_.chance(15)) {
    aliases();
  }
}

// An output that takes the place of an input, as parameters do.
void Graph::aliases() {
  for (Val* in : fusion_.inputs()) {
    for (Val* out : fusion_.outputs()) {
      if (!in->isTensor() || in->dtype() != out->dtype() || out->isFusionInput() || out->asTensor()->hasReduction()) {
        continue;
      }
      const std::vector<bool>& contiguity = in->asTensor()->contiguity();
      bool contiguous = std::find(contiguity.begin(), contiguity.end(), false) == contiguity.end();
      if (contiguous && in->asTensor()->shape() == out->asTensor()->shape()) {
        fusion_.aliasOutputToInput(out, in);
        return;
      }
    }
  }
}

}  // namespace meshfuse::fuzz
