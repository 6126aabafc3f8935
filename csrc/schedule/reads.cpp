#include "schedule/reads.h"

#include <algorithm>

#include "base/error.h"
#include "ir/fusion.h"
#include "schedule/row_major.h"

namespace meshfuse {

namespace {

Read pad(const Expr& e, const std::vector<IntExpr>& at, const SizeName& size) {
  const std::vector<IntExpr> shape = e.tensorInputs()[0]->shape();
  Read read;
  for (size_t d = 0; d < shape.size(); d++) {
    IntExpr left = size(e.attributes().starts[d]);
    bool kept = shape[d].isConst(1) && left.isConst(0) && e.attributes().stops[d].isConst(0);
    IntExpr i = kept ? IntExpr(0) : at[d] - left;
    read.where.push_back({IntExpr(-1), i});
    read.where.push_back({i, size(shape[d])});
    read.at.push_back(std::move(i));
  }
  return read;
}

// Parts are taken last first, each earlier one where it applies: the first needs no lower bound and the last no upper one.
Read cat(const Expr& e, size_t operand, const std::vector<IntExpr>& at, const SizeName& size) {
  const size_t dim = static_cast<size_t>(e.attributes().dim);
  const std::vector<TensorView*> parts = e.tensorInputs();
  IntExpr begin = 0;
  for (size_t k = 0; k < operand; k++) {
    begin += size(parts[k]->shape()[dim]);
  }
  Read read{at, {}};
  read.at[dim] = at[dim] - begin;
  const bool isLast = operand + 1 == parts.size();
  if (!isLast) {
    read.where.push_back({at[dim], begin + size(parts[operand]->shape()[dim])});
  }
  if (operand > 0 || isLast) {
    read.where.push_back({begin - 1, at[dim]});
  }
  return read;
}

std::vector<IntExpr> slice(const ExprAttributes& a, const std::vector<IntExpr>& at, const SizeName& size) {
  std::vector<IntExpr> read;
  for (size_t d = 0; d < at.size(); d++) {
    read.push_back(at[d] * size(a.steps[d]) + size(a.starts[d]));
  }
  return read;
}

std::vector<IntExpr> shapeOp(const Expr& e, const std::vector<IntExpr>& at, const SizeName& size) {
  const ExprAttributes& a = e.attributes();
  std::vector<IntExpr> read;
  switch (e.kind()) {
    case ExprKind::Broadcast:
      for (size_t d = 0; d < at.size(); d++) {
        if (!a.flags[d]) {
          read.push_back(at[d]);
        }
      }
      return read;
    case ExprKind::Squeeze: {
      size_t d = 0;
      for (bool dropped : a.flags) {
        read.push_back(dropped ? IntExpr(0) : at[d++]);
      }
      return read;
    }
    case ExprKind::Permute:
      read.resize(at.size());
      for (size_t d = 0; d < at.size(); d++) {
        read[static_cast<size_t>(a.order[d])] = at[d];
      }
      return read;
    case ExprKind::Reshape:
      return reshapeIndex(at, e.tensorOutput()->shape(), e.tensorInputs()[0]->shape());
    case ExprKind::Slice:
      return slice(a, at, size);
    default:
      return at;
  }
}

bool isDivided(const IntExpr& e) {
  return std::ranges::any_of(e.terms(), [](const IntTerm& t) {
    return std::ranges::any_of(t.factors, [](const IntAtomPtr& f) { return f->kind != AtomKind::Symbol; });
  });
}

}  // namespace

std::vector<IntExpr> stretched(const TensorView* tensor, const std::vector<IntExpr>& at) {
  const std::vector<IntExpr> shape = tensor->shape();
  std::vector<IntExpr> read;
  for (size_t d = 0; d < shape.size(); d++) {
    read.push_back(shape[d].isConst(1) ? IntExpr(0) : at[d]);
  }
  return read;
}

Read readBy(const Expr& e, size_t operand, const std::vector<IntExpr>& at, const SizeName& size) {
  switch (e.kind()) {
    case ExprKind::Pad:
      return pad(e, at, size);
    case ExprKind::Cat:
      return cat(e, operand, at, size);
    default:
      return {stretched(e.tensorInputs()[operand], shapeOp(e, at, size)), {}};
  }
}

int64_t sizeOf(const std::vector<IntExpr>& position) {
  int64_t n = 0;
  for (const IntExpr& e : position) {
    n += e.size();
  }
  return n;
}

bool isOvergrown(const std::vector<IntExpr>& at, const std::vector<IntExpr>& read) {
  return sizeOf(read) > kMaxPositionSize && std::ranges::any_of(at, isDivided);
}

std::string overgrownReason(const Expr& reshape) {
  return fmt::format("{} is a reshape of {} whose index cannot be simplified", reshape.output()->toString(),
                     reshape.input(0)->toString());
}

}  // namespace meshfuse
