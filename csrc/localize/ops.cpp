#include "localize/ops.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/op_rule.h"
#include "localize/layout.h"
#include "multidevice/sharding/operand_dims.h"

namespace meshfuse {

namespace {

std::vector<Dim> resultDims(const LocalOp& op) { return localDims(op.result, op.state, op.at.rank); }

// The dims of the result of a reduction, matmul or linear: its root domain with the extents of the local operands.
std::vector<Dim> contractedDims(const LocalOp& op) {
  std::vector<Dim> dims = dimsOf(op.result->getRootDomain());
  int64_t contributions = -1;  // root dim that counts them: a rank has one
  for (const int64_t operand : op.expr->tensorPositions()) {
    const std::vector<OperandDim> map = operandDims(op.expr, operand);
    const std::vector<IterDomain*> stored = op.operands[operand]->asTensor()->noReductions();
    const TensorView* whole = op.expr->input(operand)->asTensor();
    const std::vector<IterDomain*> global = whole->noReductions();
    const int64_t partial = whole->partialDim();
    for (const int64_t k : indices(map)) {
      if (k == partial) {
        contributions = map[k].root;
      } else if (map[k].root != kUnmapped && !stretches(global[k], map[k], op.result->getRootDomain()[map[k].root])) {
        const int64_t at = k - (partial >= 0 && k > partial ? 1 : 0);
        dims[map[k].root] = localDim(stored[at]->extent(), dims[map[k].root].type);
      }
    }
  }
  if (contributions >= 0) {
    dims.erase(dims.begin() + contributions);
  }
  return dims;
}

// Without the entry of the dim that counts contributions: a rank has one.
ExprAttributes withoutContributions(const Expr* e) {
  ExprAttributes attributes = e->attributes();
  const int64_t partial = e->tensorInputs().empty() ? -1 : e->tensorInputs()[0]->partialDim();
  if (partial < 0) {
    return attributes;
  }
  for (std::vector<IntExpr>* list : {&attributes.starts, &attributes.stops, &attributes.steps}) {
    if (!list->empty()) {
      list->erase(list->begin() + partial);
    }
  }
  std::erase(attributes.order, partial);
  for (int64_t& dim : attributes.order) {
    dim -= dim > partial ? 1 : 0;
  }
  return attributes;
}

TensorView* plain(Fusion& local, const LocalOp& op, const std::vector<Dim>& dims, const ExprAttributes& attributes) {
  return local.addOp(op.expr->kind(), op.operands, op.result->dtype(), dims, attributes);
}
TensorView* plain(Fusion& local, const LocalOp& op, const std::vector<Dim>& dims) {
  return plain(local, op, dims, op.expr->attributes());
}

// An offset of whole periods of a dim's owned digits, counted in local elements.
IntExpr localOffset(const IntExpr& offset, const DigitList& dim) {
  IntExpr owned = 1;
  for (const Digit& d : dim.digits()) {
    owned = d.owner.isDevice() ? owned * d.size : owned;
  }
  std::optional<IntExpr> local = divideExactly(offset, owned);
  invariant(local.has_value(), "[localize] a window at {} cuts the digits {}", offset.toString(), dim.toString());
  return *local;
}

// The window on uneven parts, computed for each index.
TensorView* unevenWindow(const LocalOp& op) {
  const std::vector<OperandDim> dims = operandDimsOfState(op.expr, 0);
  const ShardState& from = op.needed[0];
  const Part made = heldPart(op.state, op.at.rank);
  const Part read = windowReads(dims, from.constantShape(), made);
  TensorView* taken = takePart(op.operands[0]->asTensor(), heldPart(from, op.at.rank).positionsOf(read));
  return op.expr->kind() == ExprKind::Slice ? taken : padPart(taken, op.operands[1], dims, made, read);
}

TensorView* window(const LocalOp& op) {
  if (isRagged(op.state) || isRagged(op.needed[0])) {
    return unevenWindow(op);
  }
  TensorView* in = op.operands[0]->asTensor();
  ExprAttributes a = withoutContributions(op.expr);
  const bool isSlice = op.expr->kind() == ExprKind::Slice;
  for (int64_t k = 0; k < std::ssize(op.state.dims); k++) {
    if (const DigitList& dim = op.state.dims[k]; dim.hasOwned()) {
      a.starts[k] = localOffset(a.starts[k], dim);
      a.stops[k] = isSlice ? a.starts[k] + dim.localSize() : localOffset(a.stops[k], dim);
    }
  }
  return isSlice ? addSlice(in, a.starts, a.stops, a.steps) : addPad(in, op.operands[1], a.starts, a.stops);
}

// A new dim of extent 1 may be sharded: ranks without its element compute it too, and then take an empty slice.
TensorView* broadcast(Fusion& local, const LocalOp& op) {
  std::vector<Dim> dims = resultDims(op);
  if (op.state.mesh.empty()) {
    return plain(local, op, dims);
  }
  std::vector<int64_t> elsewhere;
  for (int64_t k = 0; k < std::ssize(dims); k++) {
    if (op.expr->attributes().flags[k] && dims[k].extent.isConst(0)) {
      dims[k] = {1, IterType::Broadcast};
      elsewhere.push_back(k);
    }
  }
  TensorView* all = plain(local, op, dims);
  std::vector<SymbolicRun> taken = wholeRuns(all);
  for (const int64_t k : elsewhere) {
    taken[k].count = 0;
  }
  return elsewhere.empty() ? all : sliceRuns(all, taken);
}

TensorView* reshape(const LocalOp& op) {
  return addReshape(op.operands[0]->asTensor(), mapped(resultDims(op), &Dim::extent));
}

// The start of the local part of a dim, if the part is one range: the owned digits are outermost.
std::optional<IntExpr> rangeStart(const DigitList& dim, const DeviceMesh& mesh, const LocalRank& at) {
  if (dim.hasParts()) {
    const IndexRuns held = heldRuns(dim, mesh.coordinates(at.rank));
    return held.size() > 1 ? std::nullopt : std::optional<IntExpr>(held.empty() ? 0 : held[0].start);
  }
  const std::optional<SymbolicRun> run = heldRun(mapped(dim.digits(), [&](const Digit& d) {
    return d.owner.isLocal()
               ? RankDigit{d.size, std::nullopt}
               : RankDigit{d.size, mod(floorDiv(at.coordinates->of(mesh, d.owner.axis), d.owner.below), d.size)};
  }));
  return run && run->step.isConst(1) ? std::optional(run->start) : std::nullopt;
}

// The number of the first row of a table, in parts over its dim, that a rank holds.
IntExpr firstRow(const Val* table, const DigitList& rows, const DeviceMesh& mesh, const LocalRank& at) {
  const std::optional<IntExpr> start = rangeStart(rows, mesh, at);
  invariant(start.has_value(), "[localize] the rows of {} on a rank are not a contiguous range", table->toString());
  return *start;
}

// iota, eye, random: if the local part is not one range, the whole tensor is computed and then sliced.
TensorView* indexValued(Fusion& local, const LocalOp& op) {
  ExprAttributes attributes = op.expr->attributes();
  std::vector<IntExpr> offsets;
  for (const DigitList& dim : op.state.dims) {
    std::optional<IntExpr> start = rangeStart(dim, op.state.mesh, op.at);
    if (!start) {
      TensorView* whole = plain(local, op, dimsOf(op.result));
      return cut(whole, ShardState::replicated(op.state.mesh, op.result->shape()), op.state, op.at);
    }
    offsets.push_back(*start);
  }
  attributes.starts.resize(
      op.expr->kind() == ExprKind::Random ? offsets.size() : std::max(attributes.starts.size(), offsets.size()), 0);
  for (int64_t k = 0; k < std::ssize(offsets); k++) {
    attributes.starts[k] = attributes.starts[k] + offsets[k];
  }
  return plain(local, op, resultDims(op), attributes);
}

TensorView* point(Fusion& local, PointOp op, std::vector<Val*> operands, DataType dtype, const std::vector<Dim>& dims) {
  return local.addOp(ExprKind::Point, std::move(operands), dtype, dims, {.point = op});
}

// One row of zeros for a rank without rows. Its values are masked. The ops that compute the table and the index stay, so that ranks with
// and without rows take part in the same collectives.
TensorView* withARowOfZeros(Fusion& local, TensorView* table, int64_t dim) {
  std::vector<Dim> dims = dimsOf(table);
  dims[dim] = localDim(1, IterType::Iteration);
  TensorView* zeros = local.tensor(table->dtype(), dims);
  local.addExpr(ExprKind::Full, {zeroOf(local, table->dtype())}, {zeros});
  return local.addOp(ExprKind::Cat, {table, zeros}, table->dtype(), dims, {.dim = dim});
}

struct OwnRows {
  TensorView* rows;  // row numbers relative to this rank's part, 0 for rows of other ranks
  TensorView* mine;  // whether a row is on this rank
};

OwnRows ownRows(Fusion& local, TensorView* index, const IntExpr& start, const IntExpr& count) {
  const std::vector<Dim> dims = dimsOf(index);
  TensorView* shifted = point(local, PointOp::Sub, {index, local.intScalar(start)}, index->dtype(), dims);
  TensorView* above = point(local, PointOp::Ge, {shifted, local.intScalar(0)}, DataType::Bool, dims);
  TensorView* below = point(local, PointOp::Lt, {shifted, local.intScalar(count)}, DataType::Bool, dims);
  TensorView* mine = point(local, PointOp::LogicalAnd, {above, below}, DataType::Bool, dims);
  return {point(local, PointOp::Where, {mine, shifted, local.intScalar(0)}, index->dtype(), dims), mine};
}

// Rows of a sharded table: those of other ranks count as zero.
TensorView* indexedPart(Fusion& local, const LocalOp& op) {
  const int64_t table = tableOf(*op.expr);
  const int64_t dim = op.expr->attributes().dim;
  const IntExpr start = firstRow(op.expr->input(table), op.needed[table].dims[dim], op.state.mesh, op.at);
  const std::vector<Dim> dims = resultDims(op);
  ExprAttributes attributes = op.expr->attributes();
  std::vector<Val*> operands = op.operands;
  if (operands[table]->asTensor()->shape()[dim].isConst(0)) {  // all rows are on other ranks
    operands[table] = withARowOfZeros(local, operands[table]->asTensor(), dim);
  }
  const DataType dtype = op.result->dtype();
  if (op.expr->kind() == ExprKind::Embedding) {
    attributes.starts = {start};
    attributes.flags = {true};
    return local.addOp(ExprKind::Embedding, operands, dtype, dims, attributes);
  }
  TensorView* index = op.operands[1]->asTensor();
  const IntExpr rows = op.operands[0]->asTensor()->shape()[dim];  // 0 if the only row is the row of zeros
  const auto [row, mine] = ownRows(local, index, start, rows);
  TensorView* picked = local.addOp(op.expr->kind(), {operands[0], row}, dtype, dims, attributes);
  TensorView* mask = mine;
  if (op.expr->kind() == ExprKind::IndexSelect && dims.size() > 1) {
    std::vector<Dim> maskDims(dims.size(), Dim{1, IterType::Broadcast});
    maskDims[dim] = dimsOf(index)[0];
    std::vector<bool> isNew(dims.size(), true);
    isNew[dim] = false;
    mask = local.addOp(ExprKind::Broadcast, {mine}, DataType::Bool, maskDims, {.flags = isNew});
  }
  if (!isHalfPrecision(dtype)) {
    return point(local, PointOp::Where, {mask, picked, zeroOf(local, dtype)}, dtype, dims);
  }
  // Point ops do not compute in 16-bit types.
  TensorView* wide = local.addOp(ExprKind::Cast, {picked}, DataType::Float, dims);
  TensorView* masked = point(local, PointOp::Where, {mask, wide, local.scalar(0.0)}, DataType::Float, dims);
  return local.addOp(ExprKind::Cast, {masked}, dtype, dims);
}

// Each rank's part of the table takes the values whose index lies in it.
TensorView* put(Fusion& local, const LocalOp& op) {
  ExprAttributes attributes = op.expr->attributes();
  const DigitList& dim = op.state.dims[attributes.dim];
  if (dim.hasOwned()) {
    const std::optional<IntExpr> start = rangeStart(dim, op.state.mesh, op.at);
    invariant(start.has_value(), "[localize] {} is not a contiguous range of the dim of its {}", op.result->toString(),
              op.expr->opName());
    attributes.starts = {attributes.starts[0] + *start};
    attributes.flags = {true};
  }
  return plain(local, op, resultDims(op), attributes);
}

}  // namespace

TensorView* ownRow(Fusion& local, const Expr* select, TensorView* table, TensorView* index, const LocalRank& at) {
  const int64_t dim = select->attributes().dim;
  const ShardState held = shardState(select->input(0)->asTensor());
  const IntExpr start = firstRow(select->input(0), held.dims[dim], held.mesh, at);
  const IntExpr rows = table->shape()[dim];
  if (rows.isConst(0)) {
    table = withARowOfZeros(local, table, dim);
  }
  std::vector<Dim> dims = dimsOf(table);
  dims[dim] = localDim(1, IterType::Iteration);
  TensorView* row = local.tensor(table->dtype(), dims);
  local.addExpr(ExprKind::IndexSelect, {table, ownRows(local, index, start, rows).rows}, {row}, {.dim = dim});
  return row;
}

TensorView* padPart(TensorView* in, Val* fill, const std::vector<OperandDim>& dims, const Part& made,
                    const Part& read) {
  std::vector<IntExpr> before;
  std::vector<IntExpr> after;
  for (int64_t k = 0; k < std::ssize(made.dims); k++) {
    IndexRuns reached = read.dims[k];
    for (IndexRun& r : reached) {
      r.start -= dims[k].offset.constValue();
    }
    const IndexRuns at = positionsIn(made.dims[k], reached);
    before.emplace_back(at.empty() ? 0 : at.front().start);
    after.emplace_back(countOf(made.dims[k]) - (at.empty() ? 0 : at.back().last() + 1));
  }
  return addPad(in, fill, before, after);
}

TensorView* emitLocalOp(Fusion& local, const LocalOp& op) {
  switch (ruleOf(*op.expr).form) {
    case OpForm::Pointwise:
    case OpForm::Squeeze:
    case OpForm::Expand:
    case OpForm::Concatenate:
    case OpForm::Fill:
      return plain(local, op, resultDims(op));
    case OpForm::Broadcast:
      return broadcast(local, op);
    case OpForm::Permute:
      return addPermute(op.operands[0]->asTensor(), withoutContributions(op.expr).order);
    case OpForm::Reshape:
      return reshape(op);
    case OpForm::Window:
      return window(op);
    case OpForm::Reduce:
    case OpForm::Contract:
      return plain(local, op, contractedDims(op));
    case OpForm::Positions:
      return indexValued(local, op);
    case OpForm::Index:
      return op.result->isPartial() ? indexedPart(local, op) : plain(local, op, resultDims(op));
    case OpForm::Line:
      invariant(!op.state.dims[op.expr->attributes().dim].hasOwned(),
                "[localize] {} is in parts along the dim of its {}", op.result->toString(), op.expr->opName());
      return plain(local, op, resultDims(op));
    case OpForm::Put:
      return put(local, op);
    case OpForm::Ranks:
      break;
  }
  throwInternalError(fmt::format("[localize] {} has no local form", op.expr->opName()));
}

}  // namespace meshfuse
