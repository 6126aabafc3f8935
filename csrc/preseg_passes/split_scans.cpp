#include "preseg_passes/split_scans.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "preseg_passes/placed_ops.h"
#include "preseg_passes/plain_tensor.h"
#include "preseg_passes/reshard_cost.h"

namespace meshfuse {

namespace {

// The size of an element that a gather of the operand would move: before a cast, if it is smaller there.
int64_t gatheredSize(const TensorView* tv) {
  const Expr* e = tv->definition();
  const int64_t size = dataTypeSize(tv->dtype());
  return e != nullptr && e->kind() == ExprKind::Cast ? std::min(size, dataTypeSize(e->input(0)->dtype())) : size;
}

ScalarConst identityOf(ReduceOp op, DataType type) {
  if (isFloatingPoint(type)) {
    return floatingIdentity(op);
  }
  const int64_t identity = integerIdentity(op, type);
  return type == DataType::Bool ? ScalarConst(identity != 0) : ScalarConst(identity);
}

class SplitScan {
 public:
  SplitScan(Fusion& fusion, PassContext& context, Expr* scan)
      : fusion_(fusion),
        plans_(context.memo<PlanMemo>()),
        scan_(scan),
        x_(scan->input(0)->asTensor()),
        out_(scan->tensorOutput()),
        dim_(scan->attributes().dim),
        op_(scan->attributes().reduce),
        type_(out_->dtype()),
        held_(shardState(x_)),
        made_(shardState(out_)),
        ops_(fusion, made_.mesh) {}

  // The remark about the scan; `changed` is set if it is in blocks now.
  std::string run(bool& changed) {
    const std::optional<DimBlocks> blocks = scannedBlocks(*scan_, made_);
    if (!blocks) {
      return gathered("its result is not cut in blocks of known sizes");
    }
    blocks_ = *blocks;
    if (!hasKnownSizes(x_, plans_) || !hasKnownSizes(out_, plans_)) {
      return gathered("sizes are unknown");
    }
    if (blocks_.length.isConst(1)) {
      return gathered("its blocks have one element");
    }
    TensorView* now = made();
    if (!ops_.areLocal() || !provenEqual(shardState(now), made_)) {
      ops_.remove();
      return gathered("other dims are cut as well");
    }
    const int64_t bytes = bytes_;
    const int64_t all = bytesOfGather();
    if (bytes >= all) {
      ops_.remove();
      return gathered(fmt::format("blocks would take {} bytes, not {}", bytes, all));
    }
    fusion_.removeExpr(scan_);
    takePlace(out_, now);
    changed = true;
    return fmt::format("T{} scans dim {} of {} in {} blocks: a rank receives {} bytes, not {}", now->id(), dim_,
                       x_->toString(), blocks_.parts, bytes, all);
  }

 private:
  std::string gathered(const std::string& why) const {
    return fmt::format("T{} gathers dim {} of {} to scan it: {}", out_->id(), dim_, x_->toString(), why);
  }

  static std::vector<bool> only(int64_t dim, int64_t rank) {
    std::vector<bool> flags(rank, false);
    flags[dim] = true;
    return flags;
  }

  // The bytes that a rank receives today: the operand whole along the dim.
  int64_t bytesOfGather() {
    ShardState needed = made_;
    needed.dims[dim_] = DigitList::whole(dim_, blocks_.extent);
    return costOf(plans_, held_, needed, x_).bytes / dataTypeSize(type_) * gatheredSize(x_);
  }

  TensorView* moved(TensorView* tv, const ShardState& to) {
    bytes_ += costOf(plans_, shardState(tv), to, tv).bytes;
    return ops_.moved(tv, to);
  }

  // The reduction of all blocks before each block, from the totals of all blocks [.., parts, 1, ..]; without the second of these dims.
  TensorView* before(TensorView* totals) {
    const int64_t rank = std::ssize(totals->shape());
    const int64_t parts = blocks_.parts;
    TensorView* each = ops_.broadcast(ops_.iota(parts, 0, 1, blocks_.even(0, 1)), {true, false});
    TensorView* other = ops_.broadcast(ops_.iota(parts, 0, 1), {false, true});
    TensorView* isEarlier = ops_.point(PointOp::Lt, {other, each}, DataType::Bool);
    if (rank > 2) {
      std::vector<bool> lines(rank, true);
      lines[dim_] = lines[dim_ + 1] = false;
      isEarlier = ops_.broadcast(isEarlier, lines);
    }
    return ops_.reduce(ops_.where(isEarlier, totals, identity()), only(dim_, rank), op_);
  }

  TensorView* made() {
    TensorView* x = provenEqual(held_, made_) ? x_ : moved(x_, made_);
    x = ops_.inBlocks(x, dim_, blocks_, identityOf(op_, type_));
    TensorView* scanned = ops_.scan(x, dim_ + 1, op_);
    TensorView* totals = ops_.element(scanned, dim_ + 1, blocks_.length - 1);
    ShardState whole = shardState(totals);
    whole.dims[dim_] = DigitList::whole(dim_, blocks_.parts);
    TensorView* start = ops_.broadcast(before(moved(totals, whole)), only(dim_ + 1, std::ssize(x->shape())));
    return ops_.outOfBlocks(ops_.point(combineOp(op_, type_), {start, scanned}), dim_, blocks_, made_);
  }

  Val* identity() { return fusion_.scalar(identityOf(op_, type_)); }

  Fusion& fusion_;
  PlanMemo& plans_;
  Expr* const scan_;
  TensorView* const x_;
  TensorView* const out_;
  const int64_t dim_;
  const ReduceOp op_;
  const DataType type_;
  const ShardState held_;
  const ShardState made_;  // of the result
  PlacedOps ops_;
  DimBlocks blocks_;
  int64_t bytes_ = 0;  // that a rank receives
};

// Both along a dim that axes cut, on one mesh.
bool scansCutDim(const Expr* e) {
  if (e->kind() != ExprKind::Scan) {
    return false;
  }
  const TensorView* x = e->input(0)->asTensor();
  const TensorView* out = e->tensorOutput();
  const int64_t dim = e->attributes().dim;
  const auto isCut = [&](const TensorView* tv) {
    return tv->hasDeviceMesh() && !tv->isPartial() && shardState(tv).dims[dim].hasOwned();
  };
  return isCut(x) && isCut(out) && x->getDeviceMesh() == out->getDeviceMesh() && !shardState(x).hasOpaqueDim();
}

}  // namespace

std::optional<DimBlocks> scannedBlocks(const Expr& expr, const ShardState& state) {
  if (expr.kind() != ExprKind::Scan || !state.partial.empty()) {
    return std::nullopt;
  }
  return blocksOf(state, expr.attributes().dim);
}

int64_t bytesOfTotals(const Expr& scan, int64_t parts, const ShardState& state) {
  int64_t numbers = parts - 1;
  for (int64_t k = 0; k < std::ssize(state.dims); k++) {
    numbers *= k == scan.attributes().dim ? 1 : state.dims[k].localSize().constValue();
  }
  return numbers * dataTypeSize(scan.output()->dtype());
}

bool splitScans(Fusion& fusion, PassContext& context) {
  bool changed = false;
  for (const int64_t id : idsOf(fusion, scansCutDim)) {
    context.remark(SplitScan(fusion, context, fusion.expr(id)).run(changed));
  }
  return changed;
}

}  // namespace meshfuse
