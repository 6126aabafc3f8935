// The edge relation against the sets of elements that ranks need and hold, found by running splits, merges and ops on indices.
#include "multidevice/sharding/relation.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

#include "interpret/interpret.h"
#include "ir/fusion.h"
#include "multidevice/sharding/carry.h"
#include "multidevice/sharding/enumerate.h"
#include "multidevice/sharding/local_indices.h"
#include "multidevice/sharding/random_state.h"
#include "ops/contraction.h"
#include "ops/copy_shape.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

using Elements = std::set<int64_t>;

std::vector<int64_t> constants(const std::vector<IterDomain*>& ids) {
  std::vector<int64_t> out;
  for (const IterDomain* id : ids) {
    out.push_back(id->extent().constValue());
  }
  return out;
}

int64_t product(const std::vector<int64_t>& v) {
  return std::accumulate(v.begin(), v.end(), int64_t{1}, std::multiplies<>());
}

std::vector<int64_t> unflatten(int64_t flat, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> index(sizes.size());
  for (size_t k = sizes.size(); k-- > 0;) {
    index[k] = flat % sizes[k];
    flat /= sizes[k];
  }
  return index;
}

int64_t flatten(const std::vector<int64_t>& index, const std::vector<int64_t>& sizes) {
  int64_t flat = 0;
  for (size_t k = 0; k < sizes.size(); k++) {
    flat = flat * sizes[k] + index[k];
  }
  return flat;
}

// Flat indices over the logical domain that a device works on, by the loop transforms alone.
Elements heldBy(const TensorView* tv, int64_t device) {
  const DeviceMesh& mesh = tv->getDeviceMesh();
  const std::vector<int64_t> at = mesh.coordinates(mesh.devices()[device]);
  const std::vector<int64_t> sizes = constants(tv->getLogicalDomain());
  Elements held;
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
        case LoopTransform::Kind::Merge:
          index[axis] = index[axis] * extents[axis + 1] + index[axis + 1];
          extents[axis] *= extents[axis + 1];
          index.erase(index.begin() + axis + 1);
          extents.erase(extents.begin() + axis + 1);
          break;
        case LoopTransform::Kind::Reorder: {
          std::vector<int64_t> i2;
          std::vector<int64_t> e2;
          for (int old : t.order) {
            i2.push_back(index[old]);
            e2.push_back(extents[old]);
          }
          index = i2;
          extents = e2;
          break;
        }
        case LoopTransform::Kind::Parallelize:
          mine = mine && index[axis] == at[mesh.axisOf(t.type)];
          break;
      }
    }
    if (mine) {
      held.insert(flat);
    }
  }
  return held;
}

// An op on one operand, or the other operand of a product, with the elements of the operand that each logical element needs.
struct Edge1 {
  Fusion fusion;
  TensorView* producer = nullptr;
  Expr* expr = nullptr;
  int operand = 0;
  TensorView* consumer = nullptr;
  std::vector<Elements> needs;  // by flat logical index of the consumer
};

// Ops that only move elements: the interpreter moves the elements' own numbers.
void traceByValue(Edge1& e) {
  const std::vector<int64_t> sizes = constants(e.producer->getLogicalDomain());
  std::vector<double> numbers(product(sizes));
  std::iota(numbers.begin(), numbers.end(), 0);
  e.fusion.addOutput(e.consumer);
  std::vector<Argument> arguments{Tensor::of(numbers, sizes, DataType::Double)};
  if (e.fusion.inputs().size() > 1) {
    arguments.emplace_back(Tensor::full(sizes, DataType::Double, -1));  // what is not the producer's
  }
  const Tensor out = interpret(e.fusion, arguments)[0];
  for (double v : out.toVector()) {
    e.needs.push_back(v < 0 ? Elements{} : Elements{static_cast<int64_t>(v)});
  }
}

std::vector<int64_t> pick(std::mt19937& rng, bool uneven) {
  static const std::vector<std::vector<int64_t>> kEven = {{8}, {4, 8}, {8, 4}, {4, 2, 4}, {16}, {2, 12}, {4, 4}};
  static const std::vector<std::vector<int64_t>> kUneven = {{7}, {5, 6}, {6, 4}, {3, 2, 5}, {1, 8}, {10}, {3, 3}, {13}};
  const auto& shapes = uneven ? kUneven : kEven;
  return shapes[rng() % shapes.size()];
}

void build(Edge1& e, std::mt19937& rng, bool uneven = false) {
  std::vector<int64_t> shape = pick(rng, uneven);
  const int kind = static_cast<int>(rng() % 9);
  TensorView* p = makeContigConcreteTensor(e.fusion, shape, DataType::Double);
  e.fusion.addInput(p);
  e.producer = p;
  const int rank = static_cast<int>(shape.size());
  switch (kind) {
    case 0:
      e.consumer = set(p);
      break;
    case 1:
      e.consumer = rank > 1 ? transpose(p, 0, rank - 1) : set(p);
      break;
    case 2:
    case 3: {
      std::vector<int64_t> to = shape;
      if (rank > 1 && rng() % 2 == 0) {
        to[0] *= to[1];
        to.erase(to.begin() + 1);
      } else {
        const int64_t f = to.back() % 4 == 0 ? 4 : to.back() % 2 == 0 ? 2 : 1;
        to.back() /= f;
        to.push_back(f);
      }
      e.consumer = reshape(p, to);
      break;
    }
    case 4: {
      std::vector<int64_t> starts(rank, 0);
      std::vector<int64_t> stops = shape;
      std::vector<int64_t> steps(rank, 1);
      const size_t k = rng() % shape.size();
      if (rng() % 3 == 0) {
        steps[k] = 2;
      } else {
        (rng() % 2 == 0 ? starts : stops)[k] = shape[k] / 2;
      }
      e.consumer = slice(p, starts, stops, steps);
      break;
    }
    case 5:
      if (uneven) {  // what each operand gives by itself
        TensorView* other = makeContigConcreteTensor(e.fusion, shape, DataType::Double);
        e.fusion.addInput(other);
        e.operand = static_cast<int>(rng() % 2);
        e.consumer = cat(e.operand == 0 ? std::vector{p, other} : std::vector{other, p},
                         static_cast<int64_t>(rng() % shape.size()));
        break;
      }
      e.consumer = cat({p, p}, static_cast<int64_t>(rng() % shape.size()));
      break;
    case 6:
      e.consumer = pad(p, std::vector<int64_t>{shape.back(), 0}, -1.0);
      break;
    case 7: {
      const int64_t k = static_cast<int64_t>(rng() % shape.size());
      e.consumer = sum(p, {k});
      const std::vector<int64_t> sizes = constants(e.consumer->getLogicalDomain());
      for (int64_t flat = 0; flat < product(sizes); flat++) {
        e.needs.push_back({flat});  // the logical domain holds the reduced dim
      }
      break;
    }
    default: {
      e.operand = static_cast<int>(rng() % 2);
      TensorView* other = makeContigConcreteTensor(e.fusion, {8, shape.back()}, DataType::Double);
      e.fusion.addInput(other);
      e.consumer = linear(p, other);
      e.producer = e.operand == 0 ? p : other;
      const std::vector<int64_t> sizes = constants(e.consumer->getLogicalDomain());  // [.., 8, r{K}]
      for (int64_t flat = 0; flat < product(sizes); flat++) {
        std::vector<int64_t> index = unflatten(flat, sizes);
        const int64_t k = index.back();
        const int64_t n = index[index.size() - 2];
        index.resize(index.size() - 2);
        index.push_back(k);
        e.needs.push_back({e.operand == 0 ? flatten(index, shape) : n * shape.back() + k});
      }
    }
  }
  e.expr = e.consumer->definition();
  if (e.needs.empty()) {
    traceByValue(e);
  }
}

// Splits and merges at random, then axes on loops of their size.
void randomLoops(std::mt19937& rng, TensorView* tv, const DeviceMesh& mesh, bool uneven = false) {
  tv->setDeviceMesh(mesh);
  for (int step = 0; step < 3; step++) {
    const int k = static_cast<int>(rng() % static_cast<uint32_t>(tv->nDims()));
    if (rng() % 3 == 0 && k + 1 < tv->nDims() && tv->axis(k)->isReduction() == tv->axis(k + 1)->isReduction()) {
      tv->merge(k);
    } else {
      const int64_t n = tv->axis(k)->extent().constValue();
      const int64_t f = rng() % 2 == 0 ? 2 : 4;
      if (uneven || (n % f == 0 && n > f)) {
        tv->split(k, f, rng() % 2 == 0);
      }
    }
  }
  for (int axis = 0; axis < mesh.numAxes(); axis++) {
    std::vector<int> fits;
    for (int k = 0; k < tv->nDims(); k++) {
      if (tv->axis(k)->extent() == mesh.axisSize(axis) && !tv->axis(k)->isDeviceDim()) {
        fits.push_back(k);
      }
    }
    if (!fits.empty() && rng() % 4 != 0) {
      tv->parallelize(fits[rng() % fits.size()], mesh.typeOf(axis));
    }
  }
}

struct Truth {
  bool equal = true;
  bool contained = true;
  bool proper = false;  // some rank holds a part of the producer, not all of it
};

Truth truthOf(const Edge1& e, const DeviceMesh& mesh) {
  Truth truth;
  Elements used;  // a window leaves elements that nobody needs
  for (const Elements& n : e.needs) {
    used.insert(n.begin(), n.end());
  }
  for (int64_t device = 0; device < mesh.numDevices(); device++) {
    const Elements held = heldBy(e.producer, device);
    Elements needed;
    const Elements made = heldBy(e.consumer, device);
    for (int64_t flat : made) {
      needed.insert(e.needs[flat].begin(), e.needs[flat].end());
    }
    Elements wanted;
    std::set_intersection(held.begin(), held.end(), used.begin(), used.end(), std::inserter(wanted, wanted.begin()));
    truth.equal = truth.equal && (needed == wanted || made.empty());  // a rank with nothing to do may hold anything
    truth.proper =
        truth.proper || static_cast<int64_t>(held.size()) < product(constants(e.producer->getLogicalDomain()));
    truth.contained = truth.contained && std::includes(held.begin(), held.end(), needed.begin(), needed.end());
  }
  return truth;
}

bool regroupsLoops(const TensorView* tv) {
  const auto transforms = tv->loopTransforms();
  return std::any_of(transforms.begin(), transforms.end(), [](const LoopTransform& t) {
    return t.kind == LoopTransform::Kind::Split || t.kind == LoopTransform::Kind::Merge;
  });
}

// What the proof lacked, by the words of the reason.
std::string causeOf(const std::string& reason) {
  for (const char* cause : {"whole periods of the window", "needs do not nest", "is opaque", "is held as"}) {
    if (reason.find(cause) != std::string::npos) {
      return cause;
    }
  }
  return reason;
}

struct Histogram {
  int edges = 0;
  int comm = 0;         // some rank lacks something
  int properLocal = 0;  // nobody lacks anything, and some rank holds a proper part
  int regrouped = 0;    // a split or merge of loops, or a reshape, on the way
  int local = 0;
  int proved = 0;
  int properProved = 0;
  int enumerated = 0;  // proved by digits or by enumeration
  int properEnumerated = 0;
  std::map<std::string, int> misses;
};

TEST(Relation, RandomEdgesAgainstIndexSets) {
  const std::vector<DeviceMesh> meshes = {DeviceMesh::create({{"x", 2}}), DeviceMesh::create({{"x", 4}}),
                                          DeviceMesh::create({{"x", 2}, {"y", 2}}),
                                          DeviceMesh::create({{"x", 2}, {"y", 4}})};
  std::mt19937 rng(7);
  Histogram h;
  for (; h.edges < 10000; h.edges++) {
    const DeviceMesh& mesh = meshes[rng() % meshes.size()];
    Edge1 e;
    build(e, rng);
    randomLoops(rng, e.producer, mesh);
    if (rng() % 2 == 0 && !shardState(e.producer).dims.empty()) {
      // What forward propagation gives must be local.
      ShardState state = ShardState::replicated(mesh, e.consumer->shape());
      carryForward(e.expr, e.operand, shardState(e.producer), e.consumer, state);
      setShardState(e.consumer, state);
    } else {
      randomLoops(rng, e.consumer, mesh);
    }
    const Edge edge = edgeRelation(e.expr, e.operand, e.consumer);
    const Truth truth = truthOf(e, mesh);
    const bool proved = edge.relation != EdgeRelation::Comm;
    const auto text = [&] { return e.fusion.toString() + std::string(name(edge.relation)) + ": " + edge.reason; };
    ASSERT_TRUE(edge.relation != EdgeRelation::Aligned || truth.equal) << text();
    ASSERT_TRUE(edge.relation != EdgeRelation::Local || truth.contained) << text();
    ASSERT_TRUE(proved || !edge.reason.empty()) << text();
    h.local += truth.contained ? 1 : 0;
    h.comm += truth.contained ? 0 : 1;
    h.properLocal += truth.contained && truth.proper ? 1 : 0;
    h.regrouped +=
        regroupsLoops(e.producer) || regroupsLoops(e.consumer) || e.expr->kind() == ExprKind::Reshape ? 1 : 0;
    h.proved += proved ? 1 : 0;
    h.properProved += proved && truth.proper ? 1 : 0;
    const std::optional<EdgeRelation> exact = enumerateEdge(e.expr, e.operand, e.consumer);
    const bool either = proved || exact.value_or(EdgeRelation::Comm) != EdgeRelation::Comm;
    ASSERT_TRUE(!either || truth.contained) << text();
    ASSERT_TRUE(exact != EdgeRelation::Aligned || truth.equal) << text();
    h.enumerated += either ? 1 : 0;
    h.properEnumerated += either && truth.proper ? 1 : 0;
    if (truth.contained && !proved) {
      h.misses[causeOf(edge.reason)]++;
    }
  }
  std::printf(
      "%d edges: %d comm, %d local or aligned, %d of them with a proper part on some rank; %d pass a split, merge or "
      "reshape\n",
      h.edges, h.comm, h.local, h.properLocal, h.regrouped);
  std::printf("proved without enumeration: %.4f of all, %.4f of those with a proper part\n",
              static_cast<double>(h.proved) / h.local, static_cast<double>(h.properProved) / h.properLocal);
  std::printf("proved with enumeration: %.4f of all, %.4f of those with a proper part\n",
              static_cast<double>(h.enumerated) / h.local, static_cast<double>(h.properEnumerated) / h.properLocal);
  for (const auto& [cause, count] : h.misses) {
    std::printf("  missed %4d: .. %s ..\n", count, cause.c_str());
  }
  EXPECT_GE(h.comm, h.edges / 5);
  EXPECT_GE(h.properLocal, h.edges / 5);
  EXPECT_GE(h.regrouped, h.edges / 2);
  EXPECT_GE(static_cast<double>(h.proved) / h.local, 0.97);
  EXPECT_GE(static_cast<double>(h.properProved) / h.properLocal, 0.97);
  EXPECT_GE(static_cast<double>(h.properEnumerated) / h.properLocal, 0.99);
}

TEST(Relation, RandomUnevenEdgesAgainstIndexSets) {
  const std::vector<DeviceMesh> meshes = {DeviceMesh::create({{"x", 2}}), DeviceMesh::create({{"x", 4}}),
                                          DeviceMesh::create({{"x", 2}, {"y", 2}}),
                                          DeviceMesh::create({{"x", 2}, {"y", 4}})};
  std::mt19937 rng(11);
  int local = 0;
  int proved = 0;
  int ragged = 0;
  for (int edges = 0; edges < 10000; edges++) {
    const DeviceMesh& mesh = meshes[rng() % meshes.size()];
    Edge1 e;
    build(e, rng, true);
    randomLoops(rng, e.producer, mesh, true);
    const ShardState held = shardState(e.producer);
    if (rng() % 2 == 0) {
      ShardState state = ShardState::replicated(mesh, e.consumer->shape());
      carryForward(e.expr, e.operand, held, e.consumer, state);
      setShardState(e.consumer, state);
      ASSERT_TRUE(provenEqual(shardState(e.consumer), state)) << e.fusion.toString();
    } else {
      randomLoops(rng, e.consumer, mesh, true);
    }
    const Edge edge = edgeRelation(e.expr, e.operand, e.consumer);
    const Truth truth = truthOf(e, mesh);
    const auto text = [&] { return e.fusion.toString() + std::string(name(edge.relation)) + ": " + edge.reason; };
    ASSERT_TRUE(edge.relation != EdgeRelation::Aligned || truth.equal) << text();
    ASSERT_TRUE(edge.relation != EdgeRelation::Local || truth.contained) << text();
    const bool uneven =
        std::any_of(held.dims.begin(), held.dims.end(), [](const DigitList& d) { return d.isRagged(); });
    ragged += uneven ? 1 : 0;
    local += truth.contained && truth.proper && uneven ? 1 : 0;
    proved += truth.contained && truth.proper && uneven && edge.relation != EdgeRelation::Comm ? 1 : 0;
  }
  std::printf("%d edges from uneven parts; of %d truly local ones %.4f proved\n", ragged, local,
              static_cast<double>(proved) / local);
  EXPECT_GE(ragged, 2000);
  EXPECT_GE(static_cast<double>(proved) / local, 0.9);
}

TEST(Relation, ReasonsNameTheDigit) {
  Fusion fusion;
  const DeviceMesh mesh = DeviceMesh::create({{"x", 2}});
  TensorView* a = makeContigConcreteTensor(fusion, {8}, DataType::Float);
  fusion.addInput(a);
  TensorView* b = set(a);
  fusion.addOutput(b);
  a->setDeviceMesh(mesh);
  a->outer_split(0, 2)->axis(0)->parallelize(ParallelType::DIDx);
  b->setDeviceMesh(mesh);
  const Edge edge = edgeRelation(b->definition(), 0, b);
  EXPECT_EQ(edge.relation, EdgeRelation::Comm);
  EXPECT_NE(edge.reason.find("dim 0 is held as S0(x), needed whole"), std::string::npos) << edge.reason;
  EXPECT_TRUE(isResharding(b->definition()));
  EXPECT_TRUE(haveDifferentShardings(a, b));
  EXPECT_EQ(getTvsWithDifferentSharding(a, {a, b}), std::vector<TensorView*>{b});
  b->inner_split(0, 2)->axis(1)->parallelize(ParallelType::DIDx);
  EXPECT_TRUE(isResharding(b->definition())) << "block and cyclic have equal local shapes and differ";
}

TEST(Relation, RankOrderMatters) {
  Fusion fusion;
  TensorView* a = makeContigConcreteTensor(fusion, {8}, DataType::Float);
  fusion.addInput(a);
  TensorView* b = set(a);
  fusion.addOutput(b);
  for (auto [tv, mesh] : {std::pair(a, DeviceMesh({0, 1})), std::pair(b, DeviceMesh({1, 0}))}) {
    tv->setDeviceMesh(mesh);
    tv->outer_split(0, 2)->axis(0)->parallelize(ParallelType::DIDx);
  }
  EXPECT_TRUE(isResharding(b->definition()));
}

TEST(ShardState, WhatIsWrittenIsRead) {
  std::mt19937 rng(3);
  const std::vector<DeviceMesh> meshes = {DeviceMesh::create({{"x", 2}, {"y", 4}}),
                                          DeviceMesh::create({{"x", 2}, {"y", 3}, {"z", 2}})};
  for (int round = 0; round < 2000; round++) {
    const DeviceMesh& mesh = meshes[rng() % 2];
    const bool uneven = rng() % 2 == 0;
    const std::vector<int64_t> extents = uneven           ? std::vector<int64_t>{7, 1, 10}
                                         : rng() % 2 == 0 ? std::vector<int64_t>{24, 12}
                                                          : std::vector<int64_t>{8, 24, 6};
    Fusion fusion;
    TensorView* tv = makeContigConcreteTensor(fusion, extents, DataType::Float);
    const ShardState state = randomState(rng, mesh, extents, {true, false, uneven});
    setShardState(tv, state);
    ASSERT_TRUE(provenEqual(shardState(tv), state)) << state.toString() << "\n" << shardState(tv).toString();
    for (int64_t device = 0; round % 20 == 0 && device < mesh.numDevices(); device++) {
      const std::vector<int64_t> held = heldElements(state, extents, device);
      ASSERT_EQ(heldBy(tv, device), Elements(held.begin(), held.end())) << state.toString();
      const IndexBlock runs = localIndices(state, mesh.devices()[device]);
      Elements listed{0};
      for (size_t k = 0; k < runs.size(); k++) {
        Elements next;
        for (int64_t prefix : listed) {
          for (const IndexRun& r : runs[k]) {
            for (int64_t i = 0; i < r.count; i++) {
              next.insert(prefix * extents[k] + r.start + i * r.step);
            }
          }
        }
        listed = std::move(next);
      }
      ASSERT_EQ(listed, Elements(held.begin(), held.end())) << state.toString();
    }
  }
}

TEST(ShardState, AnAxisMayOwnDigitsOfTwoDims) {
  Fusion fusion;
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}});
  TensorView* tv = makeContigConcreteTensor(fusion, {2, 6}, DataType::Float);
  tv->setDeviceMesh(mesh);
  tv->merge(0)->outer_split(0, 4)->axis(0)->parallelize(ParallelType::DIDx);
  const ShardState state = shardState(tv);
  EXPECT_EQ(state.localShape(), (std::vector<IntExpr>{1, 3}));
  setShardState(tv, state);
  EXPECT_TRUE(provenEqual(shardState(tv), state)) << shardState(tv).toString();
}

}  // namespace
}  // namespace meshfuse
