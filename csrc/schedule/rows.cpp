#include "schedule/rows.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "ir/fusion.h"
#include "schedule/row_major.h"

namespace meshfuse {

using tile::ValueId;

namespace {

DataType computeIn(DataType type) { return isHalfPrecision(type) ? DataType::Float : type; }

// Writes one kernel.
class RowWriter {
 public:
  RowWriter(const Group& group, const Coordinates& coordinates, const KernelAxes& axes, const RowDigits& digits, tile::Target target,
            const std::string& name)
      : group_(group), c_(coordinates), axes_(axes), digits_(digits), builder_(name, target), lowering_(group, builder_, plan_) {
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
    m_ = digits.pipelineRows > 0 ? add("i", digits.pipelineRows + coordinates.rounds, {{tile::Level::Serial, 0, ""}})
                                 : add("m", axes.M, digits.m);
    k_ = add("k", axes.K, digits.k);
    n_ = add("n", axes.N, digits.n);
    space_ = builder_.space("s", std::move(specs));
    for (const Expr* e : group.exprs) {
      if (e->kind() == ExprKind::Reduce) {
        reductions_.push_back(e);
      }
    }
    storeSweep_ = sweepThatStores();
  }

  KernelPlan write() {
    if (!c_.hasReduction()) {
      over(m_, [&] {
        over(n_, [&] {
          storeOutputs(true, true);
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

 private:
  // -- loops ------------------------------------------------------------------------------------------------------------
  int serialDigit(int axis) const {
    if (axis < 0) {
      return -1;
    }
    const std::vector<tile::Digit>& ds = builder_.program().spaces[static_cast<size_t>(space_)].axes[static_cast<size_t>(axis)].digits;
    for (size_t d = 0; d < ds.size(); d++) {
      if (ds[d].level == tile::Level::Serial) {
        return static_cast<int>(d);
      }
    }
    return -1;
  }

  void over(int axis, const std::function<void()>& body) {
    overCarrying(axis, {}, [&](std::span<const ValueId>) {
      body();
      return std::vector<ValueId>{};
    });
  }

  std::vector<ValueId> overCarrying(int axis, std::vector<ValueId> init,
                                    const std::function<std::vector<ValueId>(std::span<const ValueId>)>& body) {
    int digit = serialDigit(axis);
    if (digit < 0) {
      return body(init);
    }
    return builder_.loop(space_, axis, digit, std::move(init), [&](std::span<const ValueId> carried) {
      lowering_.pushScope();
      std::vector<ValueId> next = body(carried);
      lowering_.popScope();
      return next;
    });
  }

  IntExpr coord(int axis) const { return axis < 0 ? IntExpr(0) : builder_.coord(space_, axis); }
  IntExpr row() const { return row_ ? *row_ : coord(m_); }
  std::vector<IntExpr> here() const { return axes_.dims(c_, row(), coord(k_), coord(n_)); }
  Lowering::Position position(const TensorView* tv) const { return positionOf(c_, tv, here()); }

  uint64_t digitSet(int axis) const {
    return axis < 0 ? 0 : tile::axisDigits(builder_.program().spaces[static_cast<size_t>(space_)], axis);
  }

  // -- outputs ------------------------------------------------------------------------------------------------------------
  bool isRowOutput(const TensorView* out) const {
    const std::vector<IntExpr>& index = c_.index.at(out->id());
    return c_.hasReduction() && std::none_of(index.begin(), index.end(), [&](const IntExpr& i) { return dependsOnReduced(c_, i); });
  }

  bool storesLast() const {
    return storeSweep_ == c_.rounds &&
           std::any_of(group_.outputs.begin(), group_.outputs.end(), [&](const TensorView* o) { return !isRowOutput(o); });
  }

  bool sweepsAreLoops() const { return serialDigit(k_) >= 0 || serialDigit(n_) >= 0; }

  // The sweep that stores the full outputs: the first if none of them waits for a reduction, else one after all others.
  int sweepThatStores() const {
    std::set<int> waiting;
    for (const Expr* e : group_.exprs) {
      if (e->kind() == ExprKind::Reduce ||
          std::any_of(e->inputs().begin(), e->inputs().end(), [&](const Val* v) { return waiting.contains(v->id()); })) {
        waiting.insert(e->output()->id());
      }
    }
    bool late = std::any_of(group_.outputs.begin(), group_.outputs.end(),
                            [&](const TensorView* o) { return !isRowOutput(o) && waiting.contains(o->id()); });
    return late || !sweepsAreLoops() ? c_.rounds : 0;
  }

  void storeOutputs(bool rows, bool full) {
    for (const TensorView* out : group_.outputs) {
      if (isRowOutput(out) ? rows : full) {
        Lowering::Position at = position(out);
        lowering_.store(out, at, lowering_.value(out, at, space_), streams(out) ? tile::Cache::Once : tile::Cache::Keep);
      }
    }
  }

  bool streams(const TensorView* out) const {
    IntExpr n = 1;
    for (const IntExpr& e : out->shape()) {
      n *= e;
    }
    return n.isConst() && n.constValue() > digits_.streamBytes / dataTypeSize(out->dtype());
  }

  // -- reductions ---------------------------------------------------------------------------------------------------------
  std::vector<const Expr*> ofRound(int round) const {
    std::vector<const Expr*> result;
    for (const Expr* e : reductions_) {
      if (c_.round.at(e->output()->id()) == round) {
        result.push_back(e);
      }
    }
    return result;
  }

  ValueId operandOf(const Expr* reduction) {
    const TensorView* in = reduction->tensorInputs()[0];
    return builder_.cast(lowering_.value(in, position(in), space_), computeIn(in->dtype()));
  }

  ValueId combine(const Expr* reduction, ValueId a, ValueId b) {
    DataType type = computeIn(reduction->tensorInputs()[0]->dtype());
    return builder_.point(combineOp(reduction->attributes().reduce, type), {a, b});
  }

  ValueId startOf(const Expr* reduction, uint64_t digits) {
    DataType type = computeIn(reduction->tensorInputs()[0]->dtype());
    return tile::identity(builder_, reduction->attributes().reduce, type, space_, digits);
  }

  // A value that is the same along reduced digits counts once for each of their positions.
  ValueId spread(const Expr* reduction, ValueId x, uint64_t digits) {
    bool hasAll = (builder_.program().values[static_cast<size_t>(x)].digits & digits) == digits;
    return hasAll ? x : combine(reduction, startOf(reduction, digits), x);
  }

  void bindResult(const Expr* reduction, ValueId value) {
    lowering_.bind(reduction->tensorOutput(), builder_.cast(value, reduction->output()->dtype()));
  }

  // One sweep over k and n: the results of `round`, reduced over all their digits.
  void sweep(int round, const std::function<void()>& alongside) {
    std::vector<const Expr*> exprs = ofRound(round);
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
        if (round == storeSweep_) {
          storeOutputs(false, true);
        }
        alongside();
        return next;
      };
      partial = overCarrying(k_, std::move(partial), [&](std::span<const ValueId> carried) {
        if (!axes_.innerReduced) {
          return step(carried);
        }
        return overCarrying(n_, {carried.begin(), carried.end()}, step);
      });
    }
    for (size_t i = 0; i < exprs.size(); i++) {
      uint64_t present = builder_.program().values[static_cast<size_t>(partial[i])].digits & reducedDigits;
      ValueId total = present == 0 ? partial[i] : builder_.reduce(partial[i], present, exprs[i]->attributes().reduce);
      bindResult(exprs[i], total);
    }
  }

  void inner() {
    chooseStash();
    over(m_, [&] {
      lowering_.pushScope();
      int last = storesLast() ? c_.rounds : c_.rounds - 1;
      for (int round = 0; round < c_.rounds; round++) {
        bool prefetch = digits_.prefetchRows && (round == last || (round == c_.rounds - 1 && isCostly(group_)));
        sweep(round, [&] {
          stash(round);
          if (prefetch) {
            prefetchNextRow();
          }
        });
        useStash(round);
        hoistRows(round);
      }
      storeOutputs(true, false);
      if (storesLast()) {
        over(k_, [&] {
          over(n_, [&] {
            storeOutputs(false, true);
            if (digits_.prefetchRows && !isCostly(group_)) {
              prefetchNextRow();
            }
          });
        });
      }
      lowering_.popScope();
    });
  }

  void outer() {
    over(m_, [&] {
      over(n_, [&] {
        lowering_.pushScope();
        for (int round = 0; round < c_.rounds; round++) {
          sweep(round, [] {});
        }
        storeOutputs(true, false);
        if (storesLast()) {
          over(k_, [&] { storeOutputs(false, true); });
        }
        lowering_.popScope();
      });
    });
  }

  // What a row has once, computed once: values without reduced dims that a sweep (only that one, if given) will read, from
  // results known after `round`.
  void hoistRows(int round, std::optional<int> sweep = std::nullopt) {
    std::map<int, int> ready;  // rounds a tensor waits for
    for (const Expr* e : group_.exprs) {
      const TensorView* out = e->tensorOutput();
      int waits = e->kind() == ExprKind::Reduce ? c_.round.at(out->id()) + 1 : 0;
      for (const TensorView* in : e->tensorInputs()) {
        if (auto it = ready.find(in->id()); it != ready.end()) {
          waits = std::max(waits, it->second);
        }
      }
      ready[out->id()] = waits;
      if (!isSpread(out) || (sweep && !sweepsOf(out).contains(*sweep))) {
        continue;
      }
      for (const TensorView* in : e->tensorInputs()) {
        auto it = ready.find(in->id());
        if (it != ready.end() && it->second == round + 1 && !isSpread(in) && c_.index.contains(in->id())) {
          (void)lowering_.value(in, position(in), space_);
        }
      }
    }
  }

  // -- stash: costly tensors of one sweep, kept in a scratch row for the next ones ------------------------------------------
  void chooseStash() {
    if (!digits_.stash || serialDigit(n_) < 0 || k_ >= 0) {
      return;
    }
    for (const Expr* e : group_.exprs) {
      if (e->kind() != ExprKind::Point || !isCostly(e->attributes().point) || !isSpread(e->tensorOutput())) {
        continue;
      }
      int firstUse = firstSweepOf(e->tensorOutput());
      int lastUse = lastSweepOf(e->tensorOutput());
      bool inTime = digits_.pipelineRows == 0 || lastUse == firstUse + 1;  // a pipeline overwrites it after one step
      if (firstUse < c_.rounds && lastUse > firstUse && inTime) {
        stashed_[e->output()->id()] = {firstUse, -1};
      }
    }
    int stashes = 0;
    for (auto& [id, s] : stashed_) {
      const TensorView* tv = tensorOf(id);
      s.param = builder_.tensor({.name = fmt::format("e{}", stashes++), .dtype = tv->dtype(), .memory = tile::Memory::Scratch,
                                 .extents = {lowering_.size(axes_.N)}, .strides = {1}, .alignment = 64});
    }
  }

  const TensorView* tensorOf(int id) const {
    for (const Expr* e : group_.exprs) {
      if (e->output()->id() == id) {
        return e->tensorOutput();
      }
    }
    throwInternalError(fmt::format("[rows] no T{} in the group", id));
  }

  bool isSpread(const TensorView* tv) const {
    auto it = c_.index.find(tv->id());
    return it != c_.index.end() &&
           std::any_of(it->second.begin(), it->second.end(), [&](const IntExpr& i) { return dependsOnReduced(c_, i); });
  }

  // Sweeps in which a tensor is computed: those of the reductions it reaches without passing one, and that of its stores.
  std::set<int> sweepsOf(const TensorView* tv) const {
    std::set<int> sweeps;
    std::set<int> reached = {tv->id()};
    for (const Expr* e : group_.exprs) {
      bool uses = std::any_of(e->inputs().begin(), e->inputs().end(), [&](const Val* v) { return reached.contains(v->id()); });
      if (uses && e->kind() == ExprKind::Reduce) {
        sweeps.insert(c_.round.at(e->output()->id()));
      } else if (uses) {
        reached.insert(e->output()->id());
      }
    }
    for (const TensorView* out : group_.outputs) {
      if (reached.contains(out->id())) {
        sweeps.insert(isRowOutput(out) ? c_.rounds : storeSweep_);
      }
    }
    return sweeps;
  }
  int firstSweepOf(const TensorView* tv) const {
    std::set<int> s = sweepsOf(tv);
    return s.empty() ? c_.rounds : *s.begin();
  }
  int lastSweepOf(const TensorView* tv) const {
    std::set<int> s = sweepsOf(tv);
    return s.empty() ? -1 : *s.rbegin();
  }

  void stash(int round) {
    for (const auto& [id, s] : stashed_) {
      if (s.round == round) {
        const TensorView* tv = tensorOf(id);
        builder_.store(s.param, {{coord(n_)}}, lowering_.value(tv, position(tv), space_));
      }
    }
  }

  void dropStash(int round) {
    for (const auto& [id, s] : stashed_) {
      if (s.round == round) {
        lowering_.stopReading(tensorOf(id));
      }
    }
  }

  void useStash(int round) {
    for (const auto& [id, s] : stashed_) {
      if (s.round == round) {
        lowering_.readFrom(tensorOf(id), s.param, {{coord(n_)}});
      }
    }
  }

  // -- prefetch -------------------------------------------------------------------------------------------------------------
  // Elements of n that one step covers.
  int64_t stepWidth() const {
    int64_t width = 1;
    for (const tile::Builder::DigitSpec& d : digits_.n) {
      width *= d.level == tile::Level::Repeat || d.level == tile::Level::Vector ? d.size.constValue() : 1;
    }
    return width;
  }

  // Lines of the inputs that run over n, at other dims.
  void prefetch(const std::vector<IntExpr>& dims, bool byRow) {
    for (const TensorView* in : group_.inputs) {
      auto it = c_.index.find(in->id());
      auto runsOver = [&](const std::vector<int>& axis) {
        return it != c_.index.end() && std::any_of(axis.begin(), axis.end(), [&](int d) {
          return std::any_of(it->second.begin(), it->second.end(), [&](const IntExpr& i) { return i.contains(fmt::format("d{}", d)); });
        });
      };
      if (runsOver(axes_.n) && (!byRow || runsOver(axes_.m))) {
        Lowering::Position at = positionOf(c_, in, dims);
        std::string n = coord(n_).toString();
        bool oneRun = std::all_of(at.begin(), at.end(), [&](const tile::Index& i) { return i.expr.linearIn(n).has_value(); });
        if (oneRun) {  // else a step reads here and there
          int lines = static_cast<int>((stepWidth() * dataTypeSize(in->dtype()) + 63) / 64);
          builder_.prefetch(lowering_.tensorParam(in), std::move(at), lines);
        }
      }
    }
  }

  void prefetchNextRow() {
    if (m_ >= 0) {
      prefetch(axes_.dims(c_, row() + 1, coord(k_), coord(n_)), true);
    }
  }

  void prefetchPointwise() {
    if (digits_.prefetchRows) {
      prefetchNextRow();
    } else if (digits_.prefetchAhead > 0) {
      prefetch(axes_.dims(c_, coord(m_), 0, coord(n_) + digits_.prefetchAhead), false);
    }
  }

  // -- software pipeline over rows --------------------------------------------------------------------------------------------
  // In step i stage k works on row i - k of the part: the stages are the rounds of reductions, the last one stores. One loop over
  // n serves them all, so reads, arithmetic and writes overlap. At both ends some stages work on rows nobody needs: rows are
  // clamped and their stores left out.
  void pipelined() {
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
        for (int stage = c_.rounds; stage >= 0; stage--) {  // what the stage before stashed is read before it is overwritten
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
          if (stage == 0) {
            prefetchNextRow();
          }
          (void)lowering_.popScope();
          (void)lowering_.popScope();
          dropStash(stage - 1);
        }
        return next;
      });
      if (std::any_of(group_.outputs.begin(), group_.outputs.end(), [&](const TensorView* o) { return isRowOutput(o); })) {
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
        size_t r = static_cast<size_t>(std::find(reductions_.begin(), reductions_.end(), delayed[i].reduction) - reductions_.begin());
        next.push_back(builder_.reduce(partial[r], digitSet(n_), delayed[i].reduction->attributes().reduce));
      }
      return next;
    });
  }

  // -- outer reduction through a scratch row ----------------------------------------------------------------------------------
  void outerInScratch() {
    std::vector<const Expr*> exprs = ofRound(0);
    std::vector<int> rows;
    IntExpr width = 1;  // elements of n in one part
    IntExpr base = 0;
    const tile::Axis n = builder_.program().spaces[static_cast<size_t>(space_)].axes[static_cast<size_t>(n_)];
    for (const tile::Digit& d : n.digits) {
      if (d.level == tile::Level::Part) {
        base += IntExpr::symbol(d.symbol, {.lower = 0}) * d.stride;
      } else {
        width *= d.size;
      }
    }
    for (size_t i = 0; i < exprs.size(); i++) {
      rows.push_back(builder_.tensor({.name = fmt::format("e{}", i), .dtype = computeIn(exprs[i]->tensorInputs()[0]->dtype()),
                                      .memory = tile::Memory::Scratch, .extents = {width}, .strides = {1}, .alignment = 64}));
    }
    auto at = [&]() -> std::vector<tile::Index> { return {{coord(n_) - base}}; };
    over(m_, [&] {
      over(n_, [&] {
        for (size_t i = 0; i < exprs.size(); i++) {
          builder_.store(rows[i], at(), startOf(exprs[i], digitSet(n_)));
        }
      });
      over(k_, [&] {
        over(n_, [&] {
          for (size_t i = 0; i < exprs.size(); i++) {
            ValueId x = spread(exprs[i], operandOf(exprs[i]), digitSet(k_));
            uint64_t present = builder_.program().values[static_cast<size_t>(x)].digits & digitSet(k_);
            ValueId part = present == 0 ? x : builder_.reduce(x, present, exprs[i]->attributes().reduce);
            builder_.store(rows[i], at(), combine(exprs[i], builder_.load(rows[i], at(), space_), part));
          }
        });
      });
      if (!digits_.split.empty()) {
        combineRows(exprs, rows, at);
        return;
      }
      over(n_, [&] {
        lowering_.pushScope();
        for (size_t i = 0; i < exprs.size(); i++) {
          bindResult(exprs[i], builder_.load(rows[i], at(), space_));
        }
        storeOutputs(true, false);
        lowering_.popScope();
      });
    });
  }

  // -- partial results of parts, combined in part order by the last to arrive --------------------------------------------------
  int workspace(const std::string& name, DataType type, std::vector<IntExpr> extents, bool zeroed) {
    IntExpr elements = 1;
    for (const IntExpr& e : extents) {
      elements *= e;
    }
    std::vector<IntExpr> strides = rowMajorStrides(extents);
    int param = builder_.tensor({.name = name, .dtype = type, .memory = tile::Memory::Workspace, .extents = std::move(extents),
                                 .strides = std::move(strides), .alignment = 64, .zeroed = zeroed});
    plan_.slots.push_back({nullptr, static_cast<int>(plan_.workspaces.size())});
    plan_.workspaces.push_back({type, elements, zeroed});
    return param;
  }

  void combineRows(const std::vector<const Expr*>& exprs, const std::vector<int>& rows,
                   const std::function<std::vector<tile::Index>()>& at) {
    IntExpr part = IntExpr::symbol(digits_.split, {.lower = 0});
    std::vector<int> partials;
    for (size_t i = 0; i < exprs.size(); i++) {
      DataType type = computeIn(exprs[i]->tensorInputs()[0]->dtype());
      partials.push_back(workspace(fmt::format("w{}", i), type, {digits_.splitCount, lowering_.size(axes_.N)}, false));
    }
    over(n_, [&] {
      for (size_t i = 0; i < exprs.size(); i++) {
        builder_.store(partials[i], {{part}, {coord(n_)}}, builder_.load(rows[i], at(), space_));
      }
    });
    int counter = workspace("arrived", DataType::Int32, {1}, true);
    builder_.lastArriver(counter, [&] {
      int space = builder_.space("t", {{"q", digits_.splitCount, {{tile::Level::Serial, 0, ""}}},
                                       {"c", lowering_.size(axes_.N), lastDigits()}});
      finish(exprs, space, [&](size_t i) {
        return builder_.load(partials[i], {{builder_.coord(space, 0)}, {builder_.coord(space, 1)}}, space);
      });
    });
  }

  // Digits of one worker over the whole of n.
  std::vector<tile::Builder::DigitSpec> lastDigits() const {
    std::vector<tile::Builder::DigitSpec> result = {{tile::Level::Serial, 0, ""}};
    for (const tile::Builder::DigitSpec& d : digits_.n) {
      if (d.level != tile::Level::Part && d.level != tile::Level::Serial) {
        result.push_back(d);
      }
    }
    return result;
  }

  // In a space of axes (q: parts, c: outputs, if there are several): results of all reductions, then the row outputs.
  void finish(const std::vector<const Expr*>& exprs, int space, const std::function<ValueId(size_t)>& partial) {
    bool hasColumns = builder_.program().spaces[static_cast<size_t>(space)].axes.size() > 1;
    uint64_t columnDigits = hasColumns ? tile::axisDigits(builder_.program().spaces[static_cast<size_t>(space)], 1) : 0;
    int outerSpace = space_;
    auto body = [&](std::span<const ValueId>) {
      lowering_.pushScope();
      std::vector<ValueId> start;
      space_ = space;
      for (const Expr* e : exprs) {
        start.push_back(startOf(e, columnDigits));
      }
      std::vector<ValueId> total = builder_.loop(space, 0, 0, std::move(start), [&](std::span<const ValueId> carried) {
        std::vector<ValueId> next;
        for (size_t i = 0; i < exprs.size(); i++) {
          next.push_back(combine(exprs[i], carried[i], partial(i)));
        }
        return next;
      });
      for (size_t i = 0; i < exprs.size(); i++) {
        bindResult(exprs[i], total[i]);
      }
      IntExpr column = hasColumns ? builder_.coord(space, 1) : IntExpr(0);
      std::vector<IntExpr> dims = axes_.innerReduced ? axes_.dims(c_, column, 0, 0) : axes_.dims(c_, 0, 0, column);
      for (const TensorView* out : group_.outputs) {
        Lowering::Position at = positionOf(c_, out, dims);
        lowering_.store(out, at, lowering_.value(out, at, space), tile::Cache::Keep);
      }
      lowering_.popScope();
      return std::vector<ValueId>{};
    };
    if (hasColumns) {
      builder_.loop(space, 1, 0, {}, body);
    } else {
      body({});
    }
    space_ = outerSpace;
  }

  // Few rows, long reductions: each part sweeps its share of k or n for every row.
  void split() {
    IntExpr part = IntExpr::symbol(digits_.split, {.lower = 0});
    std::vector<const Expr*> exprs = ofRound(0);
    std::vector<int> partials;
    IntExpr rows = lowering_.size(axes_.M);
    for (size_t i = 0; i < exprs.size(); i++) {
      DataType type = computeIn(exprs[i]->tensorInputs()[0]->dtype());
      partials.push_back(workspace(fmt::format("w{}", i), type, {digits_.splitCount, rows}, false));
    }
    int counter = workspace("arrived", DataType::Int32, {1}, true);
    over(m_, [&] {
      lowering_.pushScope();
      sweep(0, [] {});
      for (size_t i = 0; i < exprs.size(); i++) {
        const TensorView* tv = exprs[i]->tensorOutput();
        builder_.store(partials[i], {{part}, {coord(m_)}},
                       builder_.cast(lowering_.value(tv, position(tv), space_), computeIn(exprs[i]->tensorInputs()[0]->dtype())));
      }
      lowering_.popScope();
    });
    builder_.lastArriver(counter, [&] {
      std::vector<tile::Builder::AxisSpec> axes = {{"q", digits_.splitCount, {{tile::Level::Serial, 0, ""}}}};
      if (m_ >= 0) {
        axes.push_back({"c", rows, {{tile::Level::Serial, 0, ""}}});
      }
      int space = builder_.space("t", std::move(axes));
      finish(exprs, space, [&](size_t i) {
        IntExpr row = m_ >= 0 ? builder_.coord(space, 1) : IntExpr(0);
        return builder_.load(partials[i], {{builder_.coord(space, 0)}, {row}}, space);
      });
    });
  }

  struct Stashed {
    int round = 0;
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
  int storeSweep_ = 0;  // `rounds`: after all reductions
  std::map<int, Stashed> stashed_;
};

}  // namespace

PointOp combineOp(ReduceOp op, DataType type) {
  switch (op) {
    case ReduceOp::Sum: return PointOp::Add;
    case ReduceOp::Prod: return PointOp::Mul;
    case ReduceOp::Max: return PointOp::Maximum;
    case ReduceOp::Min: return PointOp::Minimum;
    case ReduceOp::And: return type == DataType::Bool ? PointOp::LogicalAnd : PointOp::BitwiseAnd;
    case ReduceOp::Or: return type == DataType::Bool ? PointOp::LogicalOr : PointOp::BitwiseOr;
    case ReduceOp::Xor: return type == DataType::Bool ? PointOp::LogicalXor : PointOp::BitwiseXor;
  }
  throwInternalError("[rows] unknown reduction");
}

bool isCostly(PointOp op) {
  using enum PointOp;
  switch (op) {
    case Exp:
    case Exp2:
    case Erf:
    case Log:
    case Sigmoid:
    case Tanh: return true;
    default: return info(op).scalarCall;
  }
}

bool isCostly(const Group& group) {
  return std::any_of(group.exprs.begin(), group.exprs.end(),
                     [](const Expr* e) { return e->kind() == ExprKind::Point && isCostly(e->attributes().point); });
}

KernelPlan writeRows(const Group& group, const Coordinates& coordinates, const KernelAxes& axes, const RowDigits& digits,
                     tile::Target target, const std::string& name) {
  return RowWriter(group, coordinates, axes, digits, target, name).write();
}

KernelPlan scheduleRows(const Group& group, const DeviceInfo& device, const std::string& name) {
  CoordinatesOrReason found = findCoordinates(group);
  invariant(found.coordinates.has_value(), "[{}] a group was accepted that has no coordinates: {}", name, found.reason);
  std::vector<KernelAxes> choices = axesChoices(*found.coordinates);
  for (size_t i = 0;; i++) {
    RowDigits digits = device.target == tile::Target::Cpu ? cpuDigits(group, *found.coordinates, choices[i], device)
                                                          : gpuDigits(group, *found.coordinates, choices[i], device);
    KernelPlan plan = writeRows(group, *found.coordinates, choices[i], digits, device.target, name);
    if (i + 1 == choices.size() || runsThrough(plan.program, "n")) {
      return plan;
    }
  }
}

}  // namespace meshfuse
