#include "multidevice/sharding/shard_state.h"

#include <algorithm>
#include <cstdint>
#include <ranges>
#include <set>

#include "base/error.h"
#include "base/exact.h"
#include "base/ranges.h"
#include "digits/part_sizes.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"

namespace meshfuse {

namespace {

std::string ownerNames(const DigitList& dim, const DeviceMesh& mesh) {
  auto owned = dim.digits() | std::views::filter([](const Digit& d) { return d.owner.isDevice(); });
  return joined(owned, ",", [&](const Digit& d) { return mesh.axisName(d.owner.axis); });
}

// Whether the owned digits are the outermost ones and each is a whole axis.
bool isOfWholeAxes(const DigitList& dim, const DeviceMesh& mesh) {
  return dim.isRange() && std::ranges::all_of(dim.digits(), [&](const Digit& d) {
           return !d.owner.isDevice() || d.size == mesh.axisSize(d.owner.axis);
         });
}

// What an outer split by whole axes gives. Blocks larger than it would make have a text of their own, with their sizes, as have parts
// of axes: states that differ have texts that differ.
bool isBlock(const DigitList& dim, const DeviceMesh& mesh) {
  if (dim.isRagged()) {
    IntExpr parts = 1;
    IntExpr below = 1;
    for (const Digit& d : dim.digits()) {
      parts = d.owner.isDevice() ? parts * d.size : parts;
      below = d.owner.isDevice() ? d.stride : below;
    }
    const IntExpr block = ceilDiv(dim.extent(), parts);
    if (below != (block.isConst() ? max(1, block) : block)) {
      return false;
    }
  }
  return !dim.hasParts() && isOfWholeAxes(dim, mesh);
}

// The sum of the given part sizes of a stored dim; nullopt without such parts.
std::optional<IntExpr> extentOfParts(const TensorView* tv, int64_t dim) {
  const IterDomain* stored = stateDims(tv)[dim];
  for (const IdExpr* e : transformsBetween(tv->getLogicalDomain(), tv->getLoopDomain())) {
    if (e->kind == IdExprKind::Partition && e->in[0] == stored) {
      return sumOf(e->sizes);
    }
  }
  return std::nullopt;
}

}  // namespace

ShardState ShardState::replicated(const DeviceMesh& mesh, const std::vector<IntExpr>& shape) {
  const auto whole = [&](int64_t k) { return DigitList::whole(k, shape[k]); };
  return {mesh, mapped(indices(shape), whole), {}};
}

bool ShardState::owns(int64_t axis) const {
  return std::ranges::any_of(dims, [&](const DigitList& dim) { return meshfuse::owns(dim, axis); });
}

bool ShardState::isSharded() const {
  return !partial.empty() ||
         std::ranges::any_of(dims, [](const DigitList& dim) { return dim.isOpaque() || dim.hasOwned(); });
}

bool ShardState::hasOpaqueDim() const { return std::ranges::any_of(dims, &DigitList::isOpaque); }

bool ShardState::isConstant() const {
  return !mesh.devices().empty() && std::ranges::all_of(dims, [](const DigitList& dim) {
    return !dim.isOpaque() && dim.extent().isConst() && std::ranges::all_of(dim.digits(), [](const Digit& d) {
      return d.size.isConst() && d.stride.isConst() && d.owner.below.isConst();
    });
  });
}

std::vector<int64_t> ShardState::constantShape() const {
  return mapped(dims, [](const DigitList& dim) { return dim.extent().constValue(); });
}

std::string ShardState::dimText(int64_t k) const {
  const DigitList& dim = dims[k];
  if (dim.isOpaque()) {
    return fmt::format("S{}(opaque)", k);
  }
  if (!dim.hasOwned()) {
    return "R";
  }
  if (isBlock(dim, mesh)) {
    return fmt::format("S{}({})", k, ownerNames(dim, mesh));
  }
  std::string text;
  for (const Digit& d : dim.digits()) {
    text += (text.empty() ? "" : " ") + d.size.toString();
    if (d.owner.isDevice()) {
      text += ":" + mesh.axisName(d.owner.axis);
      text += d.owner.below.isConst(1) ? "" : "/" + d.owner.below.toString();
    }
  }
  if (dim.hasParts()) {  // S0(x: [2, 3, 4, 5]), S0(2:x 10: [2, 3, 4, 5])
    return fmt::format("S{}({}: {})", k, isOfWholeAxes(dim, mesh) ? ownerNames(dim, mesh) : text,
                       meshfuse::toString(dim.digits().front().parts));
  }
  return fmt::format("S{}({})", k, text);
}

std::string ShardState::toString() const {
  if (mesh.empty()) {
    return "no mesh";
  }
  std::vector<std::string> texts = mapped(indices(dims), [&](int64_t k) { return dimText(k); });
  append(texts, mapped(partial, [&](int64_t axis) { return fmt::format("P({})", mesh.axisName(axis)); }));
  return (texts.empty() ? "R" : joined(texts, " ")) + " on " + mesh.toString();
}

bool owns(const DigitList& dim, int64_t axis) {
  return std::ranges::any_of(dim.digits(), [&](const Digit& d) { return d.owner.isDevice() && d.owner.axis == axis; });
}

bool provenEqual(const ShardState& a, const ShardState& b, const Prover& prover) {
  const auto areEqual = [&](const DigitList& x, const DigitList& y) { return provenEqual(x, y, prover); };
  return a.mesh == b.mesh && a.partial == b.partial && std::ranges::equal(a.dims, b.dims, areEqual);
}

std::vector<IterDomain*> stateDims(const TensorView* tv) {
  std::vector<IterDomain*> dims = tv->noReductions();
  std::erase(dims, tv->partialDomain());
  return dims;
}

ShardState shardState(const TensorView* tv, const Prover& prover) {
  ShardState state{tv->getDeviceMesh(), {}, {}};
  const std::vector<IterDomain*> dims = stateDims(tv);
  const std::vector<IterDomain*>& logical = tv->getLogicalDomain();
  const IterDomain* partial = tv->partialDomain();
  std::vector<std::vector<Digit>> owned(logical.size());
  std::set<int64_t> axes;  // of the partial dim
  bool opaque = false;
  for (const BoundLoop& loop : boundLoops(tv, logical, prover)) {
    opaque |= loop.digits.isOpaque();
    for (const Digit& d : loop.digits.digits()) {
      owned[d.dim].push_back(d);
      if (logical[d.dim] == partial) {
        axes.insert(loop.axis);
      }
    }
  }
  state.partial.assign(axes.begin(), axes.end());
  for (int64_t k = 0; k < std::ssize(logical); k++) {
    if (contains(dims, logical[k])) {
      const int64_t position = std::ssize(state.dims);
      state.dims.push_back(opaque ? DigitList::opaque() : fillLocal(position, logical[k]->extent(), owned[k], prover));
    }
  }
  return state;
}

std::vector<int64_t> globalShape(const TensorView* tv, std::span<const int64_t> local,
                                 const std::function<std::optional<int64_t>(std::string_view)>& known,
                                 std::vector<int64_t>* assumed) {
  std::vector<int64_t> shape(local.begin(), local.end());
  if (!tv->hasDeviceMesh()) {
    return shape;
  }
  // The number of parts of a dim does not depend on its size, so they are counted for a size that every split divides.
  int64_t size = 1;
  for (const LoopTransform& t : tv->loopTransforms()) {
    if (t.kind == LoopTransform::Kind::Split && t.factor.isConst()) {
      size = mulExact(size, t.factor.constValue());
    }
  }
  Fusion scratch;
  FusionCloner cloner(tv->fusion(), scratch, [&](const IntExpr& e) {
    return e.substitute([&](std::string_view) { return std::optional<IntExpr>(size); });
  });
  const ShardState state = shardState(cloner.clone(tv));
  check(state.dims.size() == shape.size(), "[sharding] {} has {} dims, the tensor given {}; give its local part",
        tv->toString(), state.dims.size(), shape.size());
  const auto valueOf = [&](const IntExpr& e) {
    return known ? e.substitute([&](std::string_view symbol) { return std::optional<IntExpr>(known(symbol)); }) : e;
  };
  for (int64_t k = 0; k < std::ssize(shape); k++) {
    const std::optional<IntExpr> ofParts = extentOfParts(tv, k);
    if (ofParts && valueOf(*ofParts).isConst()) {
      shape[k] = valueOf(*ofParts).constValue();
      continue;
    }
    if (state.dims[k].isOpaque() || !state.dims[k].hasOwned()) {
      continue;  // opaque: check-annotations reports it
    }
    const IntExpr extent = valueOf(tv->shape()[k]);
    if (extent.isConst()) {
      shape[k] = extent.constValue();
      continue;
    }
    if (assumed != nullptr) {
      assumed->push_back(k);
    }
    for (const Digit& d : state.dims[k].digits()) {
      shape[k] = mulExact(shape[k], d.owner.isDevice() ? d.size.constValue() : 1);
    }
  }
  return shape;
}

}  // namespace meshfuse
