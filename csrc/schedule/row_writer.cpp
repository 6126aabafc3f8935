#include "schedule/row_writer.h"
#include "ir/fusion.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/row_major.h"

namespace meshfuse {

RowWriter::RowWriter(const Group& group, const Coordinates& coordinates, const KernelAxes& axes,
                     const RowDigits& digits, tile::Target target, const std::string& name)
    : group_(group),
      c_(coordinates),
      axes_(axes),
      digits_(digits),
      builder_(name, target),
      lowering_(group, builder_, plan_) {
  for (const tile::GridDim& g : digits.grid) {
    builder_.gridDim(g.symbol, g.count);
  }
  lowering_.declareTensors();
  std::vector<tile::Builder::AxisSpec> specs;
  auto add = [&](const char* axis, const IntExpr& bound, const std::vector<tile::Builder::DigitSpec>& spec) {
    if (spec.empty()) {
      return -1;
    }
    specs.push_back({axis, lowering_.size(bound), spec});
    return static_cast<int>(specs.size()) - 1;
  };
  m_ = digits.pipelineRows > 0 ? add("i", digits.pipelineRows + coordinates.stages, {{tile::Level::Serial, 0, ""}})
                               : add("m", axes.M, digits.m);
  k_ = add("k", axes.K, digits.k);
  n_ = add("n", axes.N, digits.n);
  space_ = builder_.space("s", std::move(specs));
  for (const Expr* e : group.exprs) {
    if (e->kind() == ExprKind::Reduce) {
      reductions_.push_back(e);
    }
  }
  storeSweep_ = c_.lateOutputs || !sweepsAreLoops() ? c_.stages : 0;
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
    digits_.split.empty() ? inner() : split();
  } else if (digits_.scratchRow) {
    outerInScratch();
  } else {
    outer();
  }
  plan_.program = builder_.take();
  return std::move(plan_);
}

std::vector<int> RowWriter::serialDigits(int axis) const {
  std::vector<int> serial;
  if (axis < 0) {
    return serial;
  }
  const std::vector<tile::Digit>& ds = builder_.program().spaces[space_].axes[axis].digits;
  for (size_t d = 0; d < ds.size(); d++) {
    if (ds[d].level == tile::Level::Serial) {
      serial.push_back(static_cast<int>(d));
    }
  }
  return serial;
}

void RowWriter::over(int axis, const std::function<void()>& body) {
  overCarrying(axis, {}, [&](std::span<const ValueId>) {
    body();
    return std::vector<ValueId>{};
  });
}

std::vector<ValueId> RowWriter::overCarrying(int axis, std::vector<ValueId> init, const Step& body) {
  return overDigits(axis, serialDigits(axis), std::move(init), body);
}

std::vector<ValueId> RowWriter::overDigits(int axis, std::span<const int> digits, std::vector<ValueId> init,
                                           const Step& body) {
  if (digits.empty()) {
    return body(init);
  }
  return builder_.loop(space_, axis, digits[0], std::move(init), [&](std::span<const ValueId> carried) {
    lowering_.pushScope();
    std::vector<ValueId> next = overDigits(axis, digits.subspan(1), {carried.begin(), carried.end()}, body);
    lowering_.popScope();
    return next;
  });
}

uint64_t RowWriter::digitSet(int axis) const {
  return axis < 0 ? 0 : tile::axisDigits(builder_.program().spaces[space_], axis);
}

bool RowWriter::isRowOutput(const TensorView* out) const { return c_.hasReduction() && !c_.isSpread(out); }

bool RowWriter::storesLast() const { return storeSweep_ == c_.stages && c_.spreadOutputs(); }

void RowWriter::storeOutputs(Outputs which) {
  for (const TensorView* out : group_.outputs) {
    if (which == Outputs::All || isRowOutput(out) == (which == Outputs::OfRows)) {
      Lowering::Position at = position(out);
      lowering_.store(out, at, lowering_.value(out, at, space_), streams(out) ? tile::Cache::Once : tile::Cache::Keep);
    }
  }
}

bool RowWriter::streams(const TensorView* out) const {
  const IntExpr n = product(out->shape());
  return n.isConst() && n.constValue() > digits_.streamBytes / dataTypeSize(out->dtype());
}

std::vector<const Expr*> RowWriter::ofStage(int stage) const {
  std::vector<const Expr*> result;
  for (const Expr* e : reductions_) {
    if (c_.stage.at(e->output()->id()) == stage) {
      result.push_back(e);
    }
  }
  return result;
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

// A value that is the same along reduced digits counts once for each of their positions.
ValueId RowWriter::spread(const Expr* reduction, ValueId x, uint64_t digits) {
  bool hasAll = (builder_.program().values[x].digits & digits) == digits;
  return hasAll ? x : combine(reduction, startOf(reduction, digits), x);
}

void RowWriter::bindResult(const Expr* reduction, ValueId value) {
  lowering_.bind(reduction->tensorOutput(), builder_.cast(value, reduction->output()->dtype()));
}

std::vector<ValueId> RowWriter::combineAll(const std::vector<const Expr*>& exprs, std::span<const ValueId> a,
                                           std::span<const ValueId> b) {
  std::vector<ValueId> both;
  for (size_t i = 0; i < exprs.size(); i++) {
    both.push_back(combine(exprs[i], a[i], b[i]));
  }
  return both;
}

// Results of `step` over an axis. If the axis has two serial digits, each block of the inner one has a sum of its own: one sum of
// all terms would lose terms that are small compared with it.
std::vector<ValueId> RowWriter::inBlocks(int axis, const std::vector<const Expr*>& exprs, std::vector<ValueId> init,
                                         const Step& step) {
  const std::vector<int> digits = serialDigits(axis);
  if (digits.size() < 2) {
    return overDigits(axis, digits, std::move(init), step);
  }
  return overDigits(axis, std::span(digits).first(1), std::move(init), [&](std::span<const ValueId> sums) {
    std::vector<ValueId> start;
    for (const Expr* e : exprs) {
      start.push_back(startOf(e, digitSet(m_) | digitSet(k_) | digitSet(n_)));
    }
    return combineAll(exprs, sums, overDigits(axis, std::span(digits).subspan(1), std::move(start), step));
  });
}

// One sweep over k and n: the results of `stage`, reduced over all their digits.
void RowWriter::sweep(int stage, const std::function<void()>& alongside) {
  std::vector<const Expr*> exprs = ofStage(stage);
  bool looped = sweepsAreLoops();
  uint64_t reducedDigits = digitSet(k_) | (axes_.innerReduced ? digitSet(n_) : 0);
  uint64_t carriedDigits = digitSet(m_) | digitSet(k_) | digitSet(n_);
  std::vector<ValueId> partial;
  if (!looped) {
    for (const Expr* e : exprs) {
      partial.push_back(spread(e, operandOf(e), reducedDigits));
    }
  } else {
    for (const Expr* e : exprs) {
      partial.push_back(startOf(e, carriedDigits));
    }
    auto step = [&](std::span<const ValueId> carried) {
      std::vector<ValueId> next;
      for (size_t i = 0; i < exprs.size(); i++) {
        next.push_back(combine(exprs[i], carried[i], operandOf(exprs[i])));
      }
      if (stage == storeSweep_) {
        storeOutputs(Outputs::Spread);
      }
      alongside();
      return next;
    };
    partial = inBlocks(k_, exprs, std::move(partial), [&](std::span<const ValueId> carried) {
      if (!axes_.innerReduced) {
        return step(carried);
      }
      return inBlocks(n_, exprs, {carried.begin(), carried.end()}, step);
    });
  }
  for (size_t i = 0; i < exprs.size(); i++) {
    uint64_t present = builder_.program().values[partial[i]].digits & reducedDigits;
    ValueId total = present == 0 ? partial[i] : builder_.reduce(partial[i], present, exprs[i]->attributes().reduce);
    bindResult(exprs[i], total);
  }
}

void RowWriter::inner() {
  chooseSpills();
  over(m_, [&] {
    lowering_.pushScope();
    const int sweeps = storesLast() ? c_.stages + 1 : c_.stages;
    for (int stage = 0; stage < c_.stages; stage++) {
      sweep(stage, [&] {
        spill(stage);
        prefetchShare(stage, sweeps);
      });
      useSpills(stage);
      hoistRows(stage);
    }
    storeOutputs(Outputs::OfRows);
    if (storesLast()) {
      over(k_, [&] {
        over(n_, [&] {
          storeOutputs(Outputs::Spread);
          prefetchShare(c_.stages, sweeps);
        });
      });
    }
    lowering_.popScope();
  });
}

void RowWriter::outer() {
  over(m_, [&] {
    over(n_, [&] {
      lowering_.pushScope();
      for (int stage = 0; stage < c_.stages; stage++) {
        sweep(stage, [] {});
      }
      storeOutputs(Outputs::OfRows);
      if (storesLast()) {
        over(k_, [&] { storeOutputs(Outputs::Spread); });
      }
      lowering_.popScope();
    });
  });
}

// Computes once the values that are constant along a row: values without reduced dims that a sweep (only the given one, if any) will
// read, from results known after `stage`.
void RowWriter::hoistRows(int stage, std::optional<int> sweep) {
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
