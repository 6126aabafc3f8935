#include "multidevice/sharding/random_edge.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>

#include "interpret/interpret.h"
#include "multidevice/sharding/enumerate.h"
#include "multidevice/sharding/shard_state.h"
#include "ops/tensors.h"

namespace meshfuse {

namespace {

constexpr int64_t kMostElementsOfHead = 256;

std::vector<int64_t> constants(const std::vector<IterDomain*>& ids) {
  std::vector<int64_t> out;
  for (const IterDomain* id : ids) {
    out.push_back(id->extent().constValue());
  }
  return out;
}

std::vector<int64_t> sizesOf(const TensorView* tv) { return constants(tv->noReductions()); }

int64_t flatten(const std::vector<int64_t>& index, const std::vector<int64_t>& sizes) {
  int64_t flat = 0;
  for (size_t k = 0; k < sizes.size(); k++) {
    flat = flat * sizes[k] + index[k];
  }
  return flat;
}

// Of elements of the logical domain those that are stored, the reduced dims left out.
FlatIndices storedOf(const TensorView* tv, const FlatIndices& logical) {
  const std::vector<IterDomain*>& ids = tv->getLogicalDomain();
  const std::vector<int64_t> sizes = constants(ids);
  const std::vector<int64_t> stored = sizesOf(tv);
  FlatIndices out;
  for (int64_t flat : logical) {
    const std::vector<int64_t> index = unflatten(flat, sizes);
    std::vector<int64_t> kept;
    for (size_t k = 0; k < ids.size(); k++) {
      if (!ids[k]->isReduction()) {
        kept.push_back(index[k]);
      }
    }
    out.insert(flatten(kept, stored));
  }
  return out;
}

using Shape = std::vector<int64_t>;

// The exprs from `from` to `to`, by the first operand of each that comes from there.
bool findHops(TensorView* from, TensorView* to, std::vector<Hop>& hops) {
  if (from == to) {
    return true;
  }
  Expr* e = to->definition();
  for (size_t k = 0; e != nullptr && k < e->inputs().size(); k++) {
    if (e->input(static_cast<int64_t>(k))->isTensor() &&
        findHops(from, e->input(static_cast<int64_t>(k))->asTensor(), hops)) {
      hops.push_back({e, static_cast<int64_t>(k)});
      return true;
    }
  }
  return false;
}

// The dim along which data say which element is read, and the operand that is read so.
struct ByData {
  int64_t table = -1;
  int64_t dim = 0;
};

ByData byData(const Expr* e) {
  switch (e->kind()) {
    case ExprKind::Embedding:
      return {1, 0};
    case ExprKind::TakeAlongAxis:
    case ExprKind::Gather:
    case ExprKind::IndexSelect:
      return {0, e->attributes().dim};
    default:
      return {};
  }
}

// Numbers of a table along `dim`: every element says where it stands.
Tensor positionsAlong(const Shape& sizes, int64_t dim) {
  std::vector<double> numbers;
  for (int64_t flat = 0; flat < product(sizes); flat++) {
    numbers.push_back(static_cast<double>(unflatten(flat, sizes)[dim]));
  }
  return Tensor::of(numbers, sizes, DataType::Double);
}

std::vector<FlatIndices> sumNeeds(const Hop& edge) {
  std::vector<FlatIndices> needs;  // the logical domain holds the reduced dims
  for (int64_t flat = 0; flat < product(constants(edge.consumer()->getLogicalDomain())); flat++) {
    needs.push_back({flat});
  }
  return needs;
}

std::vector<FlatIndices> linearNeeds(const Hop& edge) {
  const Shape sizes = constants(edge.consumer()->getLogicalDomain());  // [.., N, r{K}]
  const Shape shape = sizesOf(edge.producer());
  std::vector<FlatIndices> needs;
  for (int64_t flat = 0; flat < product(sizes); flat++) {
    Shape index = unflatten(flat, sizes);
    const int64_t k = index.back();
    const int64_t n = index[index.size() - 2];
    index.resize(index.size() - 2);
    index.push_back(k);
    needs.push_back({edge.operand == 0 ? flatten(index, shape) : n * shape.back() + k});
  }
  return needs;
}

void addNeeds(const Fusion& fusion, const std::vector<Argument>& arguments, std::vector<FlatIndices>& needs) {
  const Tensor out = interpret(fusion, arguments)[0];
  const std::vector<double> values = out.toVector();
  needs.resize(values.size());
  for (size_t flat = 0; flat < values.size(); flat++) {
    if (values[flat] >= 0) {
      needs[flat].insert(static_cast<int64_t>(values[flat]));
    }
  }
}

// Parts of random sizes, some of them empty.
void partitionAtRandom(std::mt19937& rng, TensorView* tv) {
  const int64_t k = static_cast<int64_t>(below(rng, tv->nDims()));
  static const std::vector<int64_t> kCounts = {2, 3, 4, 6};
  std::vector<IntExpr> sizes(kCounts[rng() % kCounts.size()], 0);
  for (int64_t i = tv->axis(k)->extent().constValue(); i > 0; i--) {
    sizes[rng() % sizes.size()] += 1;
  }
  tv->partition(k, sizes);
}

// What programs refuse: an axis that counts within parts.
bool isWithinParts(const IterDomain* id) {
  const IdExpr* e = id->definition();
  return e != nullptr && ((e->kind == IdExprKind::Partition && id == e->out[1]) ||
                          std::any_of(e->in.begin(), e->in.end(), isWithinParts));
}

// One loop, of the size of the axis, or of a stream.
void bindAtRandom(std::mt19937& rng, TensorView* tv, int64_t size, ParallelType type, Reduced reduced) {
  std::vector<int64_t> fits;
  for (int64_t k = 0; k < tv->nDims(); k++) {
    if (tv->axis(k)->extent() == IntExpr(size) && tv->axis(k)->parallelType() == ParallelType::Serial &&
        !isWithinParts(tv->axis(k)) && (reduced == Reduced::Bound || !tv->axis(k)->isReduction())) {
      fits.push_back(k);
    }
  }
  if (!fits.empty()) {
    tv->parallelize(fits[rng() % fits.size()], type);
  }
}

}  // namespace

FlatIndices heldBy(const TensorView* tv, int64_t device) {
  const DeviceMesh& mesh = tv->getDeviceMesh();
  if (!mesh.contains(device)) {
    return {};
  }
  const std::vector<int64_t> at = mesh.coordinates(device);
  const std::vector<int64_t> sizes = constants(tv->getLogicalDomain());
  FlatIndices held;
  for (int64_t flat = 0; flat < product(sizes); flat++) {
    std::vector<int64_t> index = unflatten(flat, sizes);
    std::vector<int64_t> extents = sizes;
    bool mine = true;
    for (const LoopTransform& t : tv->loopTransforms()) {
      const auto axis = static_cast<ptrdiff_t>(t.axis);
      switch (t.kind) {
        case LoopTransform::Kind::Split: {
          const int64_t factor = t.factor.constValue();
          const int64_t inner = t.innerSplit ? factor : (extents[axis] + factor - 1) / factor;
          const int64_t outer = t.innerSplit ? (extents[axis] + factor - 1) / factor : factor;
          const int64_t v = index[axis];
          index[axis] = v / inner;
          extents[axis] = outer;
          index.insert(index.begin() + axis + 1, v % inner);
          extents.insert(extents.begin() + axis + 1, inner);
          break;
        }
        case LoopTransform::Kind::Partition: {
          int64_t part = 0;
          int64_t longest = 0;
          int64_t within = index[axis];
          for (const IntExpr& size : t.sizes) {
            longest = std::max(longest, size.constValue());
          }
          while (within >= t.sizes[part].constValue()) {
            within -= t.sizes[part++].constValue();
          }
          index[axis] = part;
          extents[axis] = std::ssize(t.sizes);
          index.insert(index.begin() + axis + 1, within);
          extents.insert(extents.begin() + axis + 1, longest);
          break;
        }
        case LoopTransform::Kind::Merge:
          index[axis] = index[axis] * extents[axis + 1] + index[axis + 1];
          extents[axis] *= extents[axis + 1];
          index.erase(index.begin() + axis + 1);
          extents.erase(extents.begin() + axis + 1);
          break;
        case LoopTransform::Kind::Reorder: {
          std::vector<int64_t> i2;
          std::vector<int64_t> e2;
          for (int64_t old : t.order) {
            i2.push_back(index[old]);
            e2.push_back(extents[old]);
          }
          index = i2;
          extents = e2;
          break;
        }
        case LoopTransform::Kind::Parallelize:
          if (t.type.isDevice()) {
            const int64_t coordinate = at[mesh.axisOf(t.type)];
            // a part is a digit of the coordinate, its places counted from the outside
            const int64_t whole = mesh.axisSize(mesh.axisOf(t.type)).constValue();
            const int64_t place =
                t.type.isPart() ? coordinate / (whole / t.type.pre() / t.type.size()) % t.type.size() : coordinate;
            mine = mine && (whole == 1 || index[axis] == place);  // an axis of one device owns nothing
          }
          break;
      }
    }
    if (mine) {
      held.insert(flat);
    }
  }
  return held;
}

std::vector<int64_t> pickShape(std::mt19937& rng, bool uneven) {
  static const std::vector<std::vector<int64_t>> kEven = {
      {8}, {12}, {4, 8}, {8, 4}, {6, 4}, {4, 2, 4}, {16}, {24}, {2, 12}, {4, 4}, {3, 8}, {2, 6, 4}, {1, 8}, {6, 1, 4}};
  static const std::vector<std::vector<int64_t>> kUneven = {{7},  {5, 6}, {6, 4}, {3, 2, 5}, {1, 8},
                                                            {10}, {3, 3}, {13},   {4, 1, 5}, {9, 2}};
  const auto& shapes = uneven ? kUneven : kEven;
  return shapes[rng() % shapes.size()];
}

namespace {

TensorView* addHead(Fusion& fusion, const std::vector<IntExpr>& extents) {
  std::vector<Dim> dims;
  for (const IntExpr& extent : extents) {
    dims.push_back({extent, extent.isConst(1) ? IterType::Broadcast : IterType::Iteration});
  }
  TensorView* head = fusion.tensor(DataType::Double, dims);
  fusion.addInput(head);
  return head;
}

}  // namespace

void makeChain(RandomChain& chain, std::mt19937& rng, int64_t ops, bool uneven) {
  const Shape shape = pickShape(rng, uneven);
  makeChain(chain, rng, ops, {shape.begin(), shape.end()}, {});
}

void makeChain(RandomChain& chain, std::mt19937& rng, int64_t ops, const std::vector<IntExpr>& head,
               const SymbolValueOf& sample) {
  chain.head = addHead(chain.fusion, head);
  TensorView* at = chain.head;
  while (std::ssize(chain.kinds) < ops) {
    Shape shape;
    for (const IntExpr& extent : at->shape()) {
      shape.push_back(extent.evaluate(sample));
    }
    if (!chain.kinds.empty() && (shape.empty() || product(shape) == 0 || product(shape) > kMostElementsOfHead)) {
      break;
    }
    RandomOp op = pickOp(rng, shape);
    const size_t before = chain.hops.size();
    TensorView* next = op.apply(at);
    findHops(at, next, chain.hops);
    chain.kinds.push_back(op.kind);
    chain.ops.push_back(std::move(op));
    if (std::ssize(chain.kinds) == ops) {  // an op may be several exprs: look at any of them
      chain.hops.resize(before + 1 + rng() % (chain.hops.size() - before));
    }
    at = next;
  }
}

bool repeatChain(RandomChain& chain, const RandomChain& of, const std::vector<IntExpr>& head) {
  chain.head = addHead(chain.fusion, head);
  TensorView* at = chain.head;
  for (const RandomOp& op : of.ops) {
    TensorView* next = op.apply(at);
    findHops(at, next, chain.hops);
    at = next;
  }
  if (chain.hops.size() < of.hops.size()) {
    return false;
  }
  chain.hops.resize(of.hops.size());
  for (size_t k = 0; k < of.hops.size(); k++) {
    const Hop& a = chain.hops[k];
    const Hop& b = of.hops[k];
    if (a.expr->kind() != b.expr->kind() || a.operand != b.operand ||
        a.consumer()->getLogicalDomain().size() != b.consumer()->getLogicalDomain().size()) {
      return false;
    }
  }
  return true;
}

std::vector<FlatIndices> tracedNeeds(RandomChain& chain) {
  const Hop edge = chain.edge();
  if (edge.expr->kind() == ExprKind::Reduce) {
    return sumNeeds(edge);
  }
  if (edge.expr->kind() == ExprKind::Linear) {
    return linearNeeds(edge);
  }
  Fusion& fusion = chain.fusion;
  const Shape shape = sizesOf(edge.producer());
  const ByData data = byData(edge.expr);
  const DataType dtype = edge.producer()->dtype();
  TensorView* consumer = edge.consumer();
  const auto replace = [&](int64_t operand, const Shape& sizes, DataType type) {
    TensorView* fresh = makeContigConcreteTensor(fusion, sizes, type);
    fusion.addInput(fresh);
    fusion.replaceInput(edge.expr, operand, fresh);
    return fresh;
  };
  TensorView* numbered = replace(edge.operand, shape, dtype);
  TensorView* index = nullptr;
  if (data.table == edge.operand) {
    const TensorView* was = edge.expr->input(1 - data.table)->asTensor();
    index = replace(1 - data.table, sizesOf(was), DataType::Int);
  }
  fusion.addOutput(consumer);
  std::vector<double> numbers(product(shape));
  std::iota(numbers.begin(), numbers.end(), 0);
  const int64_t values = index != nullptr ? shape[data.dim] : 1;
  std::vector<FlatIndices> needs;
  for (int64_t value = 0; value < values; value++) {  // data may say any place
    std::vector<Argument> arguments;
    for (const Val* in : fusion.inputs()) {
      const TensorView* tv = in->asTensor();
      if (tv == numbered) {
        arguments.emplace_back(Tensor::of(numbers, shape, dtype));
      } else if (tv == index) {
        arguments.emplace_back(Tensor::full(sizesOf(tv), DataType::Int, static_cast<double>(value)));
      } else if (data.table >= 0 && tv == edge.expr->input(data.table)) {
        arguments.emplace_back(positionsAlong(sizesOf(tv), data.dim));
      } else {
        const bool isUsed =
            std::find(edge.expr->inputs().begin(), edge.expr->inputs().end(), in) != edge.expr->inputs().end();
        arguments.emplace_back(Tensor::full(sizesOf(tv), tv->dtype(), isUsed ? -1 : 0));
      }
    }
    addNeeds(fusion, arguments, needs);
  }
  return needs;
}

Truth truthOf(RandomChain& chain) {
  TensorView* producer = chain.edge().producer();
  TensorView* consumer = chain.edge().consumer();
  const std::vector<FlatIndices> needs = tracedNeeds(chain);
  const DeviceMesh& mesh = consumer->getDeviceMesh();
  Truth truth;
  FlatIndices used;  // a window leaves elements that nobody needs
  for (const FlatIndices& n : needs) {
    used.insert(n.begin(), n.end());
  }
  for (const int64_t device : mesh.devices()) {
    const FlatIndices held = storedOf(producer, heldBy(producer, device));
    FlatIndices needed;
    const FlatIndices made = heldBy(consumer, device);
    for (int64_t flat : made) {
      needed.insert(needs[flat].begin(), needs[flat].end());
    }
    FlatIndices wanted;
    std::set_intersection(held.begin(), held.end(), used.begin(), used.end(), std::inserter(wanted, wanted.begin()));
    truth.equal = truth.equal && (needed == wanted || made.empty());  // a rank with nothing to do may hold anything
    truth.proper = truth.proper || std::ssize(held) < product(sizesOf(producer));
    truth.contained = truth.contained && std::includes(held.begin(), held.end(), needed.begin(), needed.end());
  }
  return truth;
}

void randomLoops(std::mt19937& rng, TensorView* tv, const DeviceMesh& mesh, bool uneven, Reduced reduced) {
  tv->setDeviceMesh(mesh);
  if (uneven && tv->nDims() > 0 && rng() % 4 == 0) {
    partitionAtRandom(rng, tv);
  }
  for (int64_t step = 0; step < 3 && tv->nDims() > 0; step++) {
    const int64_t k = static_cast<int64_t>(below(rng, tv->nDims()));
    if (rng() % 3 == 0 && k + 1 < tv->nDims() && tv->axis(k)->isReduction() == tv->axis(k + 1)->isReduction()) {
      tv->merge(k);
    } else {
      const int64_t n = tv->axis(k)->extent().constValue();
      const int64_t f = 2 + below(rng, 3);
      if (uneven || (n % f == 0 && n > f)) {
        tv->split(k, f, rng() % 2 == 0);
      }
    }
  }
  for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
    const int64_t n = mesh.axisSize(axis).constValue();
    if (n == 4 && rng() % 3 == 0) {
      const int64_t fromLast = mesh.typeOf(axis).axisFromLast();
      for (const int64_t pre : {1, 2}) {
        if (rng() % 4 != 0) {
          bindAtRandom(rng, tv, 2, ParallelType::device(fromLast, pre, 2), reduced);
        }
      }
    } else if (rng() % 4 != 0) {
      bindAtRandom(rng, tv, n, mesh.typeOf(axis), reduced);
    }
  }
  if (rng() % 6 == 0) {
    bindAtRandom(rng, tv, 2, ParallelType::Stream, reduced);
  }
}

void randomDigits(std::mt19937& rng, TensorView* tv, const DeviceMesh& mesh) {
  const Shape shape = sizesOf(tv);
  std::vector<std::vector<Digit>> owned(shape.size());
  for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
    const int64_t n = mesh.axisSize(axis).constValue();
    std::vector<int64_t> parts{n};
    if (n == 4 && rng() % 4 != 0) {
      parts = {2, 2};
    }
    std::vector<std::vector<Digit>> with = owned;
    int64_t coordinate = 1;
    bool fits = rng() % 5 != 0;
    for (int64_t part : parts) {
      const size_t k = rng() % shape.size();
      std::vector<std::vector<Digit>> choices;
      for (int64_t s = 1; s * part <= shape[k]; s++) {
        std::vector<Digit> more = with[k];
        more.push_back({static_cast<int64_t>(k), s, part, Owner::device(axis, coordinate)});
        if (shape[k] % (s * part) == 0 && !fillLocal(static_cast<int64_t>(k), shape[k], more).isOpaque()) {
          choices.push_back(more);
        }
      }
      fits = fits && !choices.empty();
      if (fits) {
        with[k] = choices[rng() % choices.size()];
      }
      coordinate *= part;
    }
    owned = fits ? with : owned;
  }
  ShardState state{mesh, {}, {}};
  for (size_t k = 0; k < shape.size(); k++) {
    state.dims.push_back(fillLocal(static_cast<int64_t>(k), shape[k], owned[k]));
  }
  setShardState(tv, state);
}

std::string causeOf(const Hop& edge, const std::string& reason) {
  for (const char* cause : {"whole periods of the window", "needs do not nest", "is opaque", "is held as"}) {
    if (reason.find(cause) != std::string::npos) {
      return fmt::format("{}: .. {} ..", edge.expr->opName(), cause);
    }
  }
  return reason;
}

}  // namespace meshfuse
