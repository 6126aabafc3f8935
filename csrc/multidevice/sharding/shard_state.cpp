#include "multidevice/sharding/shard_state.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"

namespace meshfuse {

namespace {

// Every dim between `base` and what is asked for, as digits of the base; filled on demand.
class DigitsOver {
 public:
  DigitsOver(const std::vector<IterDomain*>& base, const Prover& prover) : base_(base), prover_(prover) {}

  const DigitList& of(IterDomain* id) {
    const auto known = std::ranges::find(known_, id, &Known::id);
    if (known != known_.end()) {
      return *known->digits;
    }
    const DigitList& list = *known_.emplace_back(Known{id, std::make_unique<DigitList>(made(id))}).digits;
    return list;
  }

 private:
  struct Known {
    IterDomain* id;
    std::unique_ptr<DigitList> digits;  // stays where it is when others become known
  };

  DigitList made(IterDomain* id) {
    if (const auto at = std::ranges::find(base_, id); at != base_.end()) {
      const auto dim = static_cast<int>(at - base_.begin());
      if (id->extent().isConst(1)) {
        ones_.emplace(id->id(), Digit{dim, 1, 1, {}});
      }
      return DigitList::whole(dim, id->extent());
    }
    DigitList list = DigitList::opaque();
    if (IdExpr* e = id->definition()) {
      switch (e->kind) {
        case IdExprKind::Merge:
          list = merge(of(e->in[0]), asPadded(of(e->in[1])), prover_);
          break;
        case IdExprKind::Split: {
          auto [outer, inner] = splitOf(*e);
          list = id == e->out[0] ? outer : inner;
          break;
        }
        case IdExprKind::Resize:
          if (e->left.isConst(0) && e->right.isConst(0)) {
            list = of(e->in[0]);
          }
          break;
      }
    }
    return list;
  }

  // The factor is one side's extent, the other is rounded up: a split that does not divide is ragged where all is constant, else
  // opaque.
  std::pair<DigitList, DigitList> splitOf(const IdExpr& e) {
    const DigitList& list = of(e.in[0]);
    // under facts the size of the digits is a quotient where the extent is rounded up
    const bool exact = !list.isOpaque() && !list.isRagged() && !e.in[0]->extent().isConst();
    const IntExpr in = exact ? list.size(prover_) : e.in[0]->extent();
    const std::optional<IntExpr> other = in.isConst(0) ? std::nullopt : prover_.divide(in, e.factor);
    const std::optional<Digit> top = topmost(e.in[0], list);
    if (other) {
      auto parts = split(list, e.innerSplit ? e.factor : *other, prover_);
      if (top && !parts.first.isOpaque() && parts.first.empty()) {
        Digit one = *top;
        one.stride = one.stride * in;
        one.size = 1;
        ones_.emplace(e.out[0]->id(), one);
      }
      return parts;
    }
    if (!top || !in.isConst() || !e.factor.isConst()) {
      return {DigitList::opaque(), DigitList::opaque()};
    }
    const int64_t factor = e.factor.constValue();
    const int64_t rounded = std::max<int64_t>(1, (in.constValue() + factor - 1) / factor);
    return splitRagged(*top, base_[static_cast<size_t>(top->dim)]->extent().constValue(),
                       e.innerSplit ? rounded : factor, e.innerSplit ? factor : rounded);
  }

  // A dim counts the parts that it is split into, also where the last of them are empty.
  static DigitList asPadded(const DigitList& list) {
    if (list.isOpaque() || !list.isRagged()) {
      return list;
    }
    std::vector<Digit> digits(list.digits().begin(), list.digits().end());
    digits.front().bound = Digit::kEven;
    return DigitList(std::move(digits));
  }

  // The digit that the index is, if it is the topmost of a dim of constant extent.
  std::optional<Digit> topmost(const IterDomain* id, const DigitList& list) const {
    if (const auto one = ones_.find(id->id()); one != ones_.end()) {
      return one->second;
    }
    if (list.isOpaque() || list.digits().size() != 1) {
      return std::nullopt;
    }
    const Digit& d = list.digits()[0];
    const IntExpr& bound = base_[static_cast<size_t>(d.dim)]->extent();
    const bool isTop = bound.isConst() && (d.isRagged() || d.stride * d.size == bound);
    return isTop ? std::optional<Digit>(d) : std::nullopt;
  }

  const std::vector<IterDomain*>& base_;
  const Prover& prover_;
  std::vector<Known> known_;
  std::map<int, Digit> ones_;  // by id: a topmost digit of size 1, which its list does not show
};

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

// Positions of the stored dims other than the partial one.
std::vector<IterDomain*> stateDims(const TensorView* tv) {
  std::vector<IterDomain*> dims = tv->noReductions();
  const int partial = partialDim(tv);
  if (partial >= 0) {
    dims.erase(dims.begin() + partial);
  }
  return dims;
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

// How a dim is split into its digits.
struct DigitSplits {
  struct Split {
    int at;  // position among the loops so far
    IntExpr factor;
    bool inner;
  };
  std::vector<Split> splits;
  std::vector<int> place;  // of each digit among the loops in the end
  int loops = 0;
};

bool isPositive(const IntExpr& e) { return e.lower().value_or(0) > 0; }

// Of digits from the outside. In a ragged list, a run of axes on top is padded as one, and all below it is cut from the inside, so that
// every size but the topmost is exact.
DigitSplits splitsOf(const std::vector<Digit>& digits, const IntExpr& extent) {
  const int count = static_cast<int>(digits.size());
  DigitSplits out;
  for (int i = 0; i < count; i++) {
    out.place.push_back(i);
  }
  out.loops = count;
  if (!digits.front().isRagged()) {
    // A run of axes on top, of which one has a symbol for its size, is padded as one where sizes turn out not to divide.
    int run = 0;
    IntExpr together = 1;
    while (run < count && digits[run].owner.isDevice()) {
      together *= digits[run++].size;
    }
    if (run > 1 && run < count && !together.isConst()) {
      out.splits.push_back({0, together, false});
    } else {
      run = 0;
    }
    for (int i = 0; i + 1 < count; i++) {
      if (i + 1 == run) {
        continue;
      }
      // The loop of an axis has its size, whether or not that divides what is cut. A quotient, which may be nothing for other sizes, is
      // what is left over.
      const bool isQuotient = digits[i].owner.isLocal() && !isPositive(digits[i].size);
      if (isQuotient && isPositive(digits[i].stride)) {
        out.splits.push_back({i, digits[i].stride, true});
      } else {
        out.splits.push_back({i, isQuotient ? max(1, digits[i].size) : digits[i].size, false});
      }
    }
    return out;
  }
  int top = 0;  // digits in the run
  int64_t parts = 1;
  while (top < count && digits[top].owner.isDevice()) {
    parts *= digits[top++].size.constValue();
  }
  const int64_t bound = extent.constValue();
  const int64_t below = top == 0 ? 0 : digits[top - 1].stride.constValue();
  const bool isBlock = top > 0 && top + 1 >= count && below == std::max<int64_t>(1, (bound + parts - 1) / parts);
  for (int i = count - 1; i >= std::max(top, 1) && !isBlock; i--) {
    out.splits.push_back({0, digits[i].size, true});
  }
  if (top == 0) {
    return out;
  }
  // What is left has an element for each part, or less: then a loop of one element stays behind.
  if (isBlock || (bound + below - 1) / below != parts) {
    out.splits.push_back({0, parts, false});
    out.loops = isBlock ? top + 1 : count + 1;
    for (int i = top; i < count && !isBlock; i++) {
      out.place[i]++;
    }
  }
  for (int i = 0; i + 1 < top; i++) {
    out.splits.push_back({i, digits[i].size, false});
  }
  return out;
}

// Owned digits first, from the outside, by whole axes: what an outer split by the axes gives. Blocks larger than it would make have a
// text of their own, with their sizes, as have parts of axes: states that differ have texts that differ.
bool isBlock(const DigitList& dim, const DeviceMesh& mesh) {
  bool local = false;
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
  for (const Digit& d : dim.digits()) {
    if (d.owner.isDevice() && (local || !(d.size == mesh.axisSize(d.owner.axis)))) {
      return false;
    }
    local |= d.owner.isLocal();
  }
  return true;
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

std::vector<DigitList> digitsOver(const std::vector<IterDomain*>& domain, const std::vector<IterDomain*>& base,
                                  const Prover& prover) {
  DigitsOver over(base, prover);
  std::vector<DigitList> lists;
  for (IterDomain* id : domain) {
    lists.push_back(over.of(id));
  }
  return lists;
}

std::vector<BoundLoop> boundLoops(const TensorView* tv, const std::vector<IterDomain*>& base, const Prover& prover) {
  std::vector<BoundLoop> bound;
  const DeviceMesh& mesh = tv->getDeviceMesh();
  if (mesh.empty()) {
    return bound;
  }
  DigitsOver over(base, prover);
  for (IterDomain* id : tv->getLoopDomain()) {
    if (!id->isDeviceDim()) {
      continue;
    }
    const ParallelType type = id->parallelType();
    if (!mesh.size(type).isConst(1)) {
      const Owner owner = Owner::device(mesh.axisOf(type), mesh.below(type));
      bound.push_back({owner.axis, over.of(id).ownedBy(owner, prover), id->extent(), id});
    }
  }
  return bound;
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

// The loop of an owned digit.
struct Piece {
  int axis;
  IntExpr below;
  IterDomain* loop;
};

// Two loops become one, whose places count through all of `inner` before those of `outer`.
IterDomain* joined(TensorView* tv, const IterDomain* outer, const IterDomain* inner) {
  const auto& loops = tv->getLoopDomain();
  const auto positionOf = [&](const IterDomain* id) {
    return static_cast<int>(std::find(loops.begin(), loops.end(), id) - loops.begin());
  };
  const int from = positionOf(outer);
  const int to = positionOf(inner);
  tv->merge(from, to);
  return tv->axis(from < to ? from : from - 1);
}

// Pieces of one axis that follow each other become one loop. An axis of symbolic size is bound whole.
void bindPieces(TensorView* tv, const DeviceMesh& mesh, std::vector<Piece> pieces, const Prover& prover) {
  const auto next = [&](int axis, const IntExpr& below) {
    return std::ranges::find_if(pieces, [&](const Piece& p) { return p.axis == axis && prover.equal(p.below, below); });
  };
  for (int axis = 0; axis < mesh.numAxes(); axis++) {
    IntExpr below = 1;
    for (;;) {
      auto piece = next(axis, below);
      if (piece == pieces.end()) {
        // what else is bound of the axis stands above a gap
        piece = std::ranges::min_element(pieces, [&](const Piece& a, const Piece& b) {
          return std::pair(a.axis != axis, a.below.constantTerm()) < std::pair(b.axis != axis, b.below.constantTerm());
        });
        if (piece == pieces.end() || piece->axis != axis) {
          break;
        }
        below = piece->below;
      }
      const IntExpr first = below;
      IterDomain* loop = nullptr;
      for (; piece != pieces.end(); piece = next(axis, below)) {
        below = prover.multiply(below, piece->loop->extent());
        loop = loop == nullptr ? piece->loop : joined(tv, piece->loop, loop);
        pieces.erase(piece);
      }
      const bool isPart = mesh.axisSize(axis).isConst() && first.isConst() && below.isConst();
      loop->parallelize(isPart ? mesh.typeOf(axis, first.constValue(), below.constValue() / first.constValue())
                               : mesh.typeOf(axis));
    }
  }
}

}  // namespace

void setShardState(TensorView* tv, const ShardState& state, const Prover& prover) {
  const std::vector<IterDomain*> dims = stateDims(tv);
  const int partial = partialDim(tv);
  if (dims.size() != state.dims.size() ||
      (!state.partial.empty() && partial < 0)) {  // the text is made where it is needed
    throwInternalError(fmt::format("[sharding] {} has {} dims{}, its state is {}", tv->toString(), dims.size(),
                                   partial < 0 ? " and none for a partial sum" : "", state.toString()));
  }
  const IterDomain* partialId = partial >= 0 ? tv->noReductions()[partial] : nullptr;
  tv->resetLoop();
  tv->setDeviceMesh(state.mesh);

  std::vector<Piece> pieces;
  int loop = 0;
  size_t next = 0;
  for (IterDomain* logical : std::vector<IterDomain*>(tv->getLogicalDomain())) {
    std::vector<Digit> digits;
    if (logical == partialId) {
      IntExpr stride = 1;
      for (auto axis = state.partial.rbegin(); axis != state.partial.rend(); ++axis) {
        digits.insert(digits.begin(), {0, stride, state.mesh.axisSize(*axis), Owner::device(*axis)});
        stride = prover.multiply(stride, state.mesh.axisSize(*axis));
      }
    } else if (next < dims.size() && logical == dims[next]) {
      const DigitList& list = state.dims[next++];
      if (list.isOpaque()) {
        throwInternalError(fmt::format("[sharding] dim {} of the state of {} is opaque", next - 1, tv->toString()));
      }
      digits.assign(list.digits().begin(), list.digits().end());
    }
    if (std::none_of(digits.begin(), digits.end(), [](const Digit& d) { return d.owner.isDevice(); })) {
      loop++;
      continue;
    }
    const DigitSplits splits = splitsOf(digits, logical->extent());
    for (const DigitSplits::Split& s : splits.splits) {
      if (s.inner) {
        tv->inner_split(loop + s.at, s.factor);
      } else {
        tv->outer_split(loop + s.at, s.factor);
      }
    }
    for (size_t i = 0; i < digits.size(); i++) {
      if (digits[i].owner.isDevice()) {
        pieces.push_back({digits[i].owner.axis, digits[i].owner.below, tv->axis(loop + splits.place[i])});
      }
    }
    loop += splits.loops;
  }

  bindPieces(tv, state.mesh, std::move(pieces), prover);
}

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
