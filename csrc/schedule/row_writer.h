// RowWriter: the writing of one kernel of rows. See rows.h for the loop structures and lowering.h for the values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "schedule/rows.h"

namespace meshfuse {

using tile::ValueId;

// The type that a reduction accumulates in.
[[nodiscard]] DataType accumulatorOf(const Expr* reduction);

class RowWriter {
 public:
  RowWriter(const Group& group, const Coordinates& coordinates, const KernelAxes& axes, const RowDigits& digits,
            tile::Target target, const std::string& name);
  KernelPlan write();

 private:
  // -- loops ------------------------------------------------------------------------------------------------------------
  using Step = std::function<std::vector<ValueId>(std::span<const ValueId>)>;
  std::vector<int64_t> serialDigits(int64_t axis) const;  // outermost first
  bool isLooped(int64_t axis) const { return !serialDigits(axis).empty(); }
  // Bodies have a scope of their own, also where there is nothing to loop over.
  void over(int64_t axis, const std::function<void()>& body) { over(axis, serialDigits(axis), body); }
  void over(int64_t axis, std::span<const int64_t> digits, const std::function<void()>& body);
  std::vector<ValueId> overDigits(int64_t axis, std::span<const int64_t> digits, std::vector<ValueId> init,
                                  const Step& body);
  IntExpr coord(int64_t axis) const { return axis < 0 ? IntExpr(0) : builder_.coord(space_, axis); }
  IntExpr part() const { return IntExpr::symbol(digits_.grid[0].symbol, {.lower = 0}); }
  IntExpr row() const { return row_ ? *row_ : coord(m_); }
  std::vector<IntExpr> here() const { return axes_.dims(c_, row(), coord(k_), coord(n_)); }
  Lowering::Position position(const TensorView* tv) const { return positionOf(c_, tv, here()); }
  uint64_t digitSet(int64_t axis) const;

  // -- outputs ------------------------------------------------------------------------------------------------------------
  bool isRowOutput(const TensorView* out) const;
  bool isColumnOutput(const TensorView* out) const { return c_.followsColumns(out); }
  bool storesLast() const;
  bool sweepsAreLoops() const { return isLooped(k_) || isLooped(n_); }
  enum class Outputs : uint8_t { All, OfRows, Spread };
  void storeOutputs(Outputs which);
  void storeOutput(const TensorView* out, const Lowering::Position& at, tile::Cache cache);
  bool streams(const TensorView* out) const;

  // -- reductions ---------------------------------------------------------------------------------------------------------
  int64_t stageOf(const Expr* reduction) const;
  std::vector<const Expr*> ofStage(int64_t stage) const;
  ValueId operandOf(const Expr* reduction);
  ValueId combine(const Expr* reduction, ValueId a, ValueId b);
  ValueId startOf(const Expr* reduction, uint64_t digits);
  std::vector<ValueId> startsOf(const std::vector<const Expr*>& exprs, uint64_t digits);
  ValueId spread(const Expr* reduction, ValueId x, uint64_t digits);
  ValueId reduced(const Expr* reduction, ValueId x, uint64_t digits);
  void bindResult(const Expr* reduction, ValueId value);
  std::vector<ValueId> inBlocks(int64_t axis, std::span<const int64_t> digits, const std::vector<const Expr*>& exprs,
                                uint64_t sumDigits, std::vector<ValueId> init, const Step& step);
  std::vector<ValueId> accumulated(int64_t stage, const std::function<void()>& alongside);
  void sweep(int64_t stage, const std::function<void()>& alongside);
  void inner();
  void sweepRow(const std::function<void()>& addColumns);
  void outer();
  void hoistRows(int64_t stage, std::optional<int64_t> sweep = std::nullopt);

  // -- spills: expensive tensors of one sweep, kept in a scratch row for the next ones ------------------------------------
  void chooseSpills();
  void placeSpills();
  bool isExpensive(const TensorView* tensor) const;
  std::map<int64_t, std::set<int64_t>> sweepsOfAll() const;
  void spill(int64_t stage);
  void dropSpills(int64_t stage);
  void useSpills(int64_t stage);

  // -- prefetch -------------------------------------------------------------------------------------------------------------
  void prefetch(const std::vector<IntExpr>& dims, int64_t width, const std::vector<int64_t>& along);
  void prefetchNextRow();
  void prefetchShare(int64_t sweep, int64_t sweeps);
  void prefetchPointwise();
  void prefetchLookups();
  void prefetchAhead();
  std::optional<LinearForm> lineOf(int64_t param, const Lowering::Position& at) const;

  // -- software pipeline over rows --------------------------------------------------------------------------------------------
  struct Delayed {
    const Expr* reduction;
    int64_t age;  // steps since it was computed
  };
  void pipelined();
  IntExpr pipelineBase() const { return part() * digits_.pipelineRows; }  // first row of the part
  IntExpr pipelineRow(int64_t stage) const;
  std::vector<Delayed> delayedResults() const;
  std::vector<Lowering::Scope> openStages(const std::vector<Delayed>& delayed, std::span<const ValueId> carried);
  std::vector<ValueId> runStages(const std::vector<Lowering::Scope>& scopes, const std::vector<tile::Pred>& isRow,
                                 std::span<const ValueId> sums);
  std::vector<ValueId> ageResults(const std::vector<Delayed>& delayed, std::span<const ValueId> carried,
                                  const std::vector<ValueId>& sums);

  // -- outer reduction through a scratch row ----------------------------------------------------------------------------------
  int64_t scratchRow(std::string name, DataType dtype, const IntExpr& width);
  std::vector<int64_t> scratchRows(const std::vector<const Expr*>& exprs, const std::string& name);
  std::vector<tile::Index> inScratch() const;
  void startRows(const std::vector<const Expr*>& exprs, const std::vector<int64_t>& rows);
  void addRows(const std::vector<const Expr*>& exprs, const std::vector<int64_t>& to, const std::vector<int64_t>& from);
  void addToRows(const std::vector<const Expr*>& exprs, const std::vector<int64_t>& rows);
  using AddTo = std::function<void(const std::vector<int64_t>& rows)>;
  void sumInScratch(const std::vector<const Expr*>& exprs, int64_t axis, std::span<const int64_t> digits,
                    const std::vector<int64_t>& rows, const std::string& block, const AddTo& step);
  void outerInScratch();

  // -- partial results of parts, combined in part order by the last to arrive --------------------------------------------------
  int64_t workspace(tile::TensorParam param);
  void combineRows(const std::vector<const Expr*>& exprs, const std::vector<int64_t>& rows);
  std::vector<tile::Builder::DigitSpec> lastDigits() const;
  std::vector<tile::Builder::DigitSpec> summingThreads() const;
  std::vector<tile::Builder::DigitSpec> partDigits() const;
  std::vector<int64_t> partialResults(const std::vector<const Expr*>& exprs, const IntExpr& extent);
  using LoadPart = std::function<ValueId(int64_t expr, const IntExpr& part, const IntExpr& column)>;
  using UseSums = std::function<void(const std::vector<ValueId>& sums, const IntExpr& column)>;
  void addParts(const std::vector<const Expr*>& exprs, const std::string& space, tile::Builder::AxisSpec parts,
                const std::vector<tile::Builder::AxisSpec>& columns, const LoadPart& load, const UseSums& use);
  void storeTotals(const std::vector<const Expr*>& exprs, const std::vector<ValueId>& sums, const IntExpr& column);
  int64_t arrivalCounter(const std::string& name, const IntExpr& count);
  void finish(const std::vector<const Expr*>& exprs, const std::vector<int64_t>& partials,
              const std::vector<tile::Builder::AxisSpec>& columns);
  void finishGroups(const std::vector<const Expr*>& exprs, const std::vector<ValueId>& sums);
  void columnsInRegisters();
  void split();
  void outerInParts();

  struct Spilled {
    const TensorView* tensor = nullptr;
    int64_t stage = 0;  // the sweep that computes it
    int64_t last = 0;   // the last one that reads it
    int64_t param = -1;
  };
  const Group& group_;
  KernelPlan plan_;
  tile::Builder builder_;
  Lowering lowering_;
  const Coordinates c_;     // with the kernel's names
  const KernelAxes axes_;   // with the kernel's names
  const RowDigits digits_;  // with the kernel's names
  int64_t space_ = 0;
  std::optional<IntExpr> row_;  // the row, if it is not the coordinate of m
  int64_t m_ = -1;
  int64_t k_ = -1;
  int64_t n_ = -1;
  const std::vector<const Expr*> reductions_;  // but for those of columns
  const std::vector<const Expr*> columns_;
  // The sweep that stores the spread outputs: the first if none of them waits for a reduction, else number `stages`, the last.
  int64_t storeSweep_ = 0;
  int64_t columnSweep_ = -1;                     // the last, which adds to the sums of columns; -1 without such sums
  std::map<int64_t, Spilled> spilled_;           // by Val id
  std::map<int64_t, std::set<int64_t>> sweeps_;  // of sweepsOfAll
};

}  // namespace meshfuse
