#include "preseg_passes/combine_variance.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "multidevice/sharding/plan_options.h"
#include "preseg_passes/dim_blocks.h"
#include "preseg_passes/placed_ops.h"
#include "preseg_passes/plain_tensor.h"
#include "preseg_passes/reshard_cost.h"

namespace meshfuse {

namespace {

bool isPoint(const Expr* e, PointOp op) {
  return e != nullptr && e->kind() == ExprKind::Point && e->attributes().point == op;
}

// Two casts of one tensor have the same value: each reader may have a cast of its own.
bool sameValue(const TensorView* a, const TensorView* b) {
  const Expr* of = a->definition();
  const Expr* other = b->definition();
  return a == b || (of != nullptr && other != nullptr && of->kind() == ExprKind::Cast && other->kind() == of->kind() &&
                    of->input(0) == other->input(0) && a->dtype() == b->dtype());
}

// A combination of local sums that no other op reads.
bool combinesSums(const Expr* e) {
  if (e == nullptr || !addsContributions(e) || e->attributes().plan) {
    return false;
  }
  const TensorView* partial = e->input(0)->asTensor();
  return partial->definition() != nullptr && partial->definition()->kind() == ExprKind::Reduce &&
         partial->definition()->attributes().reduce == ReduceOp::Sum && e->fusion().uses(partial).size() == 1 &&
         !partial->isFusionOutput() && !partial->isUserSharded();
}

std::vector<bool> reducedDims(const TensorView* sums) {
  return mapped(sums->getRootDomain(), &IterDomain::isReduction);
}

// The matched pattern, with all values that the rewrite needs.
struct Variance {
  Expr* sums = nullptr;     // the combination of the sums
  Expr* squares = nullptr;  // the combination of the squared distances
  TensorView* x = nullptr;
  TensorView* center = nullptr;            // a number a row
  std::vector<const Expr*> scalings = {};  // of the center after it was broadcast
  std::vector<bool> reduced;
  int64_t cut = 0;   // the reduced dim that is in parts
  DimBlocks blocks;  // the parts
};

// The tensor before it was scaled by scalars, and the ops that scale it, in order.
TensorView* unscaled(TensorView* tv, std::vector<const Expr*>& scalings) {
  const Expr* e = tv->definition();
  while ((isPoint(e, PointOp::Div) || isPoint(e, PointOp::Mul)) && e->tensorInputs().size() == 1 &&
         e->input(0)->isTensor()) {
    scalings.insert(scalings.begin(), e);
    tv = e->input(0)->asTensor();
    e = tv->definition();
  }
  return tv;
}

// Blocks of the cut dim, in the order of its axes.
bool readParts(Variance& m) {
  const ShardState state = shardState(m.x);
  int64_t cuts = 0;
  for (int64_t k = 0; k < std::ssize(m.reduced); k++) {
    const IntExpr extent = m.x->shape()[k];
    if ((m.reduced[k] && !extent.isConst()) || extent.isConst(0) || state.dims[k].isOpaque()) {
      return false;
    }
    if (m.reduced[k] && state.dims[k].hasOwned()) {
      m.cut = k;
      cuts++;
    }
  }
  const std::optional<DimBlocks> blocks = cuts == 1 ? blocksOf(state, m.cut) : std::nullopt;
  if (!blocks || blocks->length.isConst(1)) {
    return false;
  }
  m.blocks = *blocks;
  const std::vector<int64_t> axes = blocks->axes();
  return axes == shardState(m.sums->input(0)->asTensor()).partial &&
         axes == shardState(m.squares->input(0)->asTensor()).partial;
}

std::optional<Variance> varianceOf(Expr* combination) {
  if (!combinesSums(combination)) {
    return std::nullopt;
  }
  Variance m{.squares = combination};
  const TensorView* squares = combination->input(0)->asTensor();
  const Expr* square = squares->definition()->input(0)->definition();
  if (!isPoint(square, PointOp::Mul) || square->input(0) != square->input(1)) {
    return std::nullopt;
  }
  const Expr* distance = square->input(0)->definition();
  const auto isUserSharded = [](const Expr* e) { return e->output()->asTensor()->isUserSharded(); };
  if (!isPoint(distance, PointOp::Sub) || distance->tensorInputs().size() != 2 || isUserSharded(square) ||
      isUserSharded(distance)) {
    return std::nullopt;
  }
  m.x = distance->input(0)->asTensor();
  const Expr* spread = unscaled(distance->input(1)->asTensor(), m.scalings)->definition();
  if (spread == nullptr || spread->kind() != ExprKind::Broadcast) {
    return std::nullopt;
  }
  m.center = spread->input(0)->asTensor();
  std::vector<const Expr*> before;
  m.sums = unscaled(m.center, before)->definition();
  if (!combinesSums(m.sums)) {
    return std::nullopt;
  }
  const TensorView* sums = m.sums->input(0)->asTensor();
  const TensorView* summed = sums->definition()->input(0)->asTensor();
  m.reduced = reducedDims(sums);
  const bool isFloat = m.x->dtype() == DataType::Float || m.x->dtype() == DataType::Double;
  const auto isPlaced = [&](const TensorView* tv) {
    return tv->hasDeviceMesh() && tv->getDeviceMesh() == m.x->getDeviceMesh() && tv->dtype() == m.x->dtype();
  };
  if (!m.x->hasDeviceMesh() || !isFloat || m.x->isPartial() || !sameValue(summed, m.x) ||
      !provenEqual(shardState(summed), shardState(m.x)) || m.reduced != reducedDims(squares) ||
      spread->attributes().flags != m.reduced || distance->tensorOutput()->shape() != m.x->shape() || !isPlaced(sums) ||
      !isPlaced(squares) || !isPlaced(m.center) || !isPlaced(m.sums->tensorOutput()) ||
      !provenEqual(shardState(m.sums->tensorOutput()), shardState(combination->tensorOutput())) ||
      !provenEqual(shardState(m.sums->tensorOutput()), shardState(m.center)) || !readParts(m)) {
    return std::nullopt;
  }
  return m;
}

constexpr int64_t kNumbers = 3;  // numbers gathered for each row and part

class Gathering {
 public:
  Gathering(Fusion& fusion, PassContext& context, const Variance& variance)
      : fusion_(fusion),
        context_(context),
        plans_(context.memo<PlanMemo>()),
        m_(variance),
        axes_(mapped(shardState(variance.sums->input(0)->asTensor()).partial,
                     [&](int64_t axis) { return variance.x->getDeviceMesh().axisName(axis); })),
        ops_(fusion, variance.x->getDeviceMesh()) {}

  bool run() {
    if (!makeParts() || !isCheaper() || !combineParts()) {
      ops_.remove();
      return false;
    }
    TensorView* sums = m_.sums->tensorOutput();
    TensorView* squares = m_.squares->tensorOutput();
    context_.remark(fmt::format("T{} and T{} combine the variances of {} parts of {} dim {}", sums->id(), squares->id(),
                                m_.blocks.parts, m_.x->toString(), m_.cut));
    replace(m_.sums, newSums_);
    replace(m_.squares, newSquares_);
    return true;
  }

 private:
  // The position of the dim of parts in tensors with one number for each part.
  int64_t partsDim() const { return std::ranges::count(m_.reduced | std::views::take(m_.cut), false); }
  // All dims of `of` but one.
  static std::vector<bool> butFor(const TensorView* of, int64_t dim) {
    std::vector<bool> flags(of->shape().size(), true);
    flags[dim] = false;
    return flags;
  }
  static std::vector<bool> only(const TensorView* of, int64_t dim) {
    std::vector<bool> flags = butFor(of, dim);
    flags.flip();
    return flags;
  }

  // Elements of the other reduced dims.
  int64_t others() const {
    const std::vector<IntExpr> sizes = m_.x->shape();
    return productOf(indices(sizes),
                     [&](int64_t k) { return m_.reduced[k] && k != m_.cut ? sizes[k].constValue() : 1; });
  }

  // For each part, its number of positions in the cut dim, and the numbers that divide sums and weight squares.
  void countParts() {
    positions_ = ops_.number(PointOp::Minimum, ops_.iota(m_.blocks.parts, m_.blocks.extent, -1 * m_.blocks.length),
                             m_.blocks.length.constValue());
    const auto elements = [&](int64_t least) {
      TensorView* count = ops_.number(PointOp::Maximum, positions_, least);
      TensorView* number = ops_.cast(count, m_.x->dtype());
      return others() == 1 ? number : ops_.number(PointOp::Mul, number, static_cast<double>(others()));
    };
    elements_ = elements(0);
    divisor_ = m_.blocks.hasEmptyParts() ? elements(1) : elements_;
  }
  TensorView* beside(const TensorView* tv, TensorView* counts) {
    return ops_.broadcast(counts, butFor(tv, partsDim()));
  }
  // Each part's number divided or multiplied by its count, which is one number if the parts are even.
  TensorView* scaled(PointOp op, TensorView* numbers, TensorView* counts) {
    return m_.blocks.isEven() ? ops_.number(op, numbers, static_cast<double>(others() * m_.blocks.length.constValue()))
                              : ops_.point(op, {numbers, beside(numbers, counts)});
  }
  TensorView* mean(TensorView* sums) { return scaled(PointOp::Div, sums, divisor_); }
  // Zero for empty parts, even if their value is infinite.
  TensorView* existing(TensorView* numbers) {
    return m_.blocks.hasEmptyParts()
               ? ops_.where(ops_.point(PointOp::Gt, {beside(numbers, elements_), fusion_.scalar(0.0)}, DataType::Bool),
                            numbers, fusion_.scalar(0.0))
               : numbers;
  }

  // Computes the sums of each part on the ranks that hold the part.
  bool makeParts() {
    TensorView* x = ops_.inBlocks(m_.x, m_.cut, m_.blocks, 0.0);
    std::vector<bool> along = m_.reduced;  // the cut dim was split into two
    along.insert(along.begin() + static_cast<ptrdiff_t>(m_.cut), false);
    sums_ = ops_.sum(x, along);
    if (!m_.blocks.isEven()) {
      countParts();
    }
    TensorView* distance = ops_.point(PointOp::Sub, {x, ops_.broadcast(mean(sums_), along)});
    if (!m_.blocks.isEven()) {
      TensorView* position = ops_.broadcast(ops_.iota(m_.blocks.length, 0, 1), {true, false});
      TensorView* exists =
          ops_.point(PointOp::Lt, {position, ops_.broadcast(positions_, {false, true})}, DataType::Bool);
      std::vector<bool> isNew(x->shape().size(), true);
      isNew[m_.cut] = false;
      isNew[m_.cut + 1] = false;
      distance = ops_.where(ops_.broadcast(exists, isNew), distance, fusion_.scalar(0.0));
    }
    squares_ = ops_.sum(ops_.point(PointOp::Mul, {distance, distance}), along);
    rest_ = ops_.sum(distance, along);
    gathered_ = shardState(sums_);
    gathered_.dims[partsDim()] = DigitList::whole(partsDim(), m_.blocks.parts);
    return ops_.areLocal() && provenEqual(shardState(squares_), shardState(sums_)) &&
           shardState(sums_).dims[partsDim()].hasOwned();
  }

  // In bytes received over a plain link, the unit of `priceOf`.
  double callPrice() const {
    const std::map<std::string, double>& alphas = fusion_.planner().alpha;
    return alphas.empty() ? static_cast<double>(context_.settings().callBytes)
                          : costAlong(axes_, alphas) * static_cast<double>(dataTypeSize(m_.x->dtype()));
  }
  double priceOf(const ReshardCost& cost) const {
    const std::map<std::string, double>& betas = fusion_.planner().beta;
    return static_cast<double>(cost.bytes) * (betas.empty() ? 1 : costAlong(axes_, betas)) +
           static_cast<double>(cost.calls) * callPrice();
  }

  bool isCheaper() const {
    const RedistributionPlan& plan = plans_.plan(fusion_, shardState(sums_), gathered_);
    if (isForbidden(fusion_.planner(), Collective::AllGather) || plan.communications().size() != 1 ||
        plan.steps[0].kind != Collective::AllGather) {
      return false;
    }
    const bool isOneCall = kNumbers * localBytes(plans_, gathered_, m_.x->dtype()) <= context_.settings().bucketBytes &&
                           std::ranges::none_of(gathered_.dims, [](const DigitList& dim) { return dim.isRagged(); });
    const double saved = isOneCall ? (kNumbers - 1) * callPrice() : 0;
    return kNumbers * priceOf(costOf(plans_, shardState(sums_), gathered_, sums_)) - saved <
           priceOf(costOf(plans_, m_.sums)) + priceOf(costOf(plans_, m_.squares));
  }

  // Combines the sums of all parts on the ranks that hold them.
  bool combineParts() {
    TensorView* sums = ops_.moved(sums_, gathered_);
    TensorView* squares = ops_.moved(squares_, gathered_);
    TensorView* rest = ops_.moved(rest_, gathered_);
    newSums_ = ops_.sum(sums, only(sums, partsDim()));
    TensorView* means = mean(sums);
    TensorView* center = ops_.broadcast(m_.center, only(sums, partsDim()));
    for (const Expr* e : m_.scalings) {
      center = ops_.point(e->attributes().point, {center, e->input(1)});
    }
    TensorView* apart = ops_.point(PointOp::Sub, {means, center});
    TensorView* between =
        ops_.point(PointOp::Mul, {apart, ops_.point(PointOp::Add, {scaled(PointOp::Mul, apart, elements_),
                                                                   ops_.point(PointOp::Add, {rest, rest})})});
    // if squares overflow, the result depends only on whether the center is a number
    between = ops_.point(
        PointOp::Where,
        {ops_.point(PointOp::IsFinite, {squares}, DataType::Bool), between, ops_.point(PointOp::Mul, {center, center})},
        between->dtype());
    // rounding may give a negative value instead of 0, and its square root would be NaN
    TensorView* all = ops_.number(PointOp::Maximum, ops_.point(PointOp::Add, {squares, existing(between)}), 0.0);
    newSquares_ = ops_.sum(all, only(sums, partsDim()));
    const ShardState wanted = shardState(m_.sums->tensorOutput());
    return ops_.areLocal() && provenEqual(shardState(newSums_), wanted) && provenEqual(shardState(newSquares_), wanted);
  }

  void replace(Expr* combination, TensorView* now) {
    TensorView* was = combination->tensorOutput();
    TensorView* partial = combination->input(0)->asTensor();
    fusion_.removeExpr(combination);
    takePlace(was, now);
    removeUnread(partial);
  }
  void removeUnread(const TensorView* tv) {
    Expr* e = tv->definition();
    if (e == nullptr || tv->isFusionOutput() || tv->isUserSharded() || !fusion_.uses(tv).empty()) {
      return;
    }
    const std::vector<TensorView*> operands = e->tensorInputs();
    fusion_.removeExpr(e);
    for (const TensorView* in : operands) {
      removeUnread(in);
    }
  }

  Fusion& fusion_;
  PassContext& context_;
  PlanMemo& plans_;
  const Variance& m_;
  const std::vector<std::string> axes_;  // of the parts
  PlacedOps ops_;
  TensorView* sums_ = nullptr;       // a number a row and part, where the part is
  TensorView* squares_ = nullptr;    // of the distances from the part's mean
  TensorView* rest_ = nullptr;       // the sum of these distances: what rounding left
  TensorView* positions_ = nullptr;  // one number for each part
  TensorView* elements_ = nullptr;
  TensorView* divisor_ = nullptr;
  ShardState gathered_;
  TensorView* newSums_ = nullptr;
  TensorView* newSquares_ = nullptr;
};

// By id. Sums with several squares are not rewritten: the other squares would still need their call.
std::vector<int64_t> candidates(const Fusion& fusion) {
  std::map<int64_t, std::vector<int64_t>> bySums;
  for (Expr* e : fusion.exprs()) {
    if (const std::optional<Variance> m = varianceOf(e)) {
      bySums[m->sums->id()].push_back(e->id());
    }
  }
  std::vector<int64_t> ids;
  for (const auto& [sums, squares] : bySums) {
    if (squares.size() == 1) {
      ids.push_back(squares[0]);
    }
  }
  return ids;
}

}  // namespace

bool combineVariance(Fusion& fusion, PassContext& context) {
  if (!context.settings().optimizeReshards) {
    return false;
  }
  bool changed = false;
  for (const int64_t id : candidates(fusion)) {
    const std::optional<Variance> m = varianceOf(fusion.expr(id));
    changed |= m && Gathering(fusion, context, *m).run();
  }
  return changed;
}

}  // namespace meshfuse
