// Lists of dims, and the root domain, in the text form.
//
// Permute, reshape, slice and pad imply the root (the operand's shape) and the derivation of the logical dims, so their lines omit
// both. If a tensor differs from the domains that its op implies, its line states the derivation from root to logical:
//
//   root[r{16}; outer_split(0, 2)]          root r{16}; logical: the two parts
//   root[2, 3, 4; merge(0), resize(1, -1, 0), new(0), drop(2), reorder[1, 0]]
//   root[14; partition(0, [2, 3, 4, 5])]    parts of given sizes
//   root[logical]                           no root although the op implies one
//
// Each position refers to the list after the steps before it. new(k) inserts a dim without a transform: it has the extent and type of the
// logical dim.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/fusion.h"

namespace meshfuse {

[[nodiscard]] bool impliesRoot(ExprKind kind);

// The logical dims that the op implies. UserError if they do not follow (a reshape whose products are not known to agree).
[[nodiscard]] std::vector<IterDomain*> connectImplied(Fusion& fusion, ExprKind kind, const ExprAttributes& attributes,
                                                      const std::vector<IterDomain*>& root,
                                                      const std::vector<Dim>& logical);

// "16, r{16}, p{2}, b{1}": dims without bindings, which belong to the loop domain. `text` prints extents.
[[nodiscard]] std::string dimsText(const std::vector<IterDomain*>& ids,
                                   const std::function<std::string(const IntExpr&)>& text);

// "root[...]", or "" without a root.
[[nodiscard]] std::string rootText(const TensorView& tensor, const std::function<std::string(const IntExpr&)>& text);

// Callbacks of the parser for a text that contains root[...].
struct RootReader {
  Fusion* fusion;
  std::function<IntExpr(std::string_view)> expression;
  std::function<void(std::string_view)> standAt;  // errors from now on name this position
};

// The dims that the steps after the semicolon derive from the root dims. UserError on malformed steps.
[[nodiscard]] std::vector<IterDomain*> applyRootSteps(std::string_view steps, std::vector<IterDomain*> dims,
                                                      const std::vector<Dim>& logical, const RootReader& reader);

}  // namespace meshfuse
