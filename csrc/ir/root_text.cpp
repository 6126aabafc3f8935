#include "ir/root_text.h"

#include <algorithm>

#include "base/error.h"
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
    for (size_t k = dims_.size(); k-- > 0;) {
      if (std::find(logical.begin(), logical.end(), dims_[k]) == logical.end()) {
        step(fmt::format("drop({})", k));
        dims_.erase(dims_.begin() + k);
      }
    }
    for (size_t k = 0; k < logical.size(); k++) {
      if (position(logical[k]) < 0) {
        size_t at = std::min(k, dims_.size());
        step(fmt::format("new({})", at));
        dims_.insert(dims_.begin() + at, logical[k]);
      }
    }
    reorderTo(logical);
    return steps_;
  }

 private:
  std::ptrdiff_t position(const IterDomain* id) const {
    auto it = std::find(dims_.begin(), dims_.end(), id);
    return it == dims_.end() ? -1 : it - dims_.begin();
  }

  void step(const std::string& s) { steps_ += (steps_.empty() ? "" : ", ") + s; }

  void apply(const IdExpr& e) {
    std::ptrdiff_t at = position(e.in[0]);
    if (at < 0) {
      return;  // not a dim of this tensor any more: the verifier's matter
    }
    switch (e.kind) {
      case IdExprKind::Split:
        step(fmt::format("{}_split({}, {})", e.innerSplit ? "inner" : "outer", at, text_(e.factor)));
        dims_[at] = e.out[0];
        dims_.insert(dims_.begin() + at + 1, e.out[1]);
        break;
      case IdExprKind::Partition:
        step(fmt::format("partition({}, {})", at, listText(e.sizes, text_)));
        dims_[at] = e.out[0];
        dims_.insert(dims_.begin() + at + 1, e.out[1]);
        break;
      case IdExprKind::Resize:
        step(fmt::format("resize({}, {}, {})", at, text_(e.left), text_(e.right)));
        dims_[at] = e.out[0];
        break;
      case IdExprKind::Merge: {
        if (position(e.in[1]) < 0) {
          return;
        }
        if (position(e.in[1]) != at + 1) {
          std::vector<IterDomain*> moved = dims_;
          std::erase(moved, e.in[1]);
          moved.insert(std::find(moved.begin(), moved.end(), e.in[0]) + 1, e.in[1]);
          reorderTo(moved);
          at = position(e.in[0]);
        }
        step(fmt::format("merge({})", at));
        dims_[at] = e.out[0];
        dims_.erase(dims_.begin() + at + 1);
        break;
      }
    }
  }

  void reorderTo(const std::vector<IterDomain*>& order) {
    if (order == dims_) {
      return;
    }
    std::string positions;
    for (const IterDomain* id : order) {
      positions += fmt::format("{}{}", positions.empty() ? "" : ", ", position(id));
    }
    step("reorder[" + positions + "]");
    dims_ = order;
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
    check(std::all_of(attributes.order.begin(), attributes.order.end(),
                      [&](int k) { return k >= 0 && k < std::ssize(root); }),
          "[permute] the order names axes outside of 0 to {}", static_cast<int>(root.size()) - 1);
    std::vector<IterDomain*> dims;
    for (int k : attributes.order) {
      dims.push_back(root[k]);
    }
    return dims;
  }
  if (kind == ExprKind::Slice) {
    return connectSlice(fusion, root, attributes.starts, attributes.stops, attributes.steps);
  }
  if (kind == ExprKind::Pad) {
    return connectPad(fusion, root, attributes.starts, attributes.stops);
  }
  invariant(kind == ExprKind::Reshape, "[ir] {} implies no root domain", ruleOf(kind).name);
  std::vector<IntExpr> extents;
  std::vector<IterDomain*> fresh;
  bool symbolic = false;
  for (const Dim& d : logical) {
    symbolic |= d.type == IterType::Symbolic;
    extents.push_back(d.extent);
  }
  if (!symbolic) {
    return connectReshape(fusion, root, extents);
  }
  for (const Dim& d : logical) {
    fresh.push_back(fusion.idNew(d));
  }
  return fresh;
}

std::string dimsText(const std::vector<IterDomain*>& ids, const ExtentText& text) {
  std::string list;
  for (const IterDomain* id : ids) {
    list += (list.empty() ? "" : ", ") + id->textOf(text(id->extent()));
  }
  return list;
}

std::string rootText(const TensorView& tensor, const ExtentText& text) {
  if (!tensor.hasRoot()) {
    return "";
  }
  return fmt::format("root[{}; {}]", dimsText(tensor.getRootDomain(), text),
                     RootWalk(tensor.getRootDomain(), text).walk(tensor.getLogicalDomain()));
}

}  // namespace meshfuse
