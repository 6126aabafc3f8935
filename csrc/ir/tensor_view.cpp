#include "ir/tensor_view.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/error.h"
#include "base/limits.h"
#include "base/not_constant.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

std::vector<IterDomain*> TensorView::getAllocationDomain() const {
  return allocation_.empty() ? noReductions() : allocation_;
}

std::vector<int64_t> TensorView::memoryOrder() const {
  const std::vector<IterDomain*> stored = noReductions();
  return mapped<int64_t>(getAllocationDomain(), [&](const IterDomain* id) { return positionIn(stored, id); });
}

std::vector<IterDomain*> TensorView::noReductions() const {
  std::vector<IterDomain*> dims;
  dims.reserve(logical_.size());
  std::ranges::remove_copy_if(logical_, std::back_inserter(dims), &IterDomain::isReduction);
  return dims;
}

std::vector<IntExpr> TensorView::shape() const {
  std::vector<IntExpr> shape;
  shape.reserve(logical_.size());  // each call with a new shape asks each input
  for (const IterDomain* id : logical_) {
    if (!id->isReduction()) {
      shape.push_back(id->extent());
    }
  }
  return shape;
}

std::vector<int64_t> TensorView::constantShape() const {
  return mapped(shape(), [this](const IntExpr& extent) {
    if (!extent.isConst()) {
      throw NotConstantError(
          fmt::format("[constantShape] {} has the extent {}, which is not a constant; bind the sizes first", toString(),
                      extent.toString()));
    }
    return extent.constValue();
  });
}

int64_t TensorView::numel() const { return productOf(constantShape()); }

bool TensorView::hasReduction() const { return std::ranges::any_of(logical_, &IterDomain::isReduction); }

bool TensorView::hasBroadcast() const { return std::ranges::any_of(logical_, &IterDomain::isBroadcast); }

IterDomain* TensorView::partialDomain() const {
  const auto at = std::ranges::find_if(logical_, &IterDomain::isPartial);
  return at == logical_.end() ? nullptr : *at;
}

int64_t TensorView::partialDim() const { return isPartial() ? positionIn(noReductions(), partialDomain()) : -1; }

int64_t TensorView::wrapAxis(int64_t axis, const char* what) const {
  int64_t n = nDims();
  if (axis < -n || axis >= n) [[unlikely]] {  // the text is made where it is needed
    throwUserError(fmt::format("[{}] axis {} of {}; expected {} to {}", what, axis, toString(), -n, n - 1));
  }
  return axis < 0 ? axis + n : axis;
}

TensorView* TensorView::split(int64_t axis, const IntExpr& factor, bool innerSplit) {
  axis = wrapAxis(axis, "split");
  IterDomain* in = loop_[axis];
  if (factor.upper() && *factor.upper() < 1) [[unlikely]] {
    throwUserError(fmt::format("[split] got factor {} for axis {} of {}; expected at least 1", factor.toString(), axis,
                               toString()));
  }
  if (in->parallelType() != ParallelType::Serial) [[unlikely]] {
    throwUserError(fmt::format("[split] axis {} of {} is bound to {}; split before parallelize", axis, toString(),
                               in->parallelType().toString()));
  }
  auto [outer, inner] = fusion_->idSplit(in, factor, innerSplit);
  loop_[axis] = outer;
  loop_.insert(loop_.begin() + axis + 1, inner);
  transforms_.push_back({.kind = LoopTransform::Kind::Split, .axis = axis, .factor = factor, .innerSplit = innerSplit});
  return this;
}

TensorView* TensorView::partition(int64_t axis, const std::vector<IntExpr>& sizes) {
  axis = wrapAxis(axis, "partition");
  IterDomain* in = loop_[axis];
  const bool isWhole = contains(logical_, in);
  if (!isWhole || in->parallelType() != ParallelType::Serial) [[unlikely]] {
    throwUserError(fmt::format("[partition] axis {} of {} is {}; partition a whole dim, then split and parallelize",
                               axis, toString(),
                               isWhole ? "bound to " + in->parallelType().toString() : "a part of a dim"));
  }
  auto [outer, inner] = fusion_->idPartition(in, sizes);
  loop_[axis] = outer;
  loop_.insert(loop_.begin() + axis + 1, inner);
  transforms_.push_back({.kind = LoopTransform::Kind::Partition, .axis = axis, .sizes = sizes});
  return this;
}

TensorView* TensorView::partition(int64_t axis, const TensorView* sizes) {
  if (sizes == nullptr) {
    return partition(axis, std::vector<IntExpr>());  // `{}` is no tensor: no parts, which is refused
  }
  const std::vector<IntExpr> shape = sizes->shape();
  const int64_t count = shape.size() == 1 && shape[0].isConst() ? shape[0].constValue() : 1;  // else element() refuses
  check(count <= kMostDevices, "[partition] axis {} of {} got sizes of {} parts, expected at most {}", axis, toString(),
        count, kMostDevices);
  std::vector<IntExpr> parts;
  for (int64_t k = 0; k < count; k++) {
    parts.push_back(sizes->element(k));
  }
  return partition(axis, std::move(parts));
}

IntExpr TensorView::element(int64_t k) const {
  const std::vector<IntExpr> dims = shape();
  const bool isList = dims.size() == 1 && dims[0].isConst() && dtype() == DataType::Int && definition() == nullptr;
  if (!isList || k < 0 || k >= dims[0].constValue()) [[unlikely]] {
    throwUserError(
        fmt::format("[element] got element {} of the {} tensor {}; expected an element of an Int input with one dim of "
                    "constant size",
                    k, name(dtype()), toString()));
  }
  return IntExpr::symbol(fmt::format("{}.{}", Val::toString(), k));
}

TensorView* TensorView::merge(int64_t outer, int64_t inner) {
  outer = wrapAxis(outer, "merge");
  inner = wrapAxis(inner, "merge");
  check(outer != inner, "[merge] got axis {} of {} twice; give two different axes", outer, toString());
  for (int64_t axis : {outer, inner}) {
    check(loop_[axis]->parallelType() == ParallelType::Serial,
          "[merge] axis {} of {} is bound to {}; merge before parallelize", axis, toString(),
          loop_[axis]->parallelType().toString());
  }
  check(loop_[outer]->isReduction() == loop_[inner]->isReduction(),
        "[merge] axes {} and {} of {}: one is a reduction, the other is not; merge dims of one kind", outer, inner,
        toString());
  if (inner != outer + 1) {  // recorded as a reorder and a merge of neighbours
    int64_t target = inner < outer ? outer : outer + 1;
    reorder({{inner, target}});
    outer = target - 1;
  }
  loop_[outer] = fusion_->idMerge(loop_[outer], loop_[outer + 1]);
  loop_.erase(loop_.begin() + outer + 1);
  transforms_.push_back({.kind = LoopTransform::Kind::Merge, .axis = outer});
  return this;
}

TensorView* TensorView::flatten(int64_t from, int64_t to) {
  if (loop_.empty()) {
    return this;
  }
  from = wrapAxis(from, "flatten");
  to = wrapAxis(to, "flatten");
  check(from <= to, "[flatten] got axes {} to {} of {}; expected from <= to", from, to, toString());
  for (int64_t k = from; k < to; k++) {
    merge(from);
  }
  return this;
}

TensorView* TensorView::reorder(const std::vector<std::pair<int64_t, int64_t>>& oldToNew) {
  int64_t n = nDims();
  std::vector<int64_t> order(n, -1);
  std::vector<bool> moved(n, false);
  for (auto [from, to] : oldToNew) {
    from = wrapAxis(from, "reorder");
    to = wrapAxis(to, "reorder");
    check(!moved[from] && order[to] < 0,
          "[reorder] {} to {} in {}: an axis or a position is listed twice; list each once", from, to, toString());
    moved[from] = true;
    order[to] = from;
  }
  int64_t next = 0;
  for (int64_t& old : order) {  // the others keep their order
    if (old < 0) {
      while (moved[next]) {
        next++;
      }
      old = next++;
    }
  }
  std::vector<IterDomain*> dims = mapped(order, [this](int64_t old) { return loop_[old]; });
  if (dims != loop_) {
    loop_ = std::move(dims);
    transforms_.push_back({.kind = LoopTransform::Kind::Reorder, .order = std::move(order)});
  }
  return this;
}

IterDomain* TensorView::axis(int64_t position) const { return loop_[wrapAxis(position, "axis")]; }

TensorView* TensorView::parallelize(int64_t axis, ParallelType type) {
  this->axis(axis)->parallelize(type);
  return this;
}

void TensorView::resetLoop() {
  for (const auto* dims : {&loop_, &logical_}) {
    for (IterDomain* d : *dims) {
      d->parallelType_ = ParallelType::Serial;
      d->replaced_ = false;
    }
  }
  loop_ = logical_;
  transforms_.clear();
}

std::vector<LoopTransform> TensorView::loopTransforms() const {
  std::vector<LoopTransform> all = transforms_;
  for (int64_t k = 0; k < nDims(); k++) {
    if (loop_[k]->parallelType() != ParallelType::Serial) {
      all.push_back({.kind = LoopTransform::Kind::Parallelize, .axis = k, .type = loop_[k]->parallelType()});
    }
  }
  return all;
}

void TensorView::applyLoopTransforms(const std::vector<LoopTransform>& transforms) {
  for (const LoopTransform& t : transforms) {
    switch (t.kind) {
      case LoopTransform::Kind::Split:
        split(t.axis, t.factor, t.innerSplit);
        break;
      case LoopTransform::Kind::Partition:
        partition(t.axis, t.sizes);
        break;
      case LoopTransform::Kind::Merge:
        merge(t.axis);
        break;
      case LoopTransform::Kind::Parallelize:
        parallelize(t.axis, t.type);
        break;
      case LoopTransform::Kind::Reorder: {
        std::vector<std::pair<int64_t, int64_t>> oldToNew;
        for (int64_t k = 0; k < std::ssize(t.order); k++) {
          oldToNew.emplace_back(t.order[k], k);
        }
        check(t.order.size() == loop_.size(),
              "[reorder] got an order of {} axes for {}, expected each of its {} axes once", t.order.size(), toString(),
              loop_.size());
        reorder(oldToNew);
        break;
      }
    }
  }
}

namespace {

// A loop of a dim: the dim, and the way to the loop through splits, 0 to an outer and 1 to an inner part. A nullptr dim: it is merged.
struct LoopOfDim {
  IterDomain* dim = nullptr;
  std::string way;
};

LoopOfDim loopOfDim(IterDomain* loop, const std::vector<IterDomain*>& logical) {
  LoopOfDim found{.dim = loop};
  while (!contains(logical, found.dim)) {
    const IdExpr* def = found.dim->definition();
    if (def == nullptr || def->in.size() != 1) {
      return {};
    }
    found.way.insert(0, 1, def->out[0] == found.dim ? '0' : '1');
    found.dim = def->in[0];
  }
  return found;
}

}  // namespace

// The logical dims in the order of their loops.
void TensorView::dimsOfLoops(std::vector<IterDomain*>& ids, std::vector<bool>& contiguity) const {
  std::vector<IterDomain*> dims;
  std::vector<bool> flags;
  std::string before;
  for (const int64_t k : indices(ids)) {
    const LoopOfDim loop = loopOfDim(ids[k], logical_);
    check(loop.dim != nullptr, "[setAllocationDomain] loop {} of {} is a merge of several dims; give the logical dims",
          ids[k]->toString(), toString());
    const auto isOfThisDim = [&](int64_t other) { return loopOfDim(ids[other], logical_).dim == loop.dim; };
    const bool isBound = ids[k]->parallelType().isDevice();
    if (loop.dim->isReduction() || (isBound && std::ranges::count_if(indices(ids), isOfThisDim) > 1)) {
      continue;  // a dim that is bound whole to a mesh axis keeps its place
    }
    if (dims.empty() || dims.back() != loop.dim) {
      check(!contains(dims, loop.dim),
            "[setAllocationDomain] the loops of dim {} of {} are apart in memory; expected them one after the other",
            loop.dim->toString(), toString());
      dims.push_back(loop.dim);
      flags.push_back(isBound || contiguity[k]);
    } else {
      check(before < loop.way && flags.back(),
            "[setAllocationDomain] loop {} of {} is not the contiguous inner part of the loop before it; expected the "
            "loops of a dim from the outer to the inner one, contiguous",
            ids[k]->toString(), toString());
      flags.back() = contiguity[k];
    }
    before = loop.way;
  }
  ids = std::move(dims);
  contiguity = std::move(flags);
}

void TensorView::setAllocationDomain(std::vector<IterDomain*> ids, std::vector<bool> contiguity) {
  std::vector<IterDomain*> stored = noReductions();
  if (ids.size() == contiguity.size() && !std::ranges::is_permutation(ids, stored) &&
      std::ranges::is_permutation(ids, loop_)) {
    dimsOfLoops(ids, contiguity);
  }
  if (!std::ranges::is_permutation(ids, stored)) {
    throwUserError(fmt::format(
        "[setAllocationDomain] got {} dims for {}; expected each of its {} logical dims once, without reductions, or "
        "all of its loops",
        ids.size(), toString(), stored.size()));
  }
  if (contiguity.size() != ids.size()) {
    throwUserError(fmt::format("[setAllocationDomain] got {} contiguity flags for {} dims of {}; give one for each dim",
                               contiguity.size(), ids.size(), toString()));
  }
  allocation_ = ids == stored ? std::vector<IterDomain*>() : std::move(ids);
  contiguity_ = std::move(contiguity);
}

void TensorView::setContiguity(std::vector<bool> contiguity) {
  check(contiguity.size() == noReductions().size(),
        "[setContiguity] got {} flags for {}, which stores {} dims; give one for each dim", contiguity.size(),
        toString(), noReductions().size());
  contiguity_ = std::move(contiguity);
}

void TensorView::copyAllocation(const TensorView& from) {
  const std::vector<int64_t> theirs = from.memoryOrder();
  const std::vector<IterDomain*> stored = noReductions();
  if (theirs.size() != stored.size()) {
    throwInternalError(fmt::format("[copyAllocation] {} stores {} dims, {} stores {}", from.toString(), theirs.size(),
                                   toString(), stored.size()));
  }
  setAllocationDomain(mapped(theirs, [&](int64_t k) { return stored[k]; }), from.contiguity());
}

std::string TensorView::toString() const {
  return fmt::format("{}[{}]", Val::toString(), joined(loop_, ", ", &IterDomain::toString));
}

std::vector<IterDomain*> allIds(const TensorView& tensor) {
  std::map<int64_t, IterDomain*> found;
  std::vector<IterDomain*> open;
  for (const auto* domain : {&tensor.getRootDomain(), &tensor.getLogicalDomain(), &tensor.getLoopDomain()}) {
    append(open, *domain);
  }
  while (!open.empty()) {
    IterDomain* id = open.back();
    open.pop_back();
    if (found.emplace(id->id(), id).second && id->definition() != nullptr) {
      append(open, id->definition()->in);
      append(open, id->definition()->out);
    }
  }
  return mapped(found, [](const auto& entry) { return entry.second; });
}

}  // namespace meshfuse
