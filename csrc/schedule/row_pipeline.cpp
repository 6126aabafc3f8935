#include "schedule/row_writer.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/row_major.h"

namespace meshfuse {

// In step i stage k works on row i - k of the part: the stages are the rounds of reductions, the last one stores. One loop over
// n serves them all, so reads, arithmetic and writes overlap. At both ends some stages work on rows nobody needs: rows are
// clamped and their stores left out.
void RowWriter::pipelined() {
  chooseStash();
  const int stages = c_.rounds + 1;
  const IntExpr base = IntExpr::symbol(digits_.grid[0].symbol, {.lower = 0}) * digits_.pipelineRows;
  auto rowOf = [&](int stage) { return min(max(base + coord(m_) - stage, 0), axes_.M - 1); };
  struct Delayed {
    const Expr* reduction;
    int age;  // steps since it was computed
  };
  std::vector<Delayed> delayed;
  std::vector<ValueId> start;
  for (const Expr* e : reductions_) {
    for (int age = 1; age <= c_.rounds - c_.round.at(e->output()->id()); age++) {
      delayed.push_back({e, age});
      start.push_back(startOf(e, 0));
    }
  }
  (void)overCarrying(m_, start, [&](std::span<const ValueId> carried) {
    std::vector<Lowering::Scope> scopes;
    for (int stage = 0; stage < stages; stage++) {
      row_ = rowOf(stage);
      lowering_.pushScope();
      for (size_t i = 0; i < delayed.size(); i++) {
        if (c_.round.at(delayed[i].reduction->output()->id()) + delayed[i].age == stage) {
          bindResult(delayed[i].reduction, carried[i]);
        }
      }
      for (int round = 0; round < stage; round++) {
        hoistRows(round, stage);
      }
      scopes.push_back(lowering_.popScope());
    }
    const std::vector<tile::Pred> isRow = {{c_.rounds - 1, coord(m_)}, {base + coord(m_) - c_.rounds, axes_.M}};
    std::vector<ValueId> partial;
    for (const Expr* e : reductions_) {
      partial.push_back(startOf(e, digitSet(n_)));
    }
    partial = overCarrying(n_, std::move(partial), [&](std::span<const ValueId> sums) {
      std::vector<ValueId> next(sums.begin(), sums.end());
      for (int stage = c_.rounds; stage >= 0;
           stage--) {  // what the stage before stashed is read before it is overwritten
        row_ = rowOf(stage);
        useStash(stage - 1);
        lowering_.pushScope(scopes[static_cast<size_t>(stage)]);
        lowering_.pushScope();
        if (stage == c_.rounds) {
          builder_.when(isRow, [&] { storeOutputs(false, true); });
        }
        for (size_t i = 0; i < reductions_.size(); i++) {
          if (c_.round.at(reductions_[i]->output()->id()) == stage) {
            next[i] = combine(reductions_[i], sums[i], operandOf(reductions_[i]));
          }
        }
        stash(stage);
        if (stage == 0 && digits_.prefetchRows) {
          prefetchNextRow();
        }
        (void)lowering_.popScope();
        (void)lowering_.popScope();
        dropStash(stage - 1);
      }
      return next;
    });
    if (std::any_of(group_.outputs.begin(), group_.outputs.end(),
                    [&](const TensorView* o) { return isRowOutput(o); })) {
      row_ = rowOf(c_.rounds);
      lowering_.pushScope(scopes.back());
      builder_.when(isRow, [&] { storeOutputs(true, false); });
      (void)lowering_.popScope();
    }
    row_.reset();
    std::vector<ValueId> next;
    for (size_t i = 0; i < delayed.size(); i++) {
      if (delayed[i].age > 1) {
        next.push_back(carried[i - 1]);
        continue;
      }
      size_t r = static_cast<size_t>(std::find(reductions_.begin(), reductions_.end(), delayed[i].reduction) -
                                     reductions_.begin());
      next.push_back(builder_.reduce(partial[r], digitSet(n_), delayed[i].reduction->attributes().reduce));
    }
    return next;
  });
}

}  // namespace meshfuse
