#include "ir/fusion.h"
#include "schedule/row_writer.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"

namespace meshfuse {

// In step i stage k works on row i - k of the part: the stages are the reduction stages, the last one stores. One loop over
// n serves them all, so reads, arithmetic and writes overlap. At both ends some stages work on rows outside the part: rows are
// clamped and their stores left out.
void RowWriter::pipelined() {
  chooseSpills();
  const std::vector<Delayed> delayed = delayedResults();
  auto start = mapped(delayed, [&](const Delayed& d) { return startOf(d.reduction, 0); });
  (void)overDigits(m_, serialDigits(m_), std::move(start), [&](std::span<const ValueId> carried) {
    const std::vector<Lowering::Scope> scopes = openStages(delayed, carried);
    const std::vector<tile::Pred> isRow = {{c_.stages - 1, coord(m_)},
                                           {pipelineBase() + coord(m_) - c_.stages, axes_.M}};
    const std::vector<ValueId> sums =
        inBlocks(n_, serialDigits(n_), reductions_, digitSet(n_), startsOf(reductions_, digitSet(n_)),
                 [&](std::span<const ValueId> at) { return runStages(scopes, isRow, at); });
    if (std::ranges::any_of(group_.outputs, [&](const TensorView* o) { return isRowOutput(o); })) {
      row_ = pipelineRow(c_.stages);
      lowering_.pushScope(scopes.back());
      builder_.when(isRow, [&] { storeOutputs(Outputs::OfRows); });
      (void)lowering_.popScope();
    }
    row_.reset();
    return ageResults(delayed, carried, sums);
  });
}

IntExpr RowWriter::pipelineRow(int64_t stage) const {
  return min(max(pipelineBase() + coord(m_) - stage, 0), axes_.M - 1);
}

// A result is used by all later stages, each a step after the one before.
std::vector<RowWriter::Delayed> RowWriter::delayedResults() const {
  std::vector<Delayed> delayed;
  for (const Expr* e : reductions_) {
    for (int64_t age = 1; age <= c_.stages - stageOf(e); age++) {
      delayed.push_back({e, age});
    }
  }
  return delayed;
}

// The values that each stage has of its row before the loop over n: the results of earlier stages, and values computed from them.
std::vector<Lowering::Scope> RowWriter::openStages(const std::vector<Delayed>& delayed,
                                                   std::span<const ValueId> carried) {
  std::vector<Lowering::Scope> scopes;
  for (int64_t stage = 0; stage <= c_.stages; stage++) {
    row_ = pipelineRow(stage);
    lowering_.pushScope();
    for (int64_t i = 0; i < std::ssize(delayed); i++) {
      if (stageOf(delayed[i].reduction) + delayed[i].age == stage) {
        bindResult(delayed[i].reduction, carried[i]);
      }
    }
    for (int64_t earlier = 0; earlier < stage; earlier++) {
      hoistRows(earlier, stage);
    }
    scopes.push_back(lowering_.popScope());
  }
  return scopes;
}

// One step over n, in all stages. The last one first: a spill of the stage before is read before it is overwritten.
std::vector<ValueId> RowWriter::runStages(const std::vector<Lowering::Scope>& scopes,
                                          const std::vector<tile::Pred>& isRow, std::span<const ValueId> sums) {
  std::vector<ValueId> next(sums.begin(), sums.end());
  for (int64_t stage = c_.stages; stage >= 0; stage--) {
    row_ = pipelineRow(stage);
    useSpills(stage - 1);
    lowering_.pushScope(scopes[stage]);
    lowering_.pushScope();
    if (stage == c_.stages) {
      builder_.when(isRow, [&] { storeOutputs(Outputs::Spread); });
    }
    for (int64_t i = 0; i < std::ssize(reductions_); i++) {
      if (stageOf(reductions_[i]) == stage) {
        next[i] = combine(reductions_[i], sums[i], operandOf(reductions_[i]));
      }
    }
    spill(stage);
    if (stage == 0 && digits_.prefetchRows) {
      prefetchNextRow();
    }
    (void)lowering_.popScope();
    (void)lowering_.popScope();
    dropSpills(stage - 1);
  }
  return next;
}

// The results that the next step over rows takes along: those of this step, and the others a step older.
std::vector<ValueId> RowWriter::ageResults(const std::vector<Delayed>& delayed, std::span<const ValueId> carried,
                                           const std::vector<ValueId>& sums) {
  return mapped(indices(delayed), [&](int64_t i) {
    const Expr* e = delayed[i].reduction;
    return delayed[i].age > 1 ? carried[i - 1]
                              : builder_.reduce(sums[positionIn(reductions_, e)], digitSet(n_), e->attributes().reduce);
  });
}

}  // namespace meshfuse
