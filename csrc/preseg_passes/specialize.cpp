#include "preseg_passes/specialize.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/sharding/size_facts.h"

namespace meshfuse {

namespace {

// Meshes that tensors are on, in order of appearance.
std::vector<DeviceMesh> meshesOf(const Fusion& fusion) {
  std::vector<DeviceMesh> meshes;
  for (const TensorView* tv : fusion.tensors()) {
    if (tv->hasDeviceMesh() && !contains(meshes, tv->getDeviceMesh())) {
      meshes.push_back(tv->getDeviceMesh());
    }
  }
  return meshes;
}

// Names of axes without a size, in order.
std::vector<std::string> openAxes(const std::vector<DeviceMesh>& meshes) {
  std::vector<std::string> names;
  for (const DeviceMesh& mesh : meshes) {
    for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
      const std::string& name = mesh.axisName(axis);
      if (!mesh.axisSize(axis).isConst() && !contains(names, name)) {
        names.push_back(name);
      }
    }
  }
  return names;
}

std::string listed(const std::vector<std::string>& names) { return names.empty() ? "none" : joined(names, ", "); }

// Checks that every name is an axis of these meshes and that its size is possible.
void checkSizes(const std::vector<DeviceMesh>& meshes, const MeshSizes& sizes) {
  const std::vector<std::string> open = openAxes(meshes);
  for (const auto& [name, size] : sizes) {
    bool known = contains(open, name);
    for (const DeviceMesh& mesh : meshes) {
      for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
        if (mesh.axisName(axis) == name && mesh.axisSize(axis).isConst()) {
          known = true;
          check(mesh.axisSize(axis).isConst(size),
                "[specialize] axis {} of {} has size {}, got {}; leave it out, or give the mesh a symbolic axis", name,
                mesh.toString(), mesh.axisSize(axis).toString(), size);
        }
      }
    }
    check(known, "[specialize] no mesh has an axis {}; those of symbolic size are: {}", name, listed(open));
    check(size >= 1, "[specialize] axis {} got size {}; a mesh axis has at least 1 device", name, size);
  }
}

// Whether the part of some axis is not a range of whole digits, or an axis owns another number of parts than it has devices. Symbolic
// sizes of inputs that no fact determines are assumed to be divisible by all splits: a part that is not a rectangle under this assumption is
// never one.
bool isNoRectangle(const TensorView* original, const Prover& facts) {
  int64_t size = 1;
  for (const LoopTransform& t : original->loopTransforms()) {
    const bool fits = t.kind == LoopTransform::Kind::Split && t.factor.isConst() && t.factor.constValue() > 0;
    size *= fits && size < (int64_t{1} << 24) ? std::min(t.factor.constValue(), int64_t{1} << 24) : 1;
  }
  Fusion scratch;
  FusionCloner cloner(original->fusion(), scratch, [&](const IntExpr& e) {
    return facts.canonical(e).substitute([&](std::string_view) { return std::optional<IntExpr>(size); });
  });
  const TensorView* tv = cloner.clone(original);
  const auto differs = [&](const BoundLoop& loop) {
    return loop.digits.isOpaque() ||
           (loop.extent.isConst() && !(loop.extent == tv->getDeviceMesh().axisSize(loop.axis)));
  };
  return std::ranges::any_of(boundLoops(tv, tv->getLogicalDomain()), differs) || shardState(tv).hasOpaqueDim();
}

bool isPlacedByUser(const TensorView* tv, const Fusion* asWritten) {
  if (tv->isFusionInput() || asWritten == nullptr) {
    return tv->isFusionInput() || tv->isFusionOutput();
  }
  const Val* written = tv->id() < asWritten->numVals() ? asWritten->val(tv->id()) : nullptr;
  return written != nullptr && written->isTensor() && written->asTensor()->hasDeviceMesh();
}

// Replicates tensors whose sharding was propagated under the assumption that axes divide the dims, if the sizes violate it.
void replicateWhatNoRankHolds(Fusion& fusion, const Fusion* asWritten) {
  const Prover facts = factsOfSizes(fusion);
  for (TensorView* tv : fusion.tensors()) {
    const bool placed = tv->hasDeviceMesh() && !isPlacedByUser(tv, asWritten) && !tv->isPartial();
    if (placed && isNoRectangle(tv, facts)) {
      setShardState(tv, ShardState::replicated(tv->getDeviceMesh(), tv->shape()));
    }
  }
}

}  // namespace

std::vector<std::string> openAxes(const Fusion& fusion) { return openAxes(meshesOf(fusion)); }

std::unique_ptr<Fusion> specialize(const Fusion& fusion, const MeshSizes& sizes, const Fusion* asWritten) {
  const std::vector<DeviceMesh> meshes = meshesOf(fusion);
  checkSizes(meshes, sizes);
  const std::vector<std::string> open = openAxes(meshes);
  const auto missing = filtered(open, [&](const std::string& name) { return !sizes.contains(name); });
  check(missing.empty(), "[specialize] axes without a size: {}; give each a number of devices", listed(missing));

  const auto bound = [&](const IntExpr& e) {
    return e.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
      return contains(open, symbol) ? std::optional<IntExpr>(sizes.at(std::string(symbol))) : std::nullopt;
    });
  };
  auto copy = std::make_unique<Fusion>();
  copy->setPlanner(fusion.planner());
  FusionCloner cloner(fusion, *copy, bound, FusionCloner::Numbers::Kept);
  cloner.rewriteMeshes([&](const DeviceMesh& mesh) { return mesh.bind(sizes); });
  for (const int64_t k : indices(fusion.inputs())) {
    copy->addInput(cloner.clone(fusion.inputs()[k]), fusion.inputNames()[k]);
  }
  for (const Expr* e : fusion.exprs()) {
    cloner.clone(e);
  }
  for (const int64_t k : indices(fusion.outputs())) {
    copy->addOutput(cloner.clone(fusion.outputs()[k]), fusion.outputNames()[k]);
  }
  for (const auto& [out, in] : fusion.aliases()) {
    copy->aliasOutputToInput(cloner.clone(out), cloner.clone(in));
  }
  replicateWhatNoRankHolds(*copy, asWritten);
  return copy;
}

MeshSizes sizesForRanks(const Fusion& fusion, int64_t ranks, const MeshSizes& given) {
  MeshSizes sizes = given;
  const std::vector<DeviceMesh> meshes = meshesOf(fusion);
  checkSizes(meshes, given);
  for (const DeviceMesh& mesh : meshes) {
    const DeviceMesh bound = mesh.bind(sizes);
    const std::vector<std::string> open = openAxes(std::vector<DeviceMesh>{bound});
    if (open.empty()) {
      continue;
    }
    check(open.size() == 1, "[specialize] axes {} of {} have no size; {} ranks determine only one; give all but one",
          listed(open), mesh.toString(), ranks);
    const int64_t known = productOf(std::views::iota(int64_t{0}, bound.numAxes()), [&](int64_t axis) {
      return bound.axisSize(axis).isConst() ? bound.axisSize(axis).constValue() : 1;
    });
    check(
        ranks % known == 0 && ranks > 0,
        "[specialize] {} ranks are no multiple of the {} along the other axes of {}, so axis {} has no size; start {}, "
        "{} or another multiple",
        ranks, known, bound.toString(), open[0], known, 2 * known);
    sizes[open[0]] = ranks / known;
  }
  return sizes;
}

}  // namespace meshfuse
