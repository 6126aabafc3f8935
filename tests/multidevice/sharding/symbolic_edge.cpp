#include "multidevice/sharding/symbolic_edge.h"

#include <algorithm>

#include "base/error.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/operand_dims.h"
#include "multidevice/sharding/size_facts.h"

namespace meshfuse {

namespace {

constexpr int64_t kMostElements = 700;
constexpr int64_t kMostDevices = 12;

IntExpr bound(const IntExpr& e, const Sizes& sizes) {
  return e.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
    const auto known = sizes.find(symbol);
    return known == sizes.end() ? std::nullopt : std::optional<IntExpr>(known->second);
  });
}

// The loops of `from`, with constants in the place of symbols.
void copyLoops(const TensorView* from, TensorView* to, const Sizes& sizes) {
  if (!from->hasDeviceMesh()) {
    return;
  }
  MeshSizes axes;
  for (int axis = 0; axis < from->getDeviceMesh().numAxes(); axis++) {
    axes[from->getDeviceMesh().axisName(axis)] = bound(from->getDeviceMesh().axisSize(axis), sizes).constValue();
  }
  to->setDeviceMesh(from->getDeviceMesh().bind(axes));
  const auto transforms = from->loopTransforms();
  std::vector<LoopTransform> copies(transforms.begin(), transforms.end());
  for (LoopTransform& t : copies) {
    t.factor = bound(t.factor, sizes);
  }
  to->applyLoopTransforms(copies);
}

// Loops are as long as the axes that own them, and a whole dim of an argument is also where the axis has one device.
bool mayRun(const TensorView* tv) {
  if (!tv->hasDeviceMesh()) {
    return true;
  }
  const std::vector<IterDomain*>& dims = tv->getLogicalDomain();
  return std::ranges::all_of(tv->getLoopDomain(), [&](const IterDomain* id) {
    if (!id->isDeviceDim()) {
      return true;
    }
    const IntExpr size = tv->getDeviceMesh().size(id->parallelType());
    const bool isArgument = tv->isFusionInput() && std::ranges::find(dims, id) != dims.end();
    return id->extent() == size || (size.isConst(1) && !isArgument);
  });
}

// No index is right of a table without entries.
bool indexesNothing(const Hop& hop) {
  return isIndexing(*hop.expr) &&
         hop.expr->input(tableOf(*hop.expr))->asTensor()->shape()[hop.expr->attributes().dim].isConst(0);
}

// Sums of nothing are elements too, but not such as index sets count.
bool sumsNothing(const TensorView* tv) {
  return std::ranges::any_of(tv->getLogicalDomain(),
                             [](const IterDomain* id) { return id->isReduction() && id->extent().isConst(0); });
}

bool isSmall(const TensorView* tv) {
  int64_t elements = 1;
  for (const IterDomain* id : tv->getLogicalDomain()) {
    elements *= id->extent().constValue();
  }
  return elements <= kMostElements;
}

void bindIfFree(TensorView* tv, int k, ParallelType type, Reduced reduced) {
  const IntExpr& extent = tv->axis(k)->extent();
  const bool fits = !extent.isConst() || extent == tv->getDeviceMesh().size(type);
  if (fits && (reduced == Reduced::Bound || !tv->axis(k)->isReduction())) {
    tv->parallelize(k, type);
  }
}

}  // namespace

bool makeSymbolicChain(RandomChain& chain, std::mt19937& rng, int ops) {
  Sizes sample;
  std::vector<IntExpr> head;
  for (const int64_t size : pickShape(rng, false)) {
    head.push_back(size == 1 ? IntExpr(1) : chain.fusion.freshSymbol());
    if (size != 1) {
      sample.emplace(head.back().symbolName(), size);
    }
  }
  try {
    makeChain(chain, rng, ops, head, [&](std::string_view symbol) {
      const auto known = sample.find(symbol);
      return known == sample.end() ? std::nullopt : std::optional(known->second);
    });
  } catch (const UserError&) {
    return false;
  }
  return true;
}

void symbolicLoops(std::mt19937& rng, TensorView* tv, const DeviceMesh& mesh, Reduced reduced) {
  tv->setDeviceMesh(mesh);
  const auto serial = [&]() -> std::optional<int> {
    std::vector<int> loops;
    for (int k = 0; k < tv->nDims(); k++) {
      if (tv->axis(k)->parallelType() == ParallelType::Serial && !tv->axis(k)->extent().isConst(1)) {
        loops.push_back(k);
      }
    }
    return loops.empty() ? std::nullopt : std::optional(loops[rng() % loops.size()]);
  };
  for (int axis = 0; axis < mesh.numAxes(); axis++) {
    if (const auto k = serial(); k && rng() % 3 == 0) {
      const int64_t f = 2 + static_cast<int64_t>(rng() % 3);
      if (rng() % 4 == 0 && *k + 1 < tv->nDims() && tv->axis(*k + 1)->parallelType() == ParallelType::Serial &&
          tv->axis(*k)->isReduction() == tv->axis(*k + 1)->isReduction()) {
        tv->merge(*k);
      } else {
        tv->split(*k, f, rng() % 2 == 0);
      }
    }
    const auto k = serial();
    if (!k || rng() % 5 == 0) {
      continue;
    }
    const IntExpr& size = mesh.axisSize(axis);
    const bool isDim = std::ranges::find(tv->getLogicalDomain(), tv->axis(*k)) != tv->getLogicalDomain().end();
    switch (rng() % 12) {
      case 0:
        if (isDim) {
          bindIfFree(tv, *k, mesh.typeOf(axis), reduced);
          break;
        }
        [[fallthrough]];
      case 1:
      case 2:
        tv->inner_split(*k, size);
        bindIfFree(tv, *k + 1, mesh.typeOf(axis), reduced);
        break;
      case 3:
        tv->inner_split(*k, 1 + static_cast<int64_t>(rng() % 3));
        bindIfFree(tv, *k, mesh.typeOf(axis), reduced);
        break;
      default:
        tv->outer_split(*k, size);
        bindIfFree(tv, *k, mesh.typeOf(axis), reduced);
        break;
    }
  }
}

Sizes pickSizes(std::mt19937& rng, const RandomChain& chain, const DeviceMesh& mesh) {
  static const std::vector<int64_t> kSizes = {4, 8, 12, 6, 24, 2, 0, 1, 3, 5, 7, 9, 10, 16};
  Sizes sizes;
  int64_t devices = 1;
  for (int axis = 0; axis < mesh.numAxes(); axis++) {
    const IntExpr& size = mesh.axisSize(axis);
    if (size.isSymbol()) {
      const int64_t n = 1 + static_cast<int64_t>(rng() % 4);
      sizes.emplace(size.symbolName(), devices * n <= kMostDevices ? n : 1);
      devices *= sizes.find(size.symbolName())->second;
    }
  }
  const Prover facts = factsOfSizes(*chain.edge().expr);
  const size_t kinds = chain.head->shape().size() > 1 ? kSizes.size() - 1 : kSizes.size();
  for (const IntExpr& extent : chain.head->shape()) {
    for (const std::string& symbol : extent.symbols()) {
      const IntExpr value = bound(facts.canonical(extent), sizes);
      sizes.emplace(symbol, value.isConst() ? value.constValue() : kSizes[rng() % kinds]);
    }
  }
  return sizes;
}

std::optional<Truth> truthAt(const RandomChain& chain, const Sizes& sizes) {
  std::vector<IntExpr> head;
  for (const IntExpr& extent : chain.head->shape()) {
    head.push_back(bound(extent, sizes));
  }
  RandomChain at;
  try {
    if (!repeatChain(at, chain, head)) {
      return std::nullopt;
    }
    copyLoops(chain.head, at.head, sizes);
    bool runs = mayRun(at.head) && isSmall(at.head);
    for (size_t k = 0; k < at.hops.size() && runs; k++) {
      runs = isSmall(at.hops[k].consumer()) && !indexesNothing(at.hops[k]);
      if (runs) {
        copyLoops(chain.hops[k].consumer(), at.hops[k].consumer(), sizes);
        runs = mayRun(at.hops[k].consumer());
      }
    }
    runs = runs && !sumsNothing(at.edge().producer());
    return runs ? std::optional(truthOf(at)) : std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace meshfuse
