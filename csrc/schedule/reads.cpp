#include "schedule/reads.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "digits/row_major.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

Read pad(const Expr& e, const std::vector<IntExpr>& at, const SizeName& size) {
  const std::vector<IntExpr> shape = e.tensorInputs()[0]->shape();
  Read read;
  for (int64_t d = 0; d < std::ssize(shape); d++) {
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
  const int64_t dim = e.attributes().dim;
  const std::vector<TensorView*> parts = e.tensorInputs();
  auto length = [&](const TensorView* part) { return size(part->shape()[dim]); };
  const IntExpr begin = sumOf(parts | std::views::take(operand), length);
  Read read{at, {}};
  read.at[dim] = at[dim] - begin;
  const bool isLast = operand + 1 == parts.size();
  if (!isLast) {
    read.where.push_back({at[dim], begin + length(parts[operand])});
  }
  if (operand > 0 || isLast) {
    read.where.push_back({begin - 1, at[dim]});
  }
  return read;
}

std::vector<IntExpr> slice(const ExprAttributes& a, const std::vector<IntExpr>& at, const SizeName& size) {
  return mapped(indices(at), [&](int64_t d) { return at[d] * size(a.steps[d]) + size(a.starts[d]); });
}

std::vector<IntExpr> shapeOp(const Expr& e, const std::vector<IntExpr>& at, const SizeName& size) {
  switch (ruleOf(e).form) {
    case OpForm::Broadcast:
    case OpForm::Squeeze:
    case OpForm::Permute: {
      std::vector<IntExpr> read(e.tensorInputs()[0]->noReductions().size(), 0);
      for (const DimPair& dims : linkedDims(e, 0)) {
        read[dims.operand] = at[dims.result];
      }
      return read;
    }
    case OpForm::Reshape:
      return reshapeIndex(at, mapped(e.tensorOutput()->shape(), size), mapped(e.tensorInputs()[0]->shape(), size));
    case OpForm::Window:
      return slice(e.attributes(), at, size);
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

Read readBy(const Expr& e, size_t operand, const std::vector<IntExpr>& at, const SizeName& size) {
  if (e.kind() != ExprKind::Pad && e.kind() != ExprKind::Cat) {
    return {stretched(e.tensorInputs()[operand]->shape(), shapeOp(e, at, size)), {}};
  }
  Read read = e.kind() == ExprKind::Pad ? pad(e, at, size) : cat(e, operand, at, size);
  std::erase_if(read.where, [](const tile::Pred& p) { return provenLess(p.lhs, p.rhs); });
  return read;
}

bool readsElsewhere(const Expr& e) {
  const OpForm form = ruleOf(e).form;
  return form == OpForm::Window || form == OpForm::Concatenate || form == OpForm::Index;
}

std::vector<DimPair> linkedDims(const Expr& e, int64_t operand) {
  const OperandDims dims = dimsRead(e, operand);
  const std::vector<IterDomain*>& root = e.tensorOutput()->getRootDomain();
  const std::vector<IterDomain*> stored = e.tensorOutput()->noReductions();
  std::vector<DimPair> pairs;
  for (int64_t k = 0; k < std::ssize(root); k++) {
    const auto at = std::ranges::find(stored, root[k]);
    if (dims.ofConsumer[k].producer >= 0 && at != stored.end()) {
      pairs.push_back({static_cast<size_t>(dims.ofConsumer[k].producer), static_cast<size_t>(at - stored.begin())});
    }
  }
  return pairs;
}

bool isOvergrown(const std::vector<IntExpr>& at, const std::vector<IntExpr>& read) {
  return sumOf(read, &IntExpr::size) > kMaxPositionSize && std::ranges::any_of(at, isDivided);
}

std::string overgrownReason(const Expr& reshape) {
  return fmt::format("{} is a reshape of {} whose index cannot be simplified", reshape.output()->toString(),
                     reshape.input(0)->toString());
}

}  // namespace meshfuse
