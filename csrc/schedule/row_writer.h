// RowWriter: the writing of one kernel of rows. See rows.h for the structures and lowering.h for what fills them.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "ir/fusion.h"
#include "schedule/rows.h"

namespace meshfuse {

using tile::ValueId;

// The type a reduction of `type` accumulates in.
[[nodiscard]] inline DataType accumulateIn(DataType type) { return isHalfPrecision(type) ? DataType::Float : type; }

class RowWriter {
 public:
  RowWriter(const Group& group, const Coordinates& coordinates, const KernelAxes& axes, const RowDigits& digits,
            tile::Target target, const std::string& name);
  KernelPlan write();

 private:
  // -- loops ------------------------------------------------------------------------------------------------------------
  using Step = std::function<std::vector<ValueId>(std::span<const ValueId>)>;
  std::vector<int> serialDigits(int axis) const;  // outermost first
  bool isLooped(int axis) const { return !serialDigits(axis).empty(); }
  void over(int axis, const std::function<void()>& body);
  std::vector<ValueId> overCarrying(int axis, std::vector<ValueId> init, const Step& body);
  std::vector<ValueId> overDigits(int axis, std::span<const int> digits, std::vector<ValueId> init, const Step& body);
  IntExpr coord(int axis) const { return axis < 0 ? IntExpr(0) : builder_.coord(space_, axis); }
  IntExpr row() const { return row_ ? *row_ : coord(m_); }
  std::vector<IntExpr> here() const { return axes_.dims(c_, row(), coord(k_), coord(n_)); }
  Lowering::Position position(const TensorView* tv) const { return positionOf(c_, tv, here()); }
  uint64_t digitSet(int axis) const;

  // -- outputs ------------------------------------------------------------------------------------------------------------
  bool isRowOutput(const TensorView* out) const;
  bool storesLast() const;
  bool sweepsAreLoops() const { return isLooped(k_) || isLooped(n_); }
  void storeOutputs(bool rows, bool full);
  bool streams(const TensorView* out) const;

  // -- reductions ---------------------------------------------------------------------------------------------------------
  std::vector<const Expr*> ofRound(int round) const;
  ValueId operandOf(const Expr* reduction);
  ValueId combine(const Expr* reduction, ValueId a, ValueId b);
  ValueId startOf(const Expr* reduction, uint64_t digits);
  ValueId spread(const Expr* reduction, ValueId x, uint64_t digits);
  void bindResult(const Expr* reduction, ValueId value);
  std::vector<ValueId> combineAll(const std::vector<const Expr*>& exprs, std::span<const ValueId> a,
                                  std::span<const ValueId> b);
  std::vector<ValueId> inBlocks(int axis, const std::vector<const Expr*>& exprs, std::vector<ValueId> init,
                                const Step& step);
  void sweep(int round, const std::function<void()>& alongside);
  void inner();
  void outer();
  void hoistRows(int round, std::optional<int> sweep = std::nullopt);

  // -- stash: dear tensors of one sweep, kept in a scratch row for the next ones ------------------------------------------
  void chooseStash();
  void placeStash();
  bool isDear(const TensorView* tensor) const;
  const TensorView* tensorOf(int id) const;
  std::map<int, std::set<int>> sweepsOfAll() const;
  void stash(int round);
  void dropStash(int round);
  void useStash(int round);

  // -- prefetch -------------------------------------------------------------------------------------------------------------
  int64_t stepWidth() const;
  void prefetch(const std::vector<IntExpr>& dims, int64_t width, bool byRow);
  void prefetchNextRow();
  void prefetchShare(int sweep, int sweeps);
  void prefetchPointwise();

  // -- software pipeline over rows --------------------------------------------------------------------------------------------
  struct Delayed {
    const Expr* reduction;
    int age;  // steps since it was computed
  };
  void pipelined();
  IntExpr pipelineBase() const;  // first row of the part
  IntExpr pipelineRow(int stage) const;
  std::vector<Delayed> delayedResults() const;
  std::vector<Lowering::Scope> openStages(const std::vector<Delayed>& delayed, std::span<const ValueId> carried);
  std::vector<ValueId> runStages(const std::vector<Lowering::Scope>& scopes, const std::vector<tile::Pred>& isRow,
                                 std::span<const ValueId> sums);
  std::vector<ValueId> ageResults(const std::vector<Delayed>& delayed, std::span<const ValueId> carried,
                                  const std::vector<ValueId>& sums);

  // -- outer reduction through a scratch row ----------------------------------------------------------------------------------
  std::vector<int> scratchRows(const std::vector<const Expr*>& exprs, const char* name);
  std::vector<tile::Index> inScratch() const;
  void startRows(const std::vector<const Expr*>& exprs, const std::vector<int>& rows);
  void addRows(const std::vector<const Expr*>& exprs, const std::vector<int>& to, const std::vector<int>& from);
  void sumInScratch(const std::vector<const Expr*>& exprs, const std::vector<int>& rows);
  void outerInScratch();

  // -- partial results of parts, combined in part order by the last to arrive --------------------------------------------------
  int workspace(const std::string& name, DataType type, std::vector<IntExpr> extents, bool zeroed);
  void combineRows(const std::vector<const Expr*>& exprs, const std::vector<int>& rows);
  std::vector<tile::Builder::DigitSpec> lastDigits() const;
  void finish(const std::vector<const Expr*>& exprs, int space, const std::function<ValueId(size_t)>& partial);
  void split();

  struct Stashed {
    int round = 0;  // the sweep that computes it
    int last = 0;   // the last one that reads it
    int param = -1;
  };
  const Group& group_;
  const Coordinates& c_;
  const KernelAxes& axes_;
  const RowDigits& digits_;
  KernelPlan plan_;
  tile::Builder builder_;
  Lowering lowering_;
  int space_ = 0;
  std::optional<IntExpr> row_;  // where it is not the coordinate of m
  int m_ = -1;
  int k_ = -1;
  int n_ = -1;
  std::vector<const Expr*> reductions_;
  int storeSweep_ = 0;  // that of the spread outputs: the first if none waits for a reduction, else `rounds`, after all
  std::map<int, Stashed> stashed_;       // by Val id
  std::map<int, std::set<int>> sweeps_;  // of sweepsOfAll
};

}  // namespace meshfuse
