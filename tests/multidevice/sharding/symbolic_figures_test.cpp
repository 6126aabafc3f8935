// How much the edge relation proves where sizes are symbols: its answers against the sets of elements that ranks need and hold at
// several sizes, such that axes divide and such that they do not.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/relation.h"
#include "multidevice/sharding/size_facts.h"
#include "multidevice/sharding/symbolic_edge.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

// The result takes what forward propagation gives.
void propagateWithFacts(const Hop& hop, const DeviceMesh& mesh) {
  const Prover facts = factsOfSizes(*hop.expr);
  ShardState state = ShardState::replicated(mesh, hop.consumer()->shape());
  propagateForward(hop.expr, hop.operand, shardState(hop.producer(), facts), hop.consumer(), state, facts);
  setShardState(hop.consumer(), state, facts);
}

// The mesh of a chain, and another mesh for its last tensor: at random, or the same loops as on the first mesh, renamed.
struct MeshPair {
  DeviceMesh of;
  DeviceMesh last;
  std::function<void(TensorView*, const MeshPair&)> rename;
};

// The loops of axis k of the first mesh go to these axes of the last one, from the outermost.
auto axesRenamed(std::vector<std::vector<const char*>> names) {
  return [names = std::move(names)](TensorView* tv, const MeshPair& meshes) {
    std::vector<std::pair<int64_t, int64_t>> owned;  // loop, axis
    for (int64_t k = tv->nDims() - 1; k >= 0; k--) {
      if (tv->axis(k)->isDeviceDim()) {
        owned.emplace_back(k, meshes.of.axisOf(tv->axis(k)->parallelType()));
        tv->parallelize(k, ParallelType::Serial);
      }
    }
    tv->setDeviceMesh(meshes.last);
    for (auto [loop, axis] : owned) {
      for (size_t i = 0; i < names[axis].size(); i++, loop++) {
        if (i + 1 < names[axis].size()) {
          tv->inner_split(loop, meshes.last.size(names[axis][i + 1]));
        }
        tv->parallelize(loop, meshes.last.axis(names[axis][i]));
      }
    }
  };
}

std::vector<MeshPair> meshPairs() {
  const DeviceMesh line = DeviceMesh::create({{"x", 4}});
  const DeviceMesh grid = DeviceMesh::create({{"x", 2}, {"y", 3}});
  return {{line, DeviceMesh::create({{"y", 4}}), axesRenamed({{"y"}})},
          {line, DeviceMesh::create({{"a", 2}, {"b", 2}}), axesRenamed({{"a", "b"}})},
          {line, DeviceMesh::create({{"b", 2}, {"a", 2}}, {0, 2, 1, 3}), axesRenamed({{"a", "b"}})},
          {grid, DeviceMesh::create({{"b", 3}, {"a", 2}}, {0, 3, 1, 4, 2, 5}), axesRenamed({{"a"}, {"b"}})},
          {grid, DeviceMesh::create({{"z", 2}}, {1, 4}), axesRenamed({{"z"}, {}})}};
}

void placeSymbolically(RandomChain& chain, std::mt19937& rng, const DeviceMesh& mesh) {
  symbolicLoops(rng, chain.head, mesh);
  for (size_t k = 0; k < chain.hops.size(); k++) {
    const bool last = k + 1 == chain.hops.size();
    if (rng() % (last ? 3 : 8) == 0) {
      symbolicLoops(rng, chain.hops[k].consumer(), mesh, last ? Reduced::Bound : Reduced::Free);
    } else {
      propagateWithFacts(chain.hops[k], mesh);
    }
  }
}

struct EdgeFigures {
  int edges = 0;
  int comm = 0;
  int local = 0;        // nobody lacks anything at any size that was tried
  int properLocal = 0;  // and some rank holds a proper part
  int uneven = 0;       // of those: the operand is ragged or opaque
  int proved = 0;
  int properProved = 0;
  int aligned = 0;
  int alignedProved = 0;
  std::map<std::string, int> kinds;
  std::map<std::string, int> misses;

  void print(const char* what) const {
    std::printf(
        "%s: %d edges: %d comm, %d local or aligned at all sizes, %d of them with a proper part on some rank, %d not "
        "known to be even\n",
        what, edges, comm, local, properLocal, uneven);
    for (const auto& [kind, n] : kinds) {
      std::printf("  %5d %s\n", n, kind.c_str());
    }
    std::printf("proved: %.4f of all, %.4f of those with a proper part; aligned: %.4f\n",
                static_cast<double>(proved) / local, static_cast<double>(properProved) / properLocal,
                static_cast<double>(alignedProved) / aligned);
    for (const auto& [cause, n] : misses) {
      std::printf("  missed %4d: %s\n", n, cause.c_str());
    }
  }
};

void observeAtSizes(EdgeFigures& f, const RandomChain& chain, std::mt19937& rng, const DeviceMesh& mesh) {
  constexpr int kTries = 80;
  constexpr int kSizesWanted = 6;
  constexpr int kSizesUnproved = 25;  // what seems to be true of a few sizes is looked for at more
  const Hop& edge = chain.edge();
  const Edge answer = edgeRelation(edge.expr, edge.operand, edge.consumer());
  const bool proved = answer.relation != EdgeRelation::Comm;
  Truth all;
  int runs = 0;
  for (int t = 0; t < kTries && runs < (proved ? kSizesWanted : kSizesUnproved) && (proved || all.contained); t++) {
    const Sizes sizes = pickSizes(rng, chain, mesh);
    const std::optional<Truth> truth = truthAt(chain, sizes);
    if (!truth) {
      continue;
    }
    runs++;
    all.equal = all.equal && truth->equal;
    all.contained = all.contained && truth->contained;
    all.proper = all.proper || truth->proper;
    const auto text = [&] {
      std::string at;
      for (const auto& [symbol, size] : sizes) {
        at += fmt::format("{} = {} ", symbol, size);
      }
      return fmt::format("{}of {} operand {} at {}: {}: {}: {}; needed {}", chain.fusion.toString(),
                         edge.consumer()->toString(), edge.operand, at, name(answer.relation), answer.reason,
                         answer.held.toString(), answer.needed ? answer.needed->toString() : "");
    };
    ASSERT_TRUE(answer.relation != EdgeRelation::Aligned || truth->equal) << text();
    ASSERT_TRUE(answer.relation != EdgeRelation::Local || truth->contained) << text();
  }
  if (all.contained && runs < 3) {
    return;
  }
  f.edges++;
  f.kinds[chain.kinds.back()]++;
  f.comm += all.contained ? 0 : 1;
  if (!all.contained) {
    return;
  }
  const bool uneven =
      std::ranges::any_of(answer.held.dims, [](const DigitList& dim) { return dim.isOpaque() || dim.isRagged(); });
  f.local++;
  f.properLocal += all.proper ? 1 : 0;
  f.uneven += all.proper && uneven ? 1 : 0;
  f.proved += proved ? 1 : 0;
  f.properProved += proved && all.proper ? 1 : 0;
  f.aligned += all.equal ? 1 : 0;
  f.alignedProved += all.equal && answer.relation == EdgeRelation::Aligned ? 1 : 0;
  if (!proved) {
    f.misses[causeOf(edge, answer.reason)]++;
  }
}

void expectProved(const std::vector<MeshPair>& meshes, uint32_t seed, int chains, const char* what) {
  std::mt19937 rng(seed);
  EdgeFigures f;
  int contradictory = 0;
  for (int k = 0; k < chains / kShareOfEdges; k++) {
    const MeshPair& pair = meshes[rng() % meshes.size()];
    RandomChain chain;
    if (!makeSymbolicChain(chain, rng, 1 + static_cast<int>(rng() % 4))) {
      continue;
    }
    try {
      placeSymbolically(chain, rng, pair.of);
      TensorView* last = chain.edge().consumer();
      if (!pair.last.empty() && rng() % 8 == 0) {
        last->resetLoop();
        symbolicLoops(rng, last, pair.last);
      } else if (!pair.last.empty()) {
        pair.rename(last, pair);
      }
      observeAtSizes(f, chain, rng, pair.of);
    } catch (const UserError& e) {
      EXPECT_NE(std::string_view(e.what()).find("expected equal sizes"), std::string_view::npos) << e.what();
      contradictory++;  // no sizes fit the loops that were drawn
    }
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
  f.print(what);
  std::printf("%d chains fit no sizes\n", contradictory);
  EXPECT_GE(f.edges, chains / kShareOfEdges / 2);
  EXPECT_GE(f.comm, f.edges / 5);
  EXPECT_GE(f.properLocal, f.edges / 6);
  EXPECT_GE(f.uneven, f.properLocal / 2);
  EXPECT_GE(static_cast<double>(f.proved) / f.local, 0.97);
  EXPECT_GE(static_cast<double>(f.properProved) / f.properLocal, 0.97);
  EXPECT_GE(static_cast<double>(f.alignedProved) / f.aligned, 0.97);
}

std::vector<MeshPair> alone(const std::vector<DeviceMesh>& meshes) {
  return mapped(meshes, [](const DeviceMesh& mesh) { return MeshPair{mesh, {}, {}}; });
}

TEST(SymbolicFigures, DimsOfAnySize) {
  expectProved(alone({DeviceMesh::create({{"x", 2}}), DeviceMesh::create({{"x", 4}}), DeviceMesh::create({{"x", 3}}),
                      DeviceMesh::create({{"x", 2}, {"y", 2}}), DeviceMesh::create({{"x", 2}, {"y", 4}}),
                      DeviceMesh::create({{"x", 3}, {"y", 2}})}),
               17, 6000, "sizes of dims are symbols");
}

TEST(SymbolicFigures, DimsAndAxesOfAnySize) {
  expectProved(
      alone({DeviceMesh::create({{"x"}}), DeviceMesh::create({{"x"}, {"y"}}), DeviceMesh::create({{"x"}, {"y", 2}})}),
      19, 6000, "sizes of dims and of axes are symbols");
}

TEST(SymbolicFigures, DimsOfAnySizeOnTwoMeshes) {
  expectProved(meshPairs(), 23, 6000, "sizes of dims are symbols, two meshes of constant sizes");
}

}  // namespace
}  // namespace meshfuse
