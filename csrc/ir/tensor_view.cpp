#include "ir/tensor_view.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "ir/fusion.h"

namespace meshfuse {

std::vector<IterDomain*> TensorView::getAllocationDomain() const {
  return allocation_.empty() ? noReductions() : allocation_;
}

std::vector<int> TensorView::memoryOrder() const {
  const std::vector<IterDomain*> stored = noReductions();
  std::vector<int> order;
  for (const IterDomain* id : getAllocationDomain()) {
    order.push_back(static_cast<int>(std::find(stored.begin(), stored.end(), id) - stored.begin()));
  }
  return order;
}

std::vector<IterDomain*> TensorView::noReductions() const {
  std::vector<IterDomain*> dims;
  dims.reserve(logical_.size());
  std::copy_if(logical_.begin(), logical_.end(), std::back_inserter(dims),
               [](IterDomain* d) { return !d->isReduction(); });
  return dims;
}

std::vector<IntExpr> TensorView::shape() const {
  std::vector<IntExpr> extents;
  for (IterDomain* d : logical_) {
    if (!d->isReduction()) {
      extents.push_back(d->extent());
    }
  }
  return extents;
}

std::vector<int64_t> TensorView::constantShape() const {
  std::vector<int64_t> sizes;
  for (const IntExpr& extent : shape()) {
    invariant(extent.isConst(), "[constantShape] {} has the extent {}, which is not a constant; bind the sizes first",
              toString(), extent.toString());
    sizes.push_back(extent.constValue());
  }
  return sizes;
}

int64_t TensorView::numel() const {
  int64_t count = 1;
  for (int64_t size : constantShape()) {
    count *= size;
  }
  return count;
}

bool TensorView::hasReduction() const {
  return std::any_of(logical_.begin(), logical_.end(), [](IterDomain* d) { return d->isReduction(); });
}

bool TensorView::hasBroadcast() const {
  return std::any_of(logical_.begin(), logical_.end(), [](IterDomain* d) { return d->isBroadcast(); });
}

IterDomain* TensorView::partialDomain() const {
  const auto at = std::find_if(logical_.begin(), logical_.end(), [](IterDomain* d) { return d->isPartial(); });
  return at == logical_.end() ? nullptr : *at;
}

int TensorView::partialDim() const {
  const IterDomain* partial = partialDomain();
  const std::vector<IterDomain*> stored = partial == nullptr ? std::vector<IterDomain*>() : noReductions();
  const auto at = std::find(stored.begin(), stored.end(), partial);
  return at == stored.end() ? -1 : static_cast<int>(at - stored.begin());
}

int TensorView::wrapAxis(int axis, const char* what) const {
  int n = nDims();
  if (axis < -n || axis >= n) [[unlikely]] {  // the text is made where it is needed
    throwUserError(fmt::format("[{}] axis {} of {}; expected {} to {}", what, axis, toString(), -n, n - 1));
  }
  return axis < 0 ? axis + n : axis;
}

TensorView* TensorView::split(int axis, const IntExpr& factor, bool innerSplit) {
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

TensorView* TensorView::partition(int axis, const std::vector<IntExpr>& sizes) {
  axis = wrapAxis(axis, "partition");
  IterDomain* in = loop_[axis];
  const bool isWhole = std::find(logical_.begin(), logical_.end(), in) != logical_.end();
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

TensorView* TensorView::partition(int axis, const TensorView* sizes) {
  std::vector<IntExpr> all;
  if (sizes == nullptr) {
    return partition(axis, all);  // `{}` is no tensor: no parts, which is refused
  }
  const std::vector<IntExpr> shape = sizes->shape();
  const int64_t count = shape.size() == 1 && shape[0].isConst() ? shape[0].constValue() : 1;  // else element() refuses
  for (int64_t k = 0; k < count; k++) {
    all.push_back(sizes->element(k));
  }
  return partition(axis, all);
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

TensorView* TensorView::merge(int outer, int inner) {
  outer = wrapAxis(outer, "merge");
  inner = wrapAxis(inner, "merge");
  check(outer != inner, "[merge] got axis {} of {} twice; give two different axes", outer, toString());
  for (int axis : {outer, inner}) {
    check(loop_[axis]->parallelType() == ParallelType::Serial,
          "[merge] axis {} of {} is bound to {}; merge before parallelize", axis, toString(),
          loop_[axis]->parallelType().toString());
  }
  check(loop_[outer]->isReduction() == loop_[inner]->isReduction(),
        "[merge] axes {} and {} of {}: one is a reduction, the other is not; merge dims of one kind", outer, inner,
        toString());
  if (inner != outer + 1) {  // recorded as a reorder and a merge of neighbours
    int target = inner < outer ? outer : outer + 1;
    reorder({{inner, target}});
    outer = target - 1;
  }
  loop_[outer] = fusion_->idMerge(loop_[outer], loop_[outer + 1]);
  loop_.erase(loop_.begin() + outer + 1);
  transforms_.push_back({.kind = LoopTransform::Kind::Merge, .axis = outer});
  return this;
}

TensorView* TensorView::flatten(int from, int to) {
  if (loop_.empty()) {
    return this;
  }
  from = wrapAxis(from, "flatten");
  to = wrapAxis(to, "flatten");
  check(from <= to, "[flatten] got axes {} to {} of {}; expected from <= to", from, to, toString());
  for (int k = from; k < to; k++) {
    merge(from);
  }
  return this;
}

TensorView* TensorView::reorder(const std::vector<std::pair<int, int>>& oldToNew) {
  int n = nDims();
  std::vector<int> order(n, -1);
  std::vector<bool> moved(n, false);
  for (auto [from, to] : oldToNew) {
    from = wrapAxis(from, "reorder");
    to = wrapAxis(to, "reorder");
    check(!moved[from] && order[to] < 0, "[reorder] {} to {} in {}: an axis or a position is listed twice", from, to,
          toString());
    moved[from] = true;
    order[to] = from;
  }
  int next = 0;
  for (int& old : order) {  // the others keep their order
    if (old < 0) {
      while (moved[next]) {
        next++;
      }
      old = next++;
    }
  }
  std::vector<IterDomain*> dims;
  for (int old : order) {
    dims.push_back(loop_[old]);
  }
  if (dims != loop_) {
    loop_ = std::move(dims);
    transforms_.push_back({.kind = LoopTransform::Kind::Reorder, .order = std::move(order)});
  }
  return this;
}

IterDomain* TensorView::axis(int position) const { return loop_[wrapAxis(position, "axis")]; }

TensorView* TensorView::parallelize(int axis, ParallelType type) {
  this->axis(axis)->parallelize(type);
  return this;
}

void TensorView::resetLoop() {
  for (IterDomain* d : loop_) {
    d->parallelType_ = ParallelType::Serial;
  }
  loop_ = logical_;
  for (IterDomain* d : loop_) {
    d->parallelType_ = ParallelType::Serial;
    d->replaced_ = false;
  }
  transforms_.clear();
}

std::vector<LoopTransform> TensorView::loopTransforms() const {
  std::vector<LoopTransform> all = transforms_;
  for (int k = 0; k < nDims(); k++) {
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
        std::vector<std::pair<int, int>> oldToNew;
        for (size_t k = 0; k < t.order.size(); k++) {
          oldToNew.emplace_back(t.order[k], static_cast<int>(k));
        }
        check(t.order.size() == loop_.size(), "[reorder] got an order of {} axes for {}, which has {} axes",
              t.order.size(), toString(), loop_.size());
        reorder(oldToNew);
        break;
      }
    }
  }
}

void TensorView::setAllocationDomain(std::vector<IterDomain*> ids, std::vector<bool> contiguity) {
  std::vector<IterDomain*> stored = noReductions();
  check(std::is_permutation(ids.begin(), ids.end(), stored.begin(), stored.end()),
        "[setAllocationDomain] got {} dims for {}; expected each of its {} logical dims once, without reductions",
        ids.size(), toString(), stored.size());
  check(contiguity.size() == ids.size(),
        "[setAllocationDomain] got {} contiguity flags for {} dims of {}; give one for each dim", contiguity.size(),
        ids.size(), toString());
  if (ids == stored) {
    allocation_.clear();
  } else {
    allocation_ = std::move(ids);
  }
  contiguity_ = std::move(contiguity);
}

void TensorView::setContiguity(std::vector<bool> contiguity) {
  check(contiguity.size() == noReductions().size(),
        "[setContiguity] got {} flags for {}, which stores {} dims; give one for each dim", contiguity.size(),
        toString(), noReductions().size());
  contiguity_ = std::move(contiguity);
}

void TensorView::copyAllocation(const TensorView& from) {
  const std::vector<int> theirs = from.memoryOrder();
  const std::vector<IterDomain*> stored = noReductions();
  invariant(theirs.size() == stored.size(), "[copyAllocation] {} stores {} dims, {} stores {}", from.toString(),
            theirs.size(), toString(), stored.size());
  std::vector<IterDomain*> order;
  for (int k : theirs) {
    order.push_back(stored[k]);
  }
  setAllocationDomain(std::move(order), from.contiguity());
}

std::string TensorView::toString() const {
  std::string dims;
  for (IterDomain* d : loop_) {
    dims += fmt::format("{}{}", dims.empty() ? "" : ", ", d->toString());
  }
  return fmt::format("{}[{}]", Val::toString(), dims);
}

std::vector<IterDomain*> allIds(const TensorView& tensor) {
  std::map<int, IterDomain*> found;
  std::vector<IterDomain*> open;
  for (const auto* domain : {&tensor.getRootDomain(), &tensor.getLogicalDomain(), &tensor.getLoopDomain()}) {
    open.insert(open.end(), domain->begin(), domain->end());
  }
  while (!open.empty()) {
    IterDomain* id = open.back();
    open.pop_back();
    if (found.emplace(id->id(), id).second && id->definition() != nullptr) {
      open.insert(open.end(), id->definition()->in.begin(), id->definition()->in.end());
      open.insert(open.end(), id->definition()->out.begin(), id->definition()->out.end());
    }
  }
  std::vector<IterDomain*> ids;
  for (const auto& [number, id] : found) {
    ids.push_back(id);
  }
  return ids;
}

}  // namespace meshfuse
