#include "fuzz/program.h"

#include <fmt/core.h>

#include <algorithm>

#include "fuzz/graph.h"
#include "fuzz/random.h"
#include "ops/tensors.h"

namespace meshfuse::fuzz {

namespace {

struct MeshKind {
  int percent;
  std::string name;
  std::vector<int64_t> shape;
  std::vector<int64_t> ids;  // in another order than 0, 1, ..., where given

  int64_t factor() const { return shape == std::vector<int64_t>{3} ? 3 : 1; }  // of most extents
};

const std::vector<MeshKind>& meshKinds() {
  static const std::vector<MeshKind> kinds = {
      {10, "", {}, {}},
      {20, "x2", {2}, {}},
      {5, "x2 [1, 0]", {2}, {1, 0}},
      {9, "x3", {3}, {}},
      {17, "x4", {4}, {}},
      {6, "x4 [2, 0, 3, 1]", {4}, {2, 0, 3, 1}},
      {24, "y2x2", {2, 2}, {}},
      {6, "y2x2 [3, 1, 2, 0]", {2, 2}, {3, 1, 2, 0}},
      {3, "z2y2x2", {2, 2, 2}, {}},
  };
  return kinds;
}

const MeshKind& randomMesh(Random& random) {
  int64_t at = random.below(100);
  for (const MeshKind& kind : meshKinds()) {
    at -= kind.percent;
    if (at < 0) {
      return kind;
    }
  }
  return meshKinds().back();
}

DeviceMesh devicesOf(const MeshKind& kind) {
  return kind.ids.empty() ? DeviceMesh::createForShape(kind.shape) : DeviceMesh(kind.ids, kind.shape);
}

int loopPosition(const TensorView* tv, const IterDomain* id) {
  const std::vector<IterDomain*>& loop = tv->getLoopDomain();
  return static_cast<int>(std::find(loop.begin(), loop.end(), id) - loop.begin());
}

// Parts of any sizes, some of them empty.
void partitionRandomly(TensorView* tv, int at, int64_t extent, int64_t parts, Random& random) {
  std::vector<int64_t> ends{extent};
  for (int64_t k = 1; k < parts; k++) {
    ends.push_back(random.between(0, extent));
  }
  std::sort(ends.begin(), ends.end());
  std::vector<IntExpr> sizes;
  int64_t begin = 0;
  for (int64_t end : ends) {
    sizes.emplace_back(end - begin);
    begin = end;
  }
  tv->partition(at, sizes);
}

// Each axis of the mesh cuts a dim, of uneven programs any, else one it divides, or none; two may cut the same one, unless the first
// does not divide it.
void shardRandomly(TensorView* tv, const DeviceMesh& mesh, const Graph& graph, Random& random, int percent,
                   bool uneven) {
  tv->setDeviceMesh(mesh);
  std::vector<IterDomain*> dims = tv->noReductions();
  std::vector<IterDomain*> left = dims;  // what remains to be cut of each dim
  for (int axis = 0; axis < mesh.numAxes(); axis++) {
    std::vector<size_t> fitting;
    for (size_t k = 0; k < dims.size(); k++) {
      if (left[k] == nullptr || left[k]->isBroadcast()) {
        continue;
      }
      const bool divides = graph.valueOf(left[k]->extent()) % mesh.axisSize(axis).constValue() == 0;
      if (divides || (uneven && left[k] == dims[k])) {
        fitting.push_back(k);
      }
    }
    if (fitting.empty() || !random.chance(percent)) {
      continue;
    }
    size_t k = random.of(fitting);
    int at = loopPosition(tv, left[k]);
    bool cyclic = random.chance(12);
    const bool divides = graph.valueOf(left[k]->extent()) % mesh.axisSize(axis).constValue() == 0;
    if (uneven && left[k] == dims[k] && random.chance(30)) {
      partitionRandomly(tv, at, graph.valueOf(left[k]->extent()), mesh.axisSize(axis).constValue(), random);
      tv->axis(at)->parallelize(mesh.typeOf(axis));
      left[k] = nullptr;
      continue;
    }
    tv->split(at, mesh.axisSize(axis), cyclic);
    tv->axis(cyclic ? at + 1 : at)->parallelize(mesh.typeOf(axis));
    left[k] = cyclic || !divides ? nullptr : tv->axis(at + 1);
  }
}

void shardProgram(Fusion& fusion, const DeviceMesh& mesh, const Graph& graph, Random& random, bool uneven) {
  for (Val* in : fusion.inputs()) {
    if (in->isTensor()) {
      shardRandomly(in->asTensor(), mesh, graph, random, 70, uneven);
    }
  }
  for (TensorView* tv : fusion.tensors()) {
    auto alias =
        std::find_if(fusion.aliases().begin(), fusion.aliases().end(), [&](const auto& a) { return a.first == tv; });
    if (alias != fusion.aliases().end()) {  // the same memory
      tv->setDeviceMesh(mesh);
      tv->applyLoopTransforms(alias->second->asTensor()->loopTransforms());
      continue;
    }
    if (tv->isFusionInput()) {
      continue;
    }
    if (random.chance(tv->isFusionOutput() ? 45 : 8)) {
      shardRandomly(tv, mesh, graph, random, 60, uneven);
    }
  }
}

// Some results lie in another order than row-major. Numbers of its own: the rest of a program does not depend on them.
void orderRandomly(Fusion& fusion, uint64_t seed) {
  Random random(~seed);
  for (TensorView* tv : fusion.tensors()) {
    const bool aliased = std::ranges::any_of(fusion.aliases(), [&](const auto& a) { return a.first == tv; });
    if (tv->isFusionInput() || aliased || !random.chance(tv->isFusionOutput() ? 25 : 5)) {
      continue;
    }
    std::vector<IterDomain*> order = tv->noReductions();
    random.shuffle(order);
    tv->setAllocationDomain(order, std::vector<bool>(order.size(), true));
  }
}

}  // namespace

Program randomProgram(uint64_t seed, std::string_view choices) {
  Random random(seed, choices);
  Program program;
  program.seed = seed;
  program.fusion = std::make_unique<Fusion>();
  FusionGuard guard(program.fusion.get());
  const MeshKind& mesh = randomMesh(random);
  Graph graph(*program.fusion, random, random.chance(15), mesh.factor());
  graph.grow(static_cast<int>(random.between(3, random.chance(30) ? 20 : 10)));
  program.inputs = graph.arguments();
  program.mesh = mesh.name;
  if (!mesh.shape.empty()) {
    DeviceMesh devices = devicesOf(mesh);
    program.ranks = static_cast<int>(devices.numDevices());
    shardProgram(*program.fusion, devices, graph, random, seed % 4 == 3);
  }
  orderRandomly(*program.fusion, seed);
  return program;
}

std::unique_ptr<Fusion> withoutShardings(const Fusion& fusion) {
  std::unique_ptr<Fusion> copy = fusion.clone();
  for (TensorView* tv : copy->tensors(ExprSet::All)) {
    tv->resetLoop();
    tv->setDeviceMesh({});
  }
  return copy;
}

Traits traitsOf(const Fusion& fusion) {
  Traits traits;
  for (const Expr* e : fusion.exprs()) {
    std::string op = std::string(e->opName());
    switch (e->kind()) {
      case ExprKind::Reduce:
        traits.reduces = true;
        op = fmt::format("reduce {}", name(e->attributes().reduce));
        break;
      case ExprKind::Random:
        op = e->attributes().random == RandomKind::Uniform ? "rand" : "randn";
        break;
      case ExprKind::Matmul:
      case ExprKind::Linear:
        traits.contracts = true;
        break;
      case ExprKind::TakeAlongAxis:
      case ExprKind::Gather:
      case ExprKind::IndexSelect:
      case ExprKind::Embedding:
        traits.indexes = true;
        break;
      case ExprKind::Reshape:
      case ExprKind::Permute:
      case ExprKind::Slice:
      case ExprKind::Pad:
      case ExprKind::Cat:
        traits.changesShape = true;
        break;
      default:
        break;
    }
    if (std::find(traits.ops.begin(), traits.ops.end(), op) == traits.ops.end()) {
      traits.ops.push_back(op);
    }
  }
  return traits;
}

}  // namespace meshfuse::fuzz
