// Values that are expensive to compute again are spilled: kept in scratch rows from the sweep that computes them to the last that
// reads them.
#include "ir/fusion.h"
#include "schedule/row_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "ir/op_rule.h"
#include "ir/point_work.h"
#include "schedule/extents.h"

namespace meshfuse {

namespace {

constexpr int64_t kExpensive =
    12;  // loads and ops: recomputing more costs more than a store and loads from a near cache
constexpr int64_t kScratchBytes = 1 << 20;  // of all scratch rows: what a second cache holds

// Values that need no op.
bool isFree(const Expr& e) {
  const OpRule& rule = ruleOf(e);
  return (rule.elements == Elements::Moved && rule.view != View::No) || rule.form == OpForm::Fill;
}

}  // namespace

// A pipeline overwrites a scratch row after one step, and reads it in the next stage only.
void RowWriter::chooseSpills() {
  if (!digits_.spill || !isLooped(n_) || k_ >= 0) {
    return;
  }
  const bool pipeline = digits_.pipelineRows > 0;
  for (const Expr* e : group_.exprs) {
    const TensorView* out = e->tensorOutput();
    const bool canBe = e->kind() == ExprKind::Point || (!pipeline && !isFree(*e));
    const std::set<int64_t>& uses = sweeps_[out->id()];
    if (!canBe || !c_.isSpread(out) || uses.size() < 2) {
      continue;
    }
    const bool costly = e->kind() == ExprKind::Point && isFunction(e->attributes().point);
    const bool inTime = !pipeline || *uses.rbegin() == *uses.begin() + 1;
    if (inTime && (costly || (!pipeline && isExpensive(out)))) {
      spilled_[out->id()] = {out, *uses.begin(), *uses.rbegin()};
    }
  }
  sweeps_ = sweepsOfAll();  // a spilled value is not computed again, nor are its operands
  std::erase_if(spilled_, [&](const auto& entry) { return sweeps_[entry.first].size() < 2; });
  for (auto& [id, s] : spilled_) {
    s.last = *sweeps_[id].rbegin();
  }
  placeSpills();
}

// Scratch rows for all of them: one row serves values that are needed one after the other.
void RowWriter::placeSpills() {
  struct Row {
    int64_t param;
    DataType dtype;
    int64_t busyUntil;
  };
  std::vector<int64_t> order = mapped(spilled_, [](const auto& entry) { return entry.first; });
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return spilled_[a].stage < spilled_[b].stage; });
  const int64_t columns = isKnownExtent(axes_.N) ? usualExtent(axes_.N) : 1;
  int64_t bytes = 0;
  std::vector<Row> rows;
  for (int64_t id : order) {
    Spilled& s = spilled_[id];
    const DataType type = s.tensor->dtype();
    auto row = std::ranges::find_if(
        rows, [&](const Row& r) { return digits_.pipelineRows == 0 && r.dtype == type && r.busyUntil < s.stage; });
    if (row == rows.end()) {
      bytes += columns * dataTypeSize(type);
      if (!rows.empty() && bytes > kScratchBytes) {
        bytes -= columns * dataTypeSize(type);
        spilled_.erase(id);
        continue;
      }
      const int64_t param = scratchRow(fmt::format("e{}", rows.size()), type, axes_.N);
      row = rows.insert(rows.end(), {param, type, 0});
    }
    row->busyUntil = s.last;
    s.param = row->param;
  }
}

// Whether computing a tensor from inputs, scratch rows and results of reductions takes kExpensive loads and ops.
bool RowWriter::isExpensive(const TensorView* tensor) const {
  int64_t work = 0;
  std::set<int64_t> seen;
  std::vector<const TensorView*> open = {tensor};
  while (!open.empty() && work < kExpensive) {
    const TensorView* tv = open.back();
    open.pop_back();
    if (!seen.insert(tv->id()).second) {
      continue;
    }
    if (contains(group_.inputs, tv) || spilled_.contains(tv->id()) || tv->definition()->kind() == ExprKind::Reduce) {
      work++;
      continue;
    }
    const Expr& e = *tv->definition();
    work += e.kind() == ExprKind::Random ? kExpensive : isFree(e) ? 0 : 1;
    append(open, e.tensorInputs());
  }
  return work >= kExpensive;
}

// The sweeps in which each tensor is computed or read, by Val id: those of the reductions it reaches without passing one, and
// that of its stores. A spilled value asks for its operands once.
std::map<int64_t, std::set<int64_t>> RowWriter::sweepsOfAll() const {
  std::map<int64_t, std::set<int64_t>> sweeps;
  for (const TensorView* out : group_.outputs) {
    if (!isColumnOutput(out)) {
      sweeps[out->id()].insert(isRowOutput(out) ? c_.stages : storeSweep_);
    }
  }
  for (const Expr* e : group_.exprs | std::views::reverse) {
    const int64_t id = e->output()->id();
    std::set<int64_t> uses = sweeps[id];
    if (e->kind() == ExprKind::Reduce) {
      uses = {c_.columns.contains(id) ? columnSweep_ : c_.stage.at(id)};
    } else if (spilled_.contains(id) && !uses.empty()) {
      uses = {*uses.begin()};
    }
    for (const Val* in : e->inputs()) {
      sweeps[in->id()].insert(uses.begin(), uses.end());
    }
  }
  return sweeps;
}

void RowWriter::spill(int64_t stage) {
  for (const auto& [id, s] : spilled_) {
    if (s.stage == stage) {
      builder_.store(s.param, {{coord(n_)}}, lowering_.value(s.tensor, position(s.tensor), space_));
    }
  }
}

void RowWriter::dropSpills(int64_t stage) {
  for (const auto& [id, s] : spilled_) {
    if (s.stage == stage) {
      lowering_.stopReading(s.tensor);
    }
  }
}

// After the sweep of `stage`: values it stored can be read, and values it was the last to read are overwritten from now on.
void RowWriter::useSpills(int64_t stage) {
  for (const auto& [id, s] : spilled_) {
    if (s.stage == stage) {
      lowering_.readFrom(s.tensor, position(s.tensor), s.param, {{coord(n_)}});
    } else if (s.last == stage && digits_.pipelineRows == 0) {
      lowering_.stopReading(s.tensor);
    }
  }
}

}  // namespace meshfuse
