// How much the edge relation proves: its answers against the sets of elements that ranks need and hold, over random chains of ops.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <span>

#include "multidevice/sharding/enumerate.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/random_edge.h"
#include "multidevice/sharding/relation.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

std::vector<DeviceMesh> meshes() {
  return {DeviceMesh::create({{"x", 2}}),
          DeviceMesh::create({{"x", 4}}),
          DeviceMesh::create({{"x", 3}}),
          DeviceMesh::create({{"x", 2}, {"y", 2}}),
          DeviceMesh::create({{"x", 2}, {"y", 4}}),
          DeviceMesh::create({{"x", 3}, {"y", 2}}),
          DeviceMesh::create({{"x", 2}, {"y", 2}, {"z", 2}}),
          DeviceMesh::create({{"x", 2}, {"y", 3}, {"z", 2}})};
}

bool hasOpaqueDim(const ShardState& state) {
  return std::any_of(state.dims.begin(), state.dims.end(), [](const DigitList& d) { return d.isOpaque(); });
}

bool hasRaggedDim(const ShardState& state) {
  return std::any_of(state.dims.begin(), state.dims.end(), [](const DigitList& d) { return d.isRagged(); });
}

// The result takes what forward propagation gives.
void propagate(const Hop& hop, const DeviceMesh& mesh) {
  ShardState state = ShardState::replicated(mesh, hop.consumer()->shape());
  propagateForward(hop.expr, hop.operand, shardState(hop.producer()), hop.consumer(), state);
  setShardState(hop.consumer(), state);
}

// The head gets a random sharding, which propagates to the last edge. The last consumer gets the propagated or a random sharding.
void place(RandomChain& chain, std::mt19937& rng, const DeviceMesh& mesh, bool uneven) {
  if (!uneven && rng() % 3 == 0) {
    randomDigits(rng, chain.head, mesh);
  } else {
    randomLoops(rng, chain.head, mesh, uneven);
  }
  for (size_t k = 0; k + 1 < chain.hops.size(); k++) {
    if (rng() % 8 == 0) {
      randomLoops(rng, chain.hops[k].consumer(), mesh, uneven, Reduced::Free);
    } else {
      propagate(chain.hops[k], mesh);
    }
  }
  if (rng() % 2 == 0) {
    propagate(chain.edge(), mesh);
  } else {
    randomLoops(rng, chain.edge().consumer(), mesh, uneven);
  }
}

bool regroupsLoops(const TensorView* tv) {
  const auto transforms = tv->loopTransforms();
  return std::any_of(transforms.begin(), transforms.end(), [](const LoopTransform& t) {
    return t.kind == LoopTransform::Kind::Split || t.kind == LoopTransform::Kind::Merge;
  });
}

struct Proofs {
  int all = 0;
  int proper = 0;  // where some rank holds a proper part
  std::map<std::string, int> misses;
};

struct Histogram {
  int edges = 0;
  int comm = 0;  // some rank lacks something
  int local = 0;
  int properLocal = 0;  // nobody lacks anything, and some rank holds a proper part
  int regrouped = 0;    // a split or merge of loops, or a reshape, on the way
  int subAxes = 0;
  int streams = 0;
  std::map<std::string, int> places;  // edges whose producer has a digit of an axis there among those of a dim
  std::map<size_t, int> lengths;
  std::map<std::string, int> kinds;
  Proofs digits;
  Proofs either;  // by digits or by enumeration

  void count(Proofs& proofs, bool proved, const Truth& truth, const std::string& cause) const {
    if (!truth.contained) {
      return;
    }
    proofs.all += proved ? 1 : 0;
    proofs.proper += proved && truth.proper ? 1 : 0;
    if (!proved) {
      proofs.misses[cause]++;
    }
  }

  void print(const char* how, const Proofs& proofs) const {
    std::printf("proved %s: %.4f of all, %.4f of those with a proper part\n", how,
                static_cast<double>(proofs.all) / local, static_cast<double>(proofs.proper) / properLocal);
    for (const auto& [cause, n] : proofs.misses) {
      std::printf("  missed %4d: %s\n", n, cause.c_str());
    }
  }

  void print() const {
    std::printf(
        "%d edges: %d comm, %d local or aligned, %d of them with a proper part on some rank; %d pass a split, merge or "
        "reshape; %d have parts of an axis, %d a stream\n",
        edges, comm, local, properLocal, regrouped, subAxes, streams);
    for (const auto& [place, n] : places) {
      std::printf("  %5d with an axis at the %s digit\n", n, place.c_str());
    }
    for (const auto& [length, n] : lengths) {
      std::printf("  %5d chains of %zu\n", n, length);
    }
    for (const auto& [kind, n] : kinds) {
      std::printf("  %5d %s\n", n, kind.c_str());
    }
    print("without enumeration", digits);
    print("with enumeration", either);
  }
};

bool hasPartsOfAnAxis(const ShardState& state) {
  return std::any_of(state.dims.begin(), state.dims.end(), [](const DigitList& dim) {
    return std::any_of(dim.digits().begin(), dim.digits().end(),
                       [](const Digit& d) { return d.owner.isDevice() && !d.owner.below.isConst(1); });
  });
}

// Of digits that are not all of their dim.
std::set<std::string> placesOfAxes(const ShardState& state) {
  std::set<std::string> places;
  for (const DigitList& dim : state.dims) {
    const std::span<const Digit> digits = dim.digits();
    for (size_t k = 0; k < digits.size() && digits.size() > 1; k++) {
      if (digits[k].owner.isDevice()) {
        places.insert(k == 0 ? "outer" : k + 1 == digits.size() ? "inner" : "middle");
      }
    }
  }
  return places;
}

bool hasStream(const TensorView* tv) {
  return std::any_of(tv->getLoopDomain().begin(), tv->getLoopDomain().end(),
                     [](const IterDomain* id) { return id->parallelType() == ParallelType::Stream; });
}

void observe(Histogram& h, RandomChain& chain) {
  const Hop edge = chain.edge();
  const Edge answer = edgeRelation(edge.expr, edge.operand, edge.consumer());
  const std::optional<EdgeRelation> exact = enumerateEdge(edge.expr, edge.operand, edge.consumer());
  const std::string program = chain.fusion.toString();
  const bool reshapes = std::any_of(chain.hops.begin(), chain.hops.end(),
                                    [](const Hop& hop) { return hop.expr->kind() == ExprKind::Reshape; });
  h.regrouped += reshapes || regroupsLoops(edge.producer()) || regroupsLoops(edge.consumer()) ? 1 : 0;
  h.subAxes += hasPartsOfAnAxis(answer.held) ? 1 : 0;
  h.streams += hasStream(edge.producer()) || hasStream(edge.consumer()) ? 1 : 0;
  for (const std::string& place : placesOfAxes(answer.held)) {
    h.places[place]++;
  }
  h.lengths[chain.kinds.size()]++;
  h.kinds[chain.kinds.back()]++;
  const std::string cause = causeOf(edge, answer.reason);
  const Truth truth = truthOf(chain);
  const bool proved = answer.relation != EdgeRelation::Comm;
  const auto text = [&] {
    return fmt::format("{}of {} operand {}: {}: {}", program, edge.consumer()->toString(), edge.operand,
                       name(answer.relation), answer.reason);
  };
  ASSERT_TRUE(answer.relation != EdgeRelation::Aligned || truth.equal) << text();
  ASSERT_TRUE(answer.relation != EdgeRelation::Local || truth.contained) << text();
  ASSERT_TRUE(proved || !answer.reason.empty()) << text();
  const bool either = proved || exact.value_or(EdgeRelation::Comm) != EdgeRelation::Comm;
  ASSERT_TRUE(!either || truth.contained) << text();
  ASSERT_TRUE(exact != EdgeRelation::Aligned || truth.equal) << text();
  h.edges++;
  h.comm += truth.contained ? 0 : 1;
  h.local += truth.contained ? 1 : 0;
  h.properLocal += truth.contained && truth.proper ? 1 : 0;
  h.count(h.digits, proved, truth, cause);
  h.count(h.either, either, truth, cause);
}

// The edges are of all sorts that there are to prove.
void expectVaried(const Histogram& h) {
  EXPECT_GE(h.subAxes, h.edges / 40);
  EXPECT_GE(h.streams, h.edges / 40);
  EXPECT_GE(h.places.at("outer"), h.edges / 6);
  EXPECT_GE(h.places.at("inner"), h.edges / 6);
  EXPECT_GE(h.places.at("middle"), h.edges / 16);
  for (const char* kind : {"reshape", "permute", "slice", "pad", "broadcast", "squeeze", "gather", "select"}) {
    EXPECT_GE(h.kinds.contains(kind) ? h.kinds.at(kind) : 0, h.edges / 100) << kind;
  }
}

TEST(RelationFigures, RandomEdgesAgainstIndexSets) {
  std::mt19937 rng(7);
  const std::vector<DeviceMesh> all = meshes();
  Histogram h;
  for (int k = 0; k < 12000 / kShareOfEdges; k++) {
    const DeviceMesh& mesh = all[rng() % all.size()];
    RandomChain chain;
    makeChain(chain, rng, 1 + static_cast<int>(rng() % 4), false);
    place(chain, rng, mesh, false);
    observe(h, chain);
    if (HasFatalFailure()) {
      return;
    }
  }
  h.print();
  EXPECT_GE(h.edges, 10000 / kShareOfEdges);
  EXPECT_GE(h.comm, h.edges / 5);
  EXPECT_GE(h.properLocal, h.edges / 5);
  EXPECT_GE(h.regrouped, h.edges / 2);
  expectVaried(h);
  EXPECT_GE(static_cast<double>(h.digits.all) / h.local, 0.97);
  EXPECT_GE(static_cast<double>(h.digits.proper) / h.properLocal, 0.97);
  EXPECT_GE(static_cast<double>(h.either.all) / h.local, 0.99);
  EXPECT_GE(static_cast<double>(h.either.proper) / h.properLocal, 0.99);
}

TEST(RelationFigures, RandomUnevenEdgesAgainstIndexSets) {
  std::mt19937 rng(11);
  const std::vector<DeviceMesh> all = meshes();
  Histogram h;
  int ragged = 0;
  Histogram raggedOnly;
  for (int k = 0; k < 12000 / kShareOfEdges; k++) {
    const DeviceMesh& mesh = all[rng() % all.size()];
    RandomChain chain;
    makeChain(chain, rng, 1 + static_cast<int>(rng() % 4), true);
    place(chain, rng, mesh, true);
    const ShardState held = shardState(chain.edge().producer());
    const bool isRagged = !hasOpaqueDim(held) && hasRaggedDim(held);
    ragged += isRagged ? 1 : 0;
    observe(isRagged ? raggedOnly : h, chain);
    if (HasFatalFailure()) {
      return;
    }
  }
  std::printf("uneven parts:\n");
  raggedOnly.print();
  EXPECT_GE(ragged, 2000 / kShareOfEdges);
  expectVaried(raggedOnly);
  EXPECT_GE(static_cast<double>(raggedOnly.digits.proper) / raggedOnly.properLocal, 0.97);
  EXPECT_GE(static_cast<double>(raggedOnly.either.proper) / raggedOnly.properLocal, 0.99);
}

}  // namespace
}  // namespace meshfuse
