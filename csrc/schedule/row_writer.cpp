#include "schedule/row_writer.h"
#include "ir/fusion.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ranges.h"
#include "schedule/extents.h"
#include "schedule/streamed_reads.h"

namespace meshfuse {

namespace {

// With the kernel's names of sizes.
KernelAxes renamed(KernelAxes axes, Lowering& lowering) {
  for (IntExpr* extent : {&axes.M, &axes.K, &axes.N}) {
    *extent = lowering.size(*extent);
  }
  return axes;
}

RowDigits renamed(RowDigits digits, Lowering& lowering) {
  for (auto* axis : {&digits.m, &digits.k, &digits.n}) {
    for (tile::Builder::DigitSpec& d : *axis) {
      d.size = lowering.size(d.size);
    }
  }
  for (tile::GridDim& g : digits.grid) {
    g.count = lowering.size(g.count);
  }
  return digits;
}

}  // namespace

RowWriter::RowWriter(const Group& group, const Coordinates& coordinates, const KernelAxes& axes,
                     const RowDigits& digits, tile::Target target, const std::string& name)
    : group_(group),
      builder_(name, target),
      lowering_(group, builder_, plan_),
      c_(lowering_.withNames(coordinates)),
      axes_(renamed(axes, lowering_)),
      digits_(renamed(digits, lowering_)),
      reductions_(
          filtered(reductionsOf(group), [&](const Expr* e) { return !c_.columns.contains(e->output()->id()); })),
      columns_(filtered(reductionsOf(group), [&](const Expr* e) { return c_.columns.contains(e->output()->id()); })) {
  for (const tile::GridDim& g : digits_.grid) {
    builder_.gridDim(g.symbol, g.count);
  }
  lowering_.declareTensors();
  std::vector<tile::Builder::AxisSpec> specs;
  auto add = [&](const char* axis, const IntExpr& bound, const std::vector<tile::Builder::DigitSpec>& spec) {
    if (spec.empty()) {
      return int64_t{-1};
    }
    specs.push_back({axis, bound, spec});
    return std::ssize(specs) - 1;
  };
  m_ = digits_.pipelineRows > 0 ? add("i", digits_.pipelineRows + c_.stages, {{tile::Level::Serial, 0, ""}})
                                : add("m", axes_.M, digits_.m);
  k_ = add("k", axes_.K, digits_.k);
  n_ = add("n", axes_.N, digits_.n);
  space_ = builder_.space("s", std::move(specs));
  storeSweep_ = c_.lateOutputs || !sweepsAreLoops() ? c_.stages : 0;
  if (!columns_.empty()) {
    const bool isLate = storeSweep_ == c_.stages || std::ranges::any_of(columns_, [&](const Expr* e) {
                          return c_.waitsFor(e->tensorInputs()[0]) == c_.stages;
                        });
    columnSweep_ = isLate ? c_.stages : c_.stages - 1;
  }
  sweeps_ = sweepsOfAll();
}

KernelPlan RowWriter::write() {
  if (!c_.hasReduction()) {
    over(m_, [&] {
      over(n_, [&] {
        storeOutputs(Outputs::All);
        prefetchPointwise();
      });
    });
  } else if (digits_.pipelineRows > 0) {
    pipelined();
  } else if (axes_.innerReduced) {
    digits_.split&& columns_.empty() ? split() : inner();
  } else if (digits_.scratchRow) {
    outerInScratch();
  } else if (digits_.split) {
    outerInParts();
  } else {
    outer();
  }
  plan_.program = builder_.take();
  if (plan_.program.target == tile::Target::Gpu) {
    streamReads(plan_.program, digits_.streamBytes);
  }
  return std::move(plan_);
}

std::vector<int64_t> RowWriter::serialDigits(int64_t axis) const {
  if (axis < 0) {
    return {};
  }
  const std::vector<tile::Digit>& ds = builder_.program().spaces[space_].axes[axis].digits;
  return filtered(indices(ds), [&](int64_t d) { return ds[d].level == tile::Level::Serial; });
}

void RowWriter::over(int64_t axis, std::span<const int64_t> digits, const std::function<void()>& body) {
  overDigits(axis, digits, {}, [&](std::span<const ValueId>) {
    body();
    return std::vector<ValueId>{};
  });
}

std::vector<ValueId> RowWriter::overDigits(int64_t axis, std::span<const int64_t> digits, std::vector<ValueId> init,
                                           const Step& body) {
  if (digits.empty()) {
    lowering_.pushScope();
    std::vector<ValueId> next = body(init);
    lowering_.popScope();
    return next;
  }
  return builder_.loop(space_, axis, digits[0], std::move(init), [&](std::span<const ValueId> carried) {
    return overDigits(axis, digits.subspan(1), {carried.begin(), carried.end()}, body);
  });
}

uint64_t RowWriter::digitSet(int64_t axis) const {
  return axis < 0 ? 0 : tile::axisDigits(builder_.program().spaces[space_], axis);
}

bool RowWriter::isRowOutput(const TensorView* out) const { return c_.hasReduction() && !c_.isSpread(out); }

bool RowWriter::storesLast() const { return storeSweep_ == c_.stages && c_.spreadOutputs(); }

void RowWriter::storeOutputs(Outputs which) {
  const std::vector<TensorView*> outputs = filtered(group_.outputs, [&](const TensorView* out) {
    return which == Outputs::All || (!isColumnOutput(out) && isRowOutput(out) == (which == Outputs::OfRows));
  });
  if (!group_.aliases.empty()) {  // a store may overwrite an input: all results read it before
    for (const TensorView* out : outputs) {
      (void)lowering_.value(out, position(out), space_);
    }
  }
  for (const TensorView* out : outputs) {
    storeOutput(out, position(out), streams(out) ? tile::Cache::Once : tile::Cache::Keep);
  }
}

void RowWriter::storeOutput(const TensorView* out, const Lowering::Position& at, tile::Cache cache) {
  lowering_.store(out, at, lowering_.value(out, at, space_), cache);
}

bool RowWriter::streams(const TensorView* out) const { return isLarger(*out, digits_.streamBytes); }

int64_t RowWriter::stageOf(const Expr* reduction) const { return c_.stage.at(reduction->output()->id()); }

std::vector<const Expr*> RowWriter::ofStage(int64_t stage) const {
  return filtered(reductions_, [&](const Expr* e) { return stageOf(e) == stage; });
}

ValueId RowWriter::operandOf(const Expr* reduction) {
  const TensorView* in = reduction->tensorInputs()[0];
  return builder_.cast(lowering_.value(in, position(in), space_), accumulatorOf(reduction));
}

DataType accumulatorOf(const Expr* reduction) { return accumulateType(reduction->input(0)->dtype()); }

ValueId RowWriter::combine(const Expr* reduction, ValueId a, ValueId b) {
  return builder_.point(combineOp(reduction->attributes().reduce, accumulatorOf(reduction)), {a, b});
}

ValueId RowWriter::startOf(const Expr* reduction, uint64_t digits) {
  return tile::identity(builder_, reduction->attributes().reduce, accumulatorOf(reduction), space_, digits);
}

std::vector<ValueId> RowWriter::startsOf(const std::vector<const Expr*>& exprs, uint64_t digits) {
  return mapped(exprs, [&](const Expr* e) { return startOf(e, digits); });
}

// A value that is the same along reduced digits counts once for each of their positions.
ValueId RowWriter::spread(const Expr* reduction, ValueId x, uint64_t digits) {
  bool hasAll = (builder_.program().values[x].digits & digits) == digits;
  return hasAll ? x : combine(reduction, startOf(reduction, digits), x);
}

// A value combined over those of the digits that it has.
ValueId RowWriter::reduced(const Expr* reduction, ValueId x, uint64_t digits) {
  return builder_.reduce(x, builder_.program().values[x].digits & digits, reduction->attributes().reduce);
}

void RowWriter::bindResult(const Expr* reduction, ValueId value) {
  lowering_.bind(reduction->tensorOutput(), builder_.cast(value, reduction->output()->dtype()));
}

// Results of `step` over serial digits of an axis. Each block of all but the outermost digit has a sum of its own: one sum of all
// terms would lose terms that are small compared with it.
std::vector<ValueId> RowWriter::inBlocks(int64_t axis, std::span<const int64_t> digits,
                                         const std::vector<const Expr*>& exprs, uint64_t sumDigits,
                                         std::vector<ValueId> init, const Step& step) {
  if (digits.size() < 2) {
    return overDigits(axis, digits, std::move(init), step);
  }
  return overDigits(axis, digits.first(1), std::move(init), [&](std::span<const ValueId> sums) {
    const std::vector<ValueId> block =
        inBlocks(axis, digits.subspan(1), exprs, sumDigits, startsOf(exprs, sumDigits), step);
    return mapped(indices(exprs), [&](int64_t i) { return combine(exprs[i], sums[i], block[i]); });
  });
}

// One sweep over k and n: what the reductions of `stage` have added up over all their digits, in the types of the accumulators.
std::vector<ValueId> RowWriter::accumulated(int64_t stage, const std::function<void()>& alongside) {
  std::vector<const Expr*> exprs = ofStage(stage);
  uint64_t reducedDigits = digitSet(k_) | (axes_.innerReduced ? digitSet(n_) : 0);
  std::vector<ValueId> partial;
  if (!sweepsAreLoops()) {
    partial = mapped(exprs, [&](const Expr* e) { return spread(e, operandOf(e), reducedDigits); });
  } else {
    const uint64_t all = digitSet(m_) | digitSet(k_) | digitSet(n_);
    partial = startsOf(exprs, all);
    auto step = [&](std::span<const ValueId> carried) {
      std::vector<ValueId> next =
          mapped(indices(exprs), [&](int64_t i) { return combine(exprs[i], carried[i], operandOf(exprs[i])); });
      if (stage == storeSweep_) {
        storeOutputs(Outputs::Spread);
      }
      alongside();
      return next;
    };
    partial = inBlocks(k_, serialDigits(k_), exprs, all, std::move(partial), [&](std::span<const ValueId> carried) {
      return axes_.innerReduced ? inBlocks(n_, serialDigits(n_), exprs, all, {carried.begin(), carried.end()}, step)
                                : step(carried);
    });
  }
  return mapped(indices(exprs), [&](int64_t i) { return reduced(exprs[i], partial[i], reducedDigits); });
}

// The same, rounded to the types of the results.
void RowWriter::sweep(int64_t stage, const std::function<void()>& alongside) {
  const std::vector<ValueId> sums = accumulated(stage, alongside);
  const std::vector<const Expr*> exprs = ofStage(stage);
  for (int64_t i = 0; i < std::ssize(exprs); i++) {
    bindResult(exprs[i], sums[i]);
  }
}

void RowWriter::inner() {
  chooseSpills();
  if (columns_.empty()) {
    over(m_, [&] { sweepRow([] {}); });
    return;
  }
  if (!digits_.scratchRow) {
    columnsInRegisters();
    return;
  }
  const std::vector<int64_t> rows = scratchRows(columns_, "c");
  sumInScratch(columns_, m_, serialDigits(m_), rows, "b",
               [&](const std::vector<int64_t>& to) { sweepRow([&] { addToRows(columns_, to); }); });
  combineRows(columns_, rows);
}

// All sweeps over one row; the last one adds to the sums of columns.
void RowWriter::sweepRow(const std::function<void()>& addColumns) {
  const bool hasLast = storesLast() || columnSweep_ == c_.stages;
  const int64_t sweeps = hasLast ? c_.stages + 1 : c_.stages;
  for (int64_t stage = 0; stage < c_.stages; stage++) {
    sweep(stage, [&] {
      if (stage == columnSweep_) {
        addColumns();
      }
      spill(stage);
      prefetchShare(stage, sweeps);
    });
    useSpills(stage);
    hoistRows(stage);
  }
  storeOutputs(Outputs::OfRows);
  if (hasLast) {
    over(k_, [&] {
      over(n_, [&] {
        if (storesLast()) {
          storeOutputs(Outputs::Spread);
        }
        addColumns();
        prefetchShare(c_.stages, sweeps);
      });
    });
  }
}

void RowWriter::outer() {
  over(m_, [&] {
    over(n_, [&] {
      for (int64_t stage = 0; stage < c_.stages; stage++) {
        sweep(stage, [] {});
      }
      storeOutputs(Outputs::OfRows);
      if (storesLast()) {
        over(k_, [&] { storeOutputs(Outputs::Spread); });
      }
    });
  });
}

// Computes once the values that are constant along a row: values without reduced dims that a sweep (only the given one, if any) will
// read, from results known after `stage`.
void RowWriter::hoistRows(int64_t stage, std::optional<int64_t> sweep) {
  for (const Expr* e : group_.exprs) {
    const TensorView* out = e->tensorOutput();
    if (!c_.isSpread(out) || (sweep && !sweeps_[out->id()].contains(*sweep))) {
      continue;
    }
    for (const TensorView* in : e->tensorInputs()) {
      if (c_.waitsFor(in) == stage + 1 && !c_.isSpread(in) && c_.index.contains(in->id())) {
        (void)lowering_.value(in, position(in), space_);
      }
    }
  }
}

}  // namespace meshfuse
