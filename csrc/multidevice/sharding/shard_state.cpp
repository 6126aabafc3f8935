#include "multidevice/sharding/shard_state.h"

#include <algorithm>

#include "base/error.h"
#include "digits/part_sizes.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"

namespace meshfuse {

namespace {

bool comesFromReduction(const IterDomain* id) {
  const IdExpr* e = id->definition();
  return e != nullptr && std::any_of(e->in.begin(), e->in.end(),
                                     [](const IterDomain* in) { return in->isReduction() || comesFromReduction(in); });
}

// Sums and differences of sums, multiples of them by scalars, their casts, parts and sums, in whatever order their elements are.
bool keepsContributions(const Expr* e) {
  switch (e->kind()) {
    case ExprKind::Set:
    case ExprKind::Cast:
    case ExprKind::Permute:
    case ExprKind::Reshape:
    case ExprKind::Slice:
      return true;
    case ExprKind::Reduce:
      return e->attributes().reduce == ReduceOp::Sum;
    case ExprKind::Point:
      break;
    default:
      return false;
  }
  const size_t tensors = e->tensorInputs().size();
  switch (e->attributes().point) {
    case PointOp::Add:
    case PointOp::Sub:
      return tensors == 2;
    case PointOp::Neg:
    case PointOp::Mul:
      return tensors == 1;
    case PointOp::Div:
      return tensors == 1 && e->input(0)->isTensor();
    default:
      return false;
  }
}

// Whether axes own some dim whole, as they do one that counts contributions. Cheaper than to follow definitions.
bool ownsSomeDimWhole(const TensorView* tv) {
  const std::vector<IterDomain*>& logical = tv->getLogicalDomain();
  std::vector<int64_t> owned(logical.size(), 0);
  for (const IterDomain* id : tv->getLoopDomain()) {
    if (!id->isDeviceDim()) {
      continue;
    }
    const IterDomain* at = id;
    auto dim = std::find(logical.begin(), logical.end(), at);
    while (dim == logical.end()) {
      const IdExpr* e = at->definition();
      if (e == nullptr || e->in.size() != 1) {
        return true;  // merged: not said here
      }
      at = e->in[0];
      dim = std::find(logical.begin(), logical.end(), at);
    }
    if (!id->extent().isConst() || !at->extent().isConst()) {
      return true;
    }
    int64_t& size = owned[static_cast<size_t>(dim - logical.begin())];
    size = std::max<int64_t>(size, 1) * id->extent().constValue();
  }
  for (size_t k = 0; k < logical.size(); k++) {
    if (owned[k] > 0 && !logical[k]->isReduction() && logical[k]->extent().isConst(owned[k])) {
      return true;
    }
  }
  return false;
}

// The stored dim of `tv` that is, unchanged, that stored dim of its definition's first operand; -1 if none is.
int unchangedDim(const TensorView* tv, int dim) {
  const IterDomain* id = tv->getRootDomain()[static_cast<size_t>(dim)];
  const std::vector<IterDomain*> stored = tv->noReductions();
  const auto at = std::find(stored.begin(), stored.end(), id);
  return at == stored.end() ? -1 : static_cast<int>(at - stored.begin());
}

std::string ownerNames(const DigitList& dim, const DeviceMesh& mesh) {
  std::string text;
  for (const Digit& d : dim.digits()) {
    if (d.owner.isDevice()) {
      text += (text.empty() ? "" : ",") + mesh.axisName(d.owner.axis);
    }
  }
  return text;
}

// Owned digits first, from the outside, by whole axes.
bool isOfWholeAxes(const DigitList& dim, const DeviceMesh& mesh) {
  bool local = false;
  for (const Digit& d : dim.digits()) {
    if (d.owner.isDevice() && (local || !(d.size == mesh.axisSize(d.owner.axis)))) {
      return false;
    }
    local |= d.owner.isLocal();
  }
  return true;
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
    if (below != max(1, ceilDiv(dim.extent(), parts))) {
      return false;
    }
  }
  return !dim.hasParts() && isOfWholeAxes(dim, mesh);
}

}  // namespace

ShardState ShardState::replicated(const DeviceMesh& mesh, const std::vector<IntExpr>& shape) {
  ShardState state{mesh, {}, {}};
  for (size_t k = 0; k < shape.size(); k++) {
    state.dims.push_back(DigitList::whole(static_cast<int>(k), shape[k]));
  }
  return state;
}

bool ShardState::owns(int axis) const {
  return std::any_of(dims.begin(), dims.end(), [&](const DigitList& dim) {
    return std::any_of(dim.digits().begin(), dim.digits().end(),
                       [&](const Digit& d) { return d.owner.isDevice() && d.owner.axis == axis; });
  });
}

bool ShardState::isSharded() const {
  return !partial.empty() ||
         std::any_of(dims.begin(), dims.end(), [](const DigitList& dim) { return dim.isOpaque() || dim.hasOwned(); });
}

std::vector<IntExpr> ShardState::localShape() const {
  std::vector<IntExpr> shape;
  for (const DigitList& dim : dims) {
    shape.push_back(dim.localSize());
  }
  return shape;
}

std::string ShardState::dimText(size_t k) const {
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
  std::string text;
  for (size_t k = 0; k < dims.size(); k++) {
    text += (k == 0 ? "" : " ") + dimText(k);
  }
  for (int axis : partial) {
    text += fmt::format("{}P({})", text.empty() ? "" : " ", mesh.axisName(axis));
  }
  if (text.empty()) {
    text = "R";
  }
  return text + " on " + mesh.toString();
}

bool provenEqual(const ShardState& a, const ShardState& b, const Prover& prover) {
  return a.mesh == b.mesh && a.partial == b.partial && a.dims.size() == b.dims.size() &&
         std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(),
                    [&](const DigitList& x, const DigitList& y) { return provenEqual(x, y, prover); });
}

int partialDim(const TensorView* tv) {
  int stored = 0;
  for (const IterDomain* id : tv->getLogicalDomain()) {
    if (id->isReduction()) {
      continue;
    }
    if (comesFromReduction(id)) {
      return stored;
    }
    stored++;
  }
  // What is computed from partial sums alone, contribution by contribution, is partial sums: the first operand speaks for all.
  const Expr* e = tv->definition();
  if (e == nullptr || !keepsContributions(e) || (tv->hasDeviceMesh() && !ownsSomeDimWhole(tv))) {
    return -1;
  }
  const int before = partialDim(e->tensorInputs()[0]);
  return before < 0 ? -1 : unchangedDim(tv, before);
}

std::vector<IterDomain*> stateDims(const TensorView* tv) {
  std::vector<IterDomain*> dims = tv->noReductions();
  const int partial = partialDim(tv);
  if (partial >= 0) {
    dims.erase(dims.begin() + partial);
  }
  return dims;
}

ShardState shardState(const TensorView* tv, const Prover& prover) {
  ShardState state{tv->getDeviceMesh(), {}, {}};
  const std::vector<IterDomain*> dims = stateDims(tv);
  const std::vector<IterDomain*>& logical = tv->getLogicalDomain();
  const int partial = partialDim(tv);
  const IterDomain* partialId = partial >= 0 ? tv->noReductions()[partial] : nullptr;
  std::vector<std::vector<Digit>> owned(logical.size());
  std::vector<bool> opaque(logical.size(), false);
  for (const BoundLoop& loop : boundLoops(tv, logical, prover)) {
    if (loop.digits.isOpaque()) {
      std::fill(opaque.begin(), opaque.end(), true);
      continue;
    }
    for (const Digit& d : loop.digits.digits()) {
      owned[d.dim].push_back(d);
      if (logical[d.dim] == partialId) {
        state.partial.push_back(loop.axis);
      }
    }
  }
  std::sort(state.partial.begin(), state.partial.end());
  state.partial.erase(std::unique(state.partial.begin(), state.partial.end()), state.partial.end());
  for (size_t k = 0; k < logical.size(); k++) {
    if (std::find(dims.begin(), dims.end(), logical[k]) == dims.end()) {
      continue;
    }
    const int position = static_cast<int>(state.dims.size());
    state.dims.push_back(opaque[k] ? DigitList::opaque() : fillLocal(position, logical[k]->extent(), owned[k], prover));
  }
  return state;
}

namespace {

// Of a stored dim that stands in parts of given sizes: all of them together, where their symbols are known.
std::optional<int64_t> extentOfParts(const TensorView* tv, int dim,
                                     const std::function<std::optional<int64_t>(std::string_view)>& known) {
  const IterDomain* stored = stateDims(tv)[static_cast<size_t>(dim)];
  for (const IdExpr* e : transformsBetween(tv->getLogicalDomain(), tv->getLoopDomain())) {
    if (e->kind == IdExprKind::Partition && e->in[0] == stored) {
      const IntExpr extent = sumOf(e->sizes).substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
        const std::optional<int64_t> value = known ? known(symbol) : std::nullopt;
        return value ? std::optional<IntExpr>(*value) : std::nullopt;
      });
      return extent.isConst() ? std::optional(extent.constValue()) : std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<int64_t> globalShape(const TensorView* tv, std::span<const int64_t> local,
                                 const std::function<std::optional<int64_t>(std::string_view)>& known,
                                 std::vector<size_t>* assumed) {
  std::vector<int64_t> shape(local.begin(), local.end());
  if (!tv->hasDeviceMesh()) {
    return shape;
  }
  // How many parts a dim has does not depend on its size: count them at one that every split divides.
  int64_t size = 1;
  for (const LoopTransform& t : tv->loopTransforms()) {
    if (t.kind == LoopTransform::Kind::Split && t.factor.isConst()) {
      size *= t.factor.constValue();
    }
  }
  Fusion scratch;
  FusionCloner cloner(tv->fusion(), scratch, [&](const IntExpr& e) {
    return e.substitute([&](std::string_view) { return std::optional<IntExpr>(size); });
  });
  const ShardState state = shardState(cloner.clone(tv));
  check(state.dims.size() == shape.size(), "[sharding] {} has {} dims, the tensor given {}; give its local part",
        tv->toString(), state.dims.size(), shape.size());
  for (size_t k = 0; k < shape.size(); k++) {
    if (const std::optional<int64_t> extent = extentOfParts(tv, static_cast<int>(k), known)) {
      shape[k] = *extent;
      continue;
    }
    if (state.dims[k].isOpaque() || !state.dims[k].hasOwned()) {
      continue;  // opaque: check-annotations says so
    }
    const IntExpr extent = tv->shape()[k].substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
      const std::optional<int64_t> value = known ? known(symbol) : std::nullopt;
      return value ? std::optional<IntExpr>(*value) : std::nullopt;
    });
    if (extent.isConst()) {
      shape[k] = extent.constValue();
      continue;
    }
    if (assumed != nullptr) {
      assumed->push_back(k);
    }
    for (const Digit& d : state.dims[k].digits()) {
      shape[k] *= d.owner.isDevice() ? d.size.constValue() : 1;
    }
  }
  return shape;
}

}  // namespace meshfuse
