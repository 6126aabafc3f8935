// Fusion: a program over tensors. Owns its nodes; iteration is always in id order.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "ir/expr.h"
#include "ir/planner_settings.h"
#include "ir/tensor_view.h"
#include "ir/val.h"

namespace meshfuse {

// A dim of a new tensor.
struct Dim {
  IntExpr extent;
  IterType type = IterType::Iteration;
  ReduceOp combine = ReduceOp::Sum;  // Partial
};

// New dims like the given ones; for a tensor: like its stored dims.
[[nodiscard]] std::vector<Dim> dimsOf(const std::vector<IterDomain*>& ids);
[[nodiscard]] std::vector<Dim> dimsOf(const TensorView* tv);

// Which exprs of a fusion: the exprs that outputs and communications need, or all exprs, including dead ones.
enum class ExprSet : uint8_t { Needed, All };

class Fusion {
 public:
  Fusion();
  ~Fusion();
  Fusion(const Fusion&) = delete;
  Fusion& operator=(const Fusion&) = delete;
  // A copy with the same ids, order and text.
  std::unique_ptr<Fusion> clone() const;

  // -- inputs and outputs ---------------------------------------------------------------------------------------------
  // `name` is for errors, explanations, and calls by name; empty: none. UserError if it is that of another input (output), has other
  // characters than letters, digits and _ . - / :, or has the form of a value's number, such as T0 or S1. UserError if `val` has a
  // definition, is an input already, or is of another fusion.
  void addInput(Val* val, std::string name = {});
  // UserError if `val` is a scalar or of another fusion, and for a name as above.
  void addOutput(Val* val, std::string name = {});
  void removeOutput(Val* val);
  // After a run the input's buffer holds the output, which becomes an output if it is not one yet. UserError if shapes or types differ, if
  // `input` is no input of this fusion, or if one of the two is a scalar, of another fusion, or aliased already.
  void aliasOutputToInput(Val* output, Val* input);
  const std::vector<Val*>& inputs() const { return inputs_; }
  const std::vector<Val*>& outputs() const { return outputs_; }
  const std::vector<std::string>& inputNames() const { return inputNames_; }  // empty where none was given
  const std::vector<std::string>& outputNames() const { return outputNames_; }
  std::optional<int64_t> aliasOf(int64_t output) const;  // position of the input that output number `output` aliases
  const std::vector<std::pair<Val*, Val*>>& aliases() const { return aliases_; }  // (output, input)

  // -- nodes ----------------------------------------------------------------------------------------------------------
  // Topological order with ties by id, by default without the exprs that no output and no communication needs.
  std::vector<Expr*> exprs(ExprSet set = ExprSet::Needed) const;
  std::vector<TensorView*> tensors(ExprSet set = ExprSet::Needed) const;         // in the order of definition
  std::vector<Expr*> uses(const Val* val) const { return uses_.at(val->id()); }  // in id order
  std::vector<TensorView*> allTvs() const { return tensors(); }                  // nvFuser's name
  Expr* expr(int64_t id) const { return exprs_.at(id).get(); }                   // nullptr if removed
  int64_t numExprs() const { return std::ssize(exprs_); }                        // all ids are smaller
  Val* val(int64_t id) const { return vals_.at(id).get(); }  // nullptr for a number that the parsed text does not use
  int64_t numVals() const { return std::ssize(vals_); }

  Val* scalar(ScalarConst value);                // interned
  Val* intScalar(const IntExpr& expr);           // interned
  Val* zeroVal(DataType dtype = DataType::Int);  // 0, 0.0 or false: a scalar in the category of `dtype`
  Val* oneVal(DataType dtype = DataType::Int);
  Val* inputScalar(DataType dtype);  // a fresh run-time scalar; Int ones carry a fresh symbol
  // A fresh symbol, "i0", "i1", ...; the same names in a clone.
  IntExpr freshSymbol(SymbolFacts facts = {.lower = 0});
  // A tensor without definition, loop = logical, contiguous.
  TensorView* tensor(DataType dtype, const std::vector<Dim>& logical);
  // A tensor whose logical domain `connect` derives from its root by idSplit, idMerge, idResize.
  TensorView* tensorFromRoot(
      DataType dtype, const std::vector<Dim>& root,
      const std::function<std::vector<IterDomain*>(Fusion&, const std::vector<IterDomain*>&)>& connect);
  Expr* addExpr(ExprKind kind, std::vector<Val*> inputs, std::vector<Val*> outputs, ExprAttributes attributes = {});
  // The result of a new expr: a tensor with these logical dims.
  TensorView* addOp(ExprKind kind, std::vector<Val*> inputs, DataType dtype, const std::vector<Dim>& logical,
                    ExprAttributes attributes = {});
  // Both parts have the type of `in`, or Iteration if `in` is Partial. If `outerType` is given, the outer part has that type. Pass
  // Iteration for a reduced dim if you then call idPartial() on the outer part.
  std::pair<IterDomain*, IterDomain*> idSplit(IterDomain* in, const IntExpr& factor, bool innerSplit,
                                              std::optional<IterType> outerType = std::nullopt);
  IterDomain* idMerge(IterDomain* outer, IterDomain* inner);
  std::pair<IterDomain*, IterDomain*> idPartition(IterDomain* in, const std::vector<IntExpr>& sizes,
                                                  std::optional<IterType> outerType = {});
  IterDomain* idResize(IterDomain* in, const IntExpr& left, const IntExpr& right,
                       std::optional<IterType> type = std::nullopt);
  // Marks an Iteration dim that was split off reduced root dims as Partial: its elements are contributions, which `combine` combines.
  IterDomain* idPartial(IterDomain* stored, ReduceOp combine);
  // A dim without a transform, which `connect` of tensorFromRoot adds (a broadcast) or cannot derive (symbolic).
  IterDomain* idNew(const Dim& dim);
  IterDomain* idNew(const IntExpr& extent, IterType type) { return idNew(Dim{extent, type}); }

  // -- rewriting, for passes --------------------------------------------------------------------------------------------
  // Every use of `from` (outputs and aliases included) reads `to` instead, except in the definition of `to`.
  void replaceUses(Val* from, Val* to);
  void replaceInput(Expr* expr, int64_t operand, Val* to);
  void setPlan(Expr* redistribute, std::vector<CommStep> steps) { redistribute->attributes_.plan = std::move(steps); }
  void setHaloSteps(Expr* window, std::optional<std::vector<HaloStep>> steps) {
    window->attributes_.haloSteps = std::move(steps);
  }
  void setCalledAs(Expr* expr, std::string_view builder) { expr->attributes_.calledAs = builder; }
  void setPack(Expr* redistribute, int64_t pack) { redistribute->attributes_.pack = pack; }
  void removeExpr(Expr* expr);  // its outputs become undefined and unreachable
  // Gives `val` the number `id`; a value that has this number gets that of `val`. Numbers imply no order.
  void renumber(Val* val, int64_t id);
  int64_t nextOrdinal() { return nextOrdinal_++; }

  // Meshes by number, for CommAttributes: the number of `mesh`, added if new.
  int64_t meshNumber(const DeviceMesh& mesh);
  const std::vector<DeviceMesh>& meshes() const { return meshes_; }

  // Settings of the planner of redistributions. The pass check-annotations throws UserError for an unknown move or axis.
  void setPlanner(PlannerSettings settings) { planner_ = std::move(settings); }
  const PlannerSettings& planner() const { return planner_; }

  // -- text -----------------------------------------------------------------------------------------------------------
  std::string toString() const;                    // the .fir form; ir/text.h parses it
  void print() const;                              // to standard output
  void printMath() const;                          // without domains' transforms
  Hash128 hash() const;                            // of the text with values numbered from 0 in order
  bool sameDefinition(const Fusion& other) const;  // equal texts of this kind

 private:
  friend class FusionCloner;
  friend class FusionParser;
  IdExpr* newIdExpr(IdExpr expr);
  void reserveId(int64_t id);
  Val* take(std::unique_ptr<Val> val, DataType dtype);
  TensorView* newTensor(DataType dtype);
  void checkOwn(const Val* val, const char* what) const;
  void addUse(Val* val, Expr* expr);
  void removeUse(Val* val, Expr* expr);

  std::vector<std::unique_ptr<Val>> vals_;
  std::vector<std::unique_ptr<Expr>> exprs_;  // a removed one leaves a null
  std::vector<std::unique_ptr<IterDomain>> ids_;
  std::vector<std::unique_ptr<IdExpr>> idExprs_;
  std::vector<Val*> inputs_;
  std::vector<Val*> outputs_;
  std::vector<std::string> inputNames_;
  std::vector<std::string> outputNames_;
  std::vector<std::pair<Val*, Val*>> aliases_;
  std::vector<std::vector<Expr*>> uses_;  // by val id
  std::vector<DeviceMesh> meshes_;
  PlannerSettings planner_;
  std::map<std::string, Val*> scalars_;  // interned, by text
  std::optional<int64_t> nextValId_;     // of the next value, for the parser
  int64_t nextSymbol_ = 0;
  int64_t nextOrdinal_ = 0;
};

// How errors name an input and an output: "input x (T0)", or by its position if it has no name, "input 0 (T0)".
[[nodiscard]] std::string inputText(const Fusion& fusion, int64_t input);
// The text of an input; "T3" of any other value.
[[nodiscard]] std::string operandText(const Val* val);
[[nodiscard]] std::string outputText(const Fusion& fusion, int64_t output);

// The fusion that factories without an operand (makeContigTensor, iota, rand) write into: thread-local, for users only.
class FusionGuard {
 public:
  explicit FusionGuard(Fusion* fusion);
  ~FusionGuard();
  FusionGuard(const FusionGuard&) = delete;
  FusionGuard& operator=(const FusionGuard&) = delete;
  static Fusion* current();  // UserError without a guard

 private:
  Fusion* previous_;
};

}  // namespace meshfuse
