#include "autoplan/micro_batches.h"

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autoplan/placement.h"
#include "autoplan/roles.h"
#include "autoplan/strategies.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "ir/op_rule.h"
#include "localize/ops.h"
#include "ops/add_view.h"

namespace meshfuse {

namespace {

using enum MicroBatchRole;

std::string named(const Expr& e) { return fmt::format("T{} = {}", e.output()->id(), e.opName()); }

// Emits each op on its part of the batch, as a rank of an axis that cuts the batch would run it.
class Cutter {
 public:
  Cutter(const Fusion& from, int64_t count)
      : from_(from),
        mesh_(DeviceMesh::createForShape({count})),
        to_(std::make_unique<Fusion>()),
        cloner_(from, *to_, {}, FusionCloner::Numbers::Kept) {
    result_.count = count;
  }

  MicroBatches run() {
    addInputs();
    for (const Expr* e : from_.exprs()) {
      add(*e);
    }
    for (const int64_t k : indices(from_.outputs())) {
      to_->addOutput(cloner_.find(from_.outputs()[k]), from_.outputNames()[k]);
    }
    for (const auto& [out, in] : from_.aliases()) {
      if (cloner_.find(out)->asTensor()->constantShape() == cloner_.find(in)->asTensor()->constantShape()) {
        to_->aliasOutputToInput(cloner_.find(out), cloner_.find(in));
      }
    }
    for (const Expr* e : to_->exprs()) {  // some ops take several local ones
      if (!e->output()->isTensor()) {
        continue;
      }
      const bool isWhole = std::ranges::all_of(
          e->tensorInputs(), [&](const TensorView* in) { return result_.roles.at(in->id()) == Whole; });
      result_.roles.try_emplace(e->output()->id(), isWhole ? Whole : Rows);
    }
    result_.program = std::move(to_);
    return std::move(result_);
  }

 private:
  void addInputs() {
    const Roles roles(from_);
    std::optional<int64_t> batch;
    for (const int64_t k : indices(from_.inputs())) {
      const Val* in = from_.inputs()[k];
      const Sizes shape = in->isTensor() ? in->asTensor()->constantShape() : Sizes();
      const bool isData = !shape.empty() && !roles.isParameter(in);
      if (isData && !batch) {
        batch = shape[0];
        check(shape[0] % result_.count == 0 && shape[0] > 0,
              "[autoplan] {} micro-batches do not divide the batch, dim 0 of {}, which has {} elements; ask for a "
              "number that divides it",
              result_.count, in->toString(), shape[0]);
      }
      if (isData && shape[0] == *batch) {
        std::vector<Dim> dims = dimsOf(in->asTensor());
        dims[0].extent = shape[0] / result_.count;
        TensorView* part = to_->tensor(in->dtype(), dims);
        to_->renumber(part, in->id());
        cloner_.set(in, part);
        dimOf_[in->id()] = 0;
        result_.roles[in->id()] = Rows;
      } else {
        cloner_.clone(in);
        if (in->isTensor()) {
          result_.roles[in->id()] = Whole;
        }
      }
      to_->addInput(cloner_.find(in), from_.inputNames()[k]);
    }
    check(
        batch.has_value(),
        "[autoplan] no input of the program has a batch: all are parameters or scalars; plan it without micro-batches");
  }

  void add(const Expr& e) {
    if (!e.output()->isTensor()) {
      cloner_.clone(&e);
      return;
    }
    const std::vector<const TensorView*> operands = mapped<const TensorView*>(e.tensorInputs(), std::identity());
    const auto has = [&](MicroBatchRole role) {
      return std::ranges::any_of(operands, [&](const TensorView* in) { return result_.roles.at(in->id()) == role; });
    };
    MicroBatchRole& role = result_.roles[e.output()->id()];
    if (!has(Rows)) {
      role = has(Sum) || has(OfSums) ? OfSums : Whole;
      cloner_.clone(&e);
      return;
    }
    check(!has(Sum) && !has(OfSums),
          "[autoplan] {} reads rows of the batch and a sum over all of them, which is known after the last micro-batch "
          "only; plan the program "
          "without micro-batches, or make the sum an input",
          named(e));
    const Strategy strategy = strategyOf(e);
    const Sizes shape = e.tensorOutput()->constantShape();
    const bool sums = !strategy.summed.empty();
    role = sums ? Sum : Rows;
    if (!sums) {
      dimOf_[e.output()->id()] = strategy.result[0];
    }
    LocalOp op{&e, e.tensorOutput(), stateOf(strategy.result, shape, mesh_), {}, {}, {}};
    for (const int64_t k : indices(e.inputs())) {
      const Val* in = e.input(k);
      if (!in->isTensor()) {
        op.operands.push_back(cloner_.clone(in));
        op.needed.emplace_back();
        continue;
      }
      op.needed.push_back(stateOf(strategy.operands[k], in->asTensor()->constantShape(), mesh_));
      op.operands.push_back(operandOf(in->asTensor(), strategy.operands[k][0]));
    }
    TensorView* made = emitLocalOp(*to_, op);
    if (contains(op.operands, made)) {  // a view that changes nothing on a part
      made = to_->addOp(ExprKind::Set, {made}, made->dtype(), dimsOf(made));
    }
    to_->renumber(made, e.output()->id());
    cloner_.set(e.output(), made);
  }

  // The one that cuts the batch of all operands that are parts of it, and as few others as possible.
  Strategy strategyOf(const Expr& e) const {
    std::optional<Strategy> best;
    int64_t fewest = 0;
    for (Strategy& s : strategiesOf(e, mesh_, Division::Even)) {
      bool fits = true;
      int64_t others = 0;
      for (const int64_t k : e.tensorPositions()) {
        const auto dim = dimOf_.find(e.input(k)->id());
        fits &= dim == dimOf_.end() || dim->second == s.operands[k][0];
        others += dim == dimOf_.end() && s.operands[k][0] != kUncut ? 1 : 0;
      }
      if (fits && (!best || others < fewest)) {
        fewest = others;
        best = std::move(s);
      }
    }
    check(best.has_value(),
          "[autoplan] {} combines different rows of the batch, so {} micro-batches cannot run one after the other; "
          "plan the program without "
          "micro-batches",
          named(e), result_.count);
    return std::move(*best);
  }

  // The copy of an operand; of a whole one the first part, if the op reads a part.
  TensorView* operandOf(const TensorView* in, int8_t dim) {
    TensorView* copy = cloner_.find(in)->asTensor();
    if (dim == kUncut || dimOf_.contains(in->id())) {
      return copy;
    }
    TensorView*& part = parts_[{in->id(), dim}];
    if (part == nullptr) {
      std::vector<IntExpr> stops = copy->shape();
      stops[dim] = stops[dim].constValue() / result_.count;
      const std::vector<IntExpr> starts(stops.size(), 0);
      const std::vector<IntExpr> steps(stops.size(), 1);
      part = addSlice(copy, starts, stops, steps);
      result_.roles[part->id()] = Whole;
    }
    return part;
  }

  const Fusion& from_;
  const DeviceMesh mesh_;
  std::unique_ptr<Fusion> to_;
  FusionCloner cloner_;
  MicroBatches result_;
  std::map<int64_t, int8_t> dimOf_;  // of parts of the batch: the dim that the batch cuts
  std::map<std::pair<int64_t, int8_t>, TensorView*> parts_;
};

}  // namespace

MicroBatches microBatches(const Fusion& concrete, int64_t count) {
  check(count >= 2, "[autoplan] microBatches is {}, expected at least 2: a pipeline runs several at the same time",
        count);
  return Cutter(concrete, count).run();
}

}  // namespace meshfuse
