#include "ir/root_text.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/attribute_text.h"
#include "ir/op_rule.h"
#include "ir/reshape.h"
#include "ir/window.h"

namespace meshfuse {

namespace {

using ExtentText = std::function<std::string(const IntExpr&)>;

// Walks from the root to the logical domain, writing each step down.
class RootWalk {
 public:
  RootWalk(std::vector<IterDomain*> root, const ExtentText& text) : dims_(std::move(root)), text_(text) {}

  std::string walk(const std::vector<IterDomain*>& logical) {
    for (const IdExpr* e : transformsBetween(dims_, logical)) {
      apply(*e);
    }
    for (int64_t k = std::ssize(dims_) - 1; k >= 0; k--) {
      if (!contains(logical, dims_[k])) {
        step(fmt::format("drop({})", k));
        dims_.erase(dims_.begin() + k);
      }
    }
    for (int64_t k = 0; k < std::ssize(logical); k++) {
      if (!contains(dims_, logical[k])) {
        const int64_t at = std::min(k, std::ssize(dims_));
        step(fmt::format("new({})", at));
        dims_.insert(dims_.begin() + at, logical[k]);
      }
    }
    reorderTo(logical);
    return steps_;
  }

 private:
  int64_t position(const IterDomain* id) const { return positionIn(dims_, id); }

  void step(const std::string& s) { steps_ += (steps_.empty() ? "" : ", ") + s; }

  void apply(const IdExpr& e) {
    if (!std::ranges::all_of(e.in, [&](const IterDomain* in) { return contains(dims_, in); })) {
      return;  // not dims of this tensor any more: the verifier's matter
    }
    if (e.kind == IdExprKind::Merge) {
      std::vector<IterDomain*> moved = dims_;
      std::erase(moved, e.in[1]);
      moved.insert(std::ranges::find(moved, e.in[0]) + 1, e.in[1]);
      reorderTo(moved);
    }
    const int64_t at = position(e.in[0]);
    switch (e.kind) {
      case IdExprKind::Split:
        step(fmt::format("{}_split({}, {})", e.innerSplit ? "inner" : "outer", at, text_(e.factor)));
        break;
      case IdExprKind::Partition:
        step(fmt::format("partition({}, {})", at, listText(e.sizes, text_)));
        break;
      case IdExprKind::Resize:
        step(fmt::format("resize({}, {}, {})", at, text_(e.left), text_(e.right)));
        break;
      case IdExprKind::Merge:
        step(fmt::format("merge({})", at));
        break;
    }
    const auto place = dims_.erase(dims_.begin() + at, dims_.begin() + at + std::ssize(e.in));
    dims_.insert(place, e.out.begin(), e.out.end());
  }

  void reorderTo(const std::vector<IterDomain*>& order) {
    if (order != dims_) {
      step("reorder" + listText(order, [&](const IterDomain* id) { return std::to_string(position(id)); }));
      dims_ = order;
    }
  }

  std::vector<IterDomain*> dims_;
  const ExtentText& text_;
  std::string steps_;
};

}  // namespace

bool impliesRoot(ExprKind kind) {
  const OpForm form = ruleOf(kind).form;
  return form == OpForm::Permute || form == OpForm::Reshape || form == OpForm::Window;
}

std::vector<IterDomain*> connectImplied(Fusion& fusion, ExprKind kind, const ExprAttributes& attributes,
                                        const std::vector<IterDomain*>& root, const std::vector<Dim>& logical) {
  if (kind == ExprKind::Permute) {
    check(std::ranges::all_of(attributes.order, [&](int64_t k) { return k >= 0 && k < std::ssize(root); }),
          "[permute] got the order [{}], expected axes from 0 to {}", fmt::join(attributes.order, ", "),
          std::ssize(root) - 1);
    return mapped(attributes.order, [&](int64_t k) { return root[k]; });
  }
  if (kind == ExprKind::Slice) {
    return connectSlice(fusion, root, attributes.starts, attributes.stops, attributes.steps);
  }
  if (kind == ExprKind::Pad) {
    return connectPad(fusion, root, attributes.starts, attributes.stops);
  }
  invariant(kind == ExprKind::Reshape, "[ir] {} implies no root domain", ruleOf(kind).name);
  if (contains(std::views::transform(logical, &Dim::type), IterType::Symbolic)) {
    return mapped(logical, [&](const Dim& d) { return fusion.idNew(d); });
  }
  return connectReshape(fusion, root, mapped(logical, &Dim::extent));
}

std::string dimsText(const std::vector<IterDomain*>& ids, const ExtentText& text) {
  return joined(ids, ", ", [&](const IterDomain* id) { return id->textOf(text(id->extent())); });
}

std::string rootText(const TensorView& tensor, const ExtentText& text) {
  if (!tensor.hasRoot()) {
    return "";
  }
  return fmt::format("root[{}; {}]", dimsText(tensor.getRootDomain(), text),
                     RootWalk(tensor.getRootDomain(), text).walk(tensor.getLogicalDomain()));
}

}  // namespace meshfuse
