#include "ir/fusion_cloner.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

FusionCloner::FusionCloner(const Fusion& from, Fusion& to, Rewrite rewrite, Numbers numbers)
    : from_(from), to_(to), rewrite_(std::move(rewrite)), numbers_(numbers) {
  to_.nextSymbol_ = std::max(to_.nextSymbol_, from_.nextSymbol_);
  to_.nextOrdinal_ = std::max(to_.nextOrdinal_, from_.nextOrdinal_);
  if (numbers_ == Numbers::Kept) {
    invariant(to_.vals_.empty(), "[clone] the destination already has {} values, expected an empty fusion",
              to_.vals_.size());
    to_.reserveId(from_.numVals() - 1);
  }
}

// The next value of the copy is to have the number of `val`.
void FusionCloner::numberNext(const Val* val) {
  if (numbers_ == Numbers::Kept) {
    to_.nextValId_ = val->id();
  }
}

Val* FusionCloner::find(const Val* val) const {
  auto it = vals_.find(val);
  return it == vals_.end() ? nullptr : it->second;
}

IterDomain* FusionCloner::find(const IterDomain* id) const {
  auto it = ids_.find(id);
  return it == ids_.end() ? nullptr : it->second;
}

Val* FusionCloner::clone(const Val* val) {
  if (Val* known = find(val)) {
    return known;
  }
  if (val->isTensor()) {
    return clone(val->asTensor());
  }
  Val* copy = nullptr;
  bool named = val->isFusionInput() || val->definition() != nullptr;
  if (!named && val->dtype() == DataType::Int) {
    copy = to_.intScalar(rewritten(val->intExpr()));
  } else if (!named && val->isConst()) {
    copy = to_.scalar(val->constant());
  } else {
    numberNext(val);
    copy = to_.take(std::make_unique<Val>(), val->dtype());
    if (val->dtype() == DataType::Int) {
      copy->intExpr_ = rewritten(val->intExpr());
      to_.scalars_["Int " + copy->intExpr_.toString()] = copy;
    }
  }
  vals_[val] = copy;
  return copy;
}

TensorView* FusionCloner::clone(const TensorView* tensor) {
  if (Val* known = find(tensor)) {
    return known->asTensor();
  }
  numberNext(tensor);
  TensorView* copy = to_.newTensor(tensor->dtype());
  vals_[tensor] = copy;
  // The dims, then the transforms among them in the order of their results.
  const std::vector<IterDomain*> ids = allIds(*tensor);
  for (const IterDomain* id : ids) {
    cloneId(id, std::nullopt);
  }
  for (const IterDomain* id : ids) {
    if (id->definition() != nullptr && id->definition()->out[0] == id) {
      cloneIdExpr(id->definition());
    }
  }
  copyDomains(tensor, copy);
  return copy;
}

void FusionCloner::cloneId(const IterDomain* id, std::optional<int64_t> sameId) {
  IterDomain* copy = to_.idNew({rewritten(id->extent()), id->iterType(), id->combine()});
  invariant(!sameId || copy->id() == *sameId, "[clone] the copy of dim {} has id {}, expected the same id", *sameId,
            copy->id());
  copy->parallelType_ = id->parallelType_;
  copy->replaced_ = id->replaced_;
  ids_[id] = copy;
}

void FusionCloner::cloneIdExpr(const IdExpr* expr) {
  IdExpr copy = *expr;
  copy.in = copiesOf(expr->in);
  copy.out = copiesOf(expr->out);
  copy.factor = rewritten(expr->factor);
  copy.left = rewritten(expr->left);
  copy.right = rewritten(expr->right);
  copy.sizes = rewritten(expr->sizes);
  to_.newIdExpr(std::move(copy));
}

std::vector<IterDomain*> FusionCloner::copiesOf(const std::vector<IterDomain*>& ids) const {
  return mapped(ids, [this](const IterDomain* id) { return ids_.at(id); });
}

std::vector<IntExpr> FusionCloner::rewritten(const std::vector<IntExpr>& list) const {
  return mapped(list, [this](const IntExpr& e) { return rewritten(e); });
}

void FusionCloner::copyDomains(const TensorView* from, TensorView* to) const {
  to->root_ = copiesOf(from->root_);
  to->hasRoot_ = from->hasRoot_;
  to->logical_ = copiesOf(from->logical_);
  to->loop_ = copiesOf(from->loop_);
  to->allocation_ = copiesOf(from->allocation_);
  to->contiguity_ = from->contiguity_;
  to->mesh_ = rewritten(from->mesh_);
  to->userSharded_ = from->userSharded_;
  to->transforms_ = from->transforms_;
  for (LoopTransform& t : to->transforms_) {
    t.factor = rewritten(t.factor);
    t.sizes = rewritten(t.sizes);
  }
}

ExprAttributes FusionCloner::attributesOf(const Expr* expr) {
  ExprAttributes attributes = expr->attributes();
  for (auto* list : {&attributes.starts, &attributes.stops, &attributes.steps}) {
    *list = rewritten(*list);
  }
  if (expr->kind() == ExprKind::Communicate) {
    attributes.comm.root = rewritten(attributes.comm.root);
    attributes.comm.mesh = to_.meshNumber(rewritten(from_.meshes().at(attributes.comm.mesh)));
  }
  return attributes;
}

Expr* FusionCloner::clone(const Expr* expr) {
  const auto copied = [this](const Val* v) { return clone(v); };
  std::vector<Val*> inputs = mapped(expr->inputs(), copied);
  std::vector<Val*> outputs = mapped(expr->outputs(), copied);
  return to_.addExpr(expr->kind(), std::move(inputs), std::move(outputs), attributesOf(expr));
}

std::unique_ptr<Fusion> FusionCloner::cloneAll(const Fusion& from) {
  auto copy = std::make_unique<Fusion>();
  FusionCloner cloner(from, *copy);
  copy->meshes_ = from.meshes_;
  copy->planner_ = from.planner_;
  for (const auto& id : from.ids_) {
    cloner.cloneId(id.get(), id->id());
  }
  for (const auto& e : from.idExprs_) {
    cloner.cloneIdExpr(e.get());
  }
  for (const auto& id : from.ids_) {
    cloner.ids_.at(id.get())->replaced_ = id->replaced_;
  }
  copy->reserveId(from.numVals() - 1);
  for (const auto& v : from.vals_) {
    if (v == nullptr) {
      continue;
    }
    copy->nextValId_ = v->id();
    Val* c = v->isTensor() ? copy->newTensor(v->dtype()) : copy->take(std::make_unique<Val>(), v->dtype());
    if (v->isTensor()) {
      cloner.copyDomains(v->asTensor(), c->asTensor());
    }
    c->constant_ = v->constant_;
    c->intExpr_ = v->intExpr_;
    c->isInput_ = v->isInput_;
    c->isOutput_ = v->isOutput_;
    cloner.set(v.get(), c);
  }
  for (const auto& e : from.exprs_) {
    if (e != nullptr) {
      cloner.clone(e.get());
    } else {
      copy->exprs_.push_back(nullptr);  // keeps the ids of those that follow
    }
  }
  for (const auto& [key, val] : from.scalars_) {
    copy->scalars_[key] = cloner.find(val);
  }
  const auto copied = [&](const Val* v) { return cloner.find(v); };
  copy->inputs_ = mapped(from.inputs_, copied);
  copy->outputs_ = mapped(from.outputs_, copied);
  copy->inputNames_ = from.inputNames_;
  copy->outputNames_ = from.outputNames_;
  for (const auto& [out, in] : from.aliases_) {
    copy->aliases_.emplace_back(cloner.find(out), cloner.find(in));
  }
  return copy;
}

std::unique_ptr<Fusion> Fusion::clone() const { return FusionCloner::cloneAll(*this); }

}  // namespace meshfuse
