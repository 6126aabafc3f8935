// FusionCloner: copies parts of one fusion into another, for segments and rewritten stages.
//
//   FusionCloner cloner(from, to);
//   for (Val* in : group.inputs) to.addInput(cloner.clone(in));
//   for (Expr* e : group.exprs) cloner.clone(e);
//
// Domains, transforms, bindings, memory order and meshes are copied; symbols keep their names, random ops their ordinals. Ids are
// fresh; a stage that makes a whole program anew keeps the values' numbers, so that T7 is T7 from the user's file to the kernel.
// A value that is cloned twice has one copy. Fusion::clone() copies a whole fusion with its ids.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/fusion.h"

namespace meshfuse {

class FusionCloner {
 public:
  // `rewrite`, if given, is applied to every extent, factor, symbol and integer attribute (for example to bind symbols).
  using Rewrite = std::function<IntExpr(const IntExpr&)>;
  // Kept: inputs and results keep their numbers from `from`. Every other new value of `to`, which must be empty, gets a number that no
  // value of `from` has.
  enum class Numbers : uint8_t { Fresh, Kept };
  FusionCloner(const Fusion& from, Fusion& to, Rewrite rewrite = {}, Numbers numbers = Numbers::Fresh);
  // From here on copies are on these meshes instead of the original meshes.
  void rewriteMeshes(std::function<DeviceMesh(const DeviceMesh&)> rewrite) { rewriteMesh_ = std::move(rewrite); }

  // The copy has no definition until its Expr is cloned. Constants map to constants.
  Val* clone(const Val* val);
  TensorView* clone(const TensorView* tensor);
  // With copies of operands and results.
  Expr* clone(const Expr* expr);
  // From here on `to` counts as the copy of `from`.
  void set(const Val* from, Val* to) { vals_[from] = to; }
  // The copy, or nullptr if there is none yet.
  Val* find(const Val* val) const;
  IterDomain* find(const IterDomain* id) const;

  // All of `from` with equal ids into an empty fusion.
  static std::unique_ptr<Fusion> cloneAll(const Fusion& from);

 private:
  IntExpr rewritten(const IntExpr& e) const { return rewrite_ ? rewrite_(e) : e; }
  std::vector<IntExpr> rewritten(const std::vector<IntExpr>& list) const;
  DeviceMesh rewritten(const DeviceMesh& mesh) const {
    return rewriteMesh_ && !mesh.empty() ? rewriteMesh_(mesh) : mesh;
  }
  void numberNext(const Val* val);
  void copyDomains(const TensorView* from, TensorView* to) const;  // whose dims are cloned already
  std::vector<IterDomain*> copiesOf(const std::vector<IterDomain*>& ids) const;
  void cloneId(const IterDomain* id, std::optional<int64_t> sameId);
  void cloneIdExpr(const IdExpr* expr);
  ExprAttributes attributesOf(const Expr* expr);

  const Fusion& from_;
  Fusion& to_;
  Rewrite rewrite_;
  std::function<DeviceMesh(const DeviceMesh&)> rewriteMesh_;
  Numbers numbers_;
  // Looked up only, never iterated.
  std::unordered_map<const Val*, Val*> vals_;
  std::unordered_map<const IterDomain*, IterDomain*> ids_;
};

}  // namespace meshfuse
