#include "multidevice/sharding/operand_dims.h"

#include "base/error.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

std::vector<OperandDim> inOrder(int rank) {
  std::vector<OperandDim> dims(rank);
  for (int k = 0; k < rank; k++) {
    dims[k].root = k;
  }
  return dims;
}

std::vector<OperandDim> squeezed(const Expr* expr, int rank) {
  std::vector<OperandDim> dims(rank);
  int root = 0;
  for (int k = 0; k < rank; k++) {
    if (!expr->attributes().flags[k]) {
      dims[k].root = root++;
    }
  }
  return dims;
}

std::vector<OperandDim> broadcasted(const Expr* expr, int rank) {
  std::vector<OperandDim> dims(rank);
  int k = 0;
  for (size_t root = 0; root < expr->attributes().flags.size(); root++) {
    if (!expr->attributes().flags[root]) {
      dims[k++].root = static_cast<int>(root);
    }
  }
  return dims;
}

std::vector<OperandDim> windows(const Expr* expr, int rank) {
  std::vector<OperandDim> dims = inOrder(rank);
  const ExprAttributes& a = expr->attributes();
  const std::vector<IntExpr> extents = expr->input(0)->asTensor()->shape();
  for (int k = 0; k < rank; k++) {
    if (expr->kind() == ExprKind::Slice) {
      dims[k].strided = !a.steps[k].isConst(1);
      dims[k].offset = a.starts[k];
      dims[k].window = !(a.starts[k].isConst(0) && a.stops[k] == extents[k]);
    } else {
      dims[k].offset = IntExpr(0) - a.starts[k];
      dims[k].window = !(a.starts[k].isConst(0) && a.stops[k].isConst(0));
    }
  }
  return dims;
}

std::vector<OperandDim> concatenated(const Expr* expr, int operand, int rank) {
  std::vector<OperandDim> dims = inOrder(rank);
  IntExpr before = 0;
  for (int k = 0; k < operand; k++) {
    before += expr->input(k)->asTensor()->shape()[expr->attributes().dim];
  }
  dims[expr->attributes().dim].window = true;
  dims[expr->attributes().dim].offset = IntExpr(0) - before;
  return dims;
}

// Batch dims align at the end; [.., M, K] x [.., K, N], where a 1-D operand has only K.
std::vector<OperandDim> matmul(const Expr* expr, int operand, int rank, int rootRank) {
  const int ra = static_cast<int>(expr->input(0)->asTensor()->noReductions().size());
  const int rb = static_cast<int>(expr->input(1)->asTensor()->noReductions().size());
  std::vector<OperandDim> dims(rank);
  const int k = rootRank - 1;
  const int matrixDims = (ra > 1 ? 1 : 0) + (rb > 1 ? 1 : 0);
  const int batch = rootRank - 1 - matrixDims;
  const int own = rank == 1 ? 1 : 2;
  for (int i = 0; i < rank - own; i++) {
    dims[i].root = batch - (rank - own) + i;
  }
  if (operand == 0) {
    dims[rank - 1].root = k;
    if (rank > 1) {
      dims[rank - 2].root = batch;
    }
  } else {
    dims[rank == 1 ? 0 : rank - 2].root = k;
    if (rank > 1) {
      dims[rank - 1].root = batch + (ra > 1 ? 1 : 0);
    }
  }
  return dims;
}

std::vector<OperandDim> linear(int operand, int rank, int rootRank) {
  std::vector<OperandDim> dims(rank);
  if (operand == 0) {
    dims = inOrder(rank);
    dims[rank - 1].root = rootRank - 1;
  } else {
    dims[0].root = rank == 1 && operand == 1 ? rootRank - 1 : rootRank - 2;
    if (rank == 2) {
      dims[1].root = rootRank - 1;
    }
  }
  return dims;
}

// takeAlongAxis, gather, indexSelect. A result that is a partial sum counts the indexed dim as its last root dim.
std::vector<OperandDim> indexed(const Expr* expr, int operand, int rank, const TensorView* result) {
  const int dim = expr->attributes().dim;
  std::vector<OperandDim> dims = inOrder(rank);
  if (operand == 1) {
    if (expr->kind() == ExprKind::IndexSelect) {
      dims[0].root = dim;
    }
    return dims;
  }
  const std::vector<IterDomain*>& root = result->getRootDomain();
  const bool partial = static_cast<int>(root.size()) == rank + 1;
  dims[dim].root = partial ? rank : kUnmapped;
  const std::vector<IntExpr> extents = expr->input(0)->asTensor()->shape();
  for (int k = 0; k < rank; k++) {
    if (k != dim && !(extents[k] == root[k]->extent()) && !extents[k].isConst(1)) {
      dims[k].root = kUnmapped;  // gather from a corner of the operand
    }
  }
  return dims;
}

std::vector<OperandDim> embedding(const Expr* expr, int operand, int rank, int rootRank) {
  if (operand == 0) {
    return inOrder(rank);
  }
  const int indexRank = static_cast<int>(expr->input(0)->asTensor()->noReductions().size());
  std::vector<OperandDim> dims(rank);
  dims[0].root = rootRank == indexRank + 2 ? rootRank - 1 : kUnmapped;
  dims[1].root = indexRank;
  return dims;
}

}  // namespace

std::vector<OperandDim> operandDims(const Expr* expr, int operand, const TensorView* result) {
  if (!expr->input(operand)->isTensor()) {
    return {};
  }
  const int rank = static_cast<int>(expr->input(operand)->asTensor()->noReductions().size());
  const int rootRank = static_cast<int>(result->getRootDomain().size());
  switch (expr->kind()) {
    case ExprKind::Set:
    case ExprKind::SegmentSet:
    case ExprKind::Point:
    case ExprKind::Cast:
    case ExprKind::BitCast:
    case ExprKind::Expand:
    case ExprKind::Permute:
    case ExprKind::Reshape:
    case ExprKind::Reduce:
    case ExprKind::Redistribute: return inOrder(rank);
    case ExprKind::Broadcast: return broadcasted(expr, rank);
    case ExprKind::Squeeze: return squeezed(expr, rank);
    case ExprKind::Slice:
    case ExprKind::Pad: return windows(expr, rank);
    case ExprKind::Cat: return concatenated(expr, operand, rank);
    case ExprKind::Matmul: return matmul(expr, operand, rank, rootRank);
    case ExprKind::Linear: return linear(operand, rank, rootRank);
    case ExprKind::TakeAlongAxis:
    case ExprKind::Gather:
    case ExprKind::IndexSelect: return indexed(expr, operand, rank, result);
    case ExprKind::Embedding: return embedding(expr, operand, rank, rootRank);
    case ExprKind::Full:
    case ExprKind::Iota:
    case ExprKind::Eye:
    case ExprKind::Random:
    case ExprKind::Communicate: return std::vector<OperandDim>(rank);
  }
  return std::vector<OperandDim>(rank);
}

}  // namespace meshfuse
