#include "exec/refused_position.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ranges.h"
#include "exec/compile.h"
#include "host/executor.h"
#include "host/program.h"
#include "interpret/interpret.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "multidevice/sharding/coordinates.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

namespace {

using Position = std::vector<int64_t>;

// The first element with this value.
std::optional<Position> positionOf(const Tensor& t, int64_t value) {
  const auto* data = static_cast<const std::byte*>(t.data());
  for (int64_t k = 0; k < t.numel(); k++) {
    if (loadInteger(data + k * dataTypeSize(t.dtype()), t.dtype()) == value) {
      Position at(t.dim());
      int64_t rest = k;
      for (int64_t dim = t.dim() - 1; dim >= 0; dim--) {
        at[dim] = rest % t.sizes()[dim];
        rest /= t.sizes()[dim];
      }
      return at;
    }
  }
  return std::nullopt;
}

// A position in the part that a rank holds, as a position in the whole tensor.
Position inWhole(Position at, const TensorView* tv, int64_t rank) {
  if (tv->hasDeviceMesh()) {
    const Part part = heldPart(shardState(tv), rank);
    for (const int64_t dim : indices(at)) {
      int64_t left = at[dim];
      for (const IndexRun& run : part.dims[dim]) {
        if (left < run.count) {
          at[dim] = run.start + left * run.step;
          break;
        }
        left -= run.count;
      }
    }
  }
  return at;
}

bool isCheck(const Expr& e) { return e.kind() == ExprKind::Point && e.attributes().point == PointOp::CheckedIndex; }

bool isCopy(const Expr& e) {
  using enum ExprKind;
  return e.kind() == Set || e.kind() == Cast || e.kind() == Redistribute;
}

// The input that an index is, or is a copy or a cast of.
int64_t inputOf(const Fusion& fusion, const Val* index) {
  while (index->definition() != nullptr && isCopy(*index->definition())) {
    index = index->definition()->input(0);
  }
  return index->isTensor() && index->isFusionInput() ? positionIn(fusion.inputs(), index) : -1;
}

// What a value is computed from: tensors that the failed call has left in memory, and the ops from there on.
class Cone {
 public:
  Cone(const Val* val, const Binding& binding) : binding_(binding) { add(val); }

  bool isKnown() const { return isKnown_; }

  // With constant sizes, for a rank with these coordinates.
  Tensor compute(const Val* val, std::span<const Argument> inputs,
                 const std::map<std::string, int64_t, std::less<>>& coordinates) const {
    const Fusion& local = val->fusion();
    Fusion program;
    FusionCloner cloner(local, program, [&](const IntExpr& e) { return e.substitute(valuesIn(coordinates)); });
    std::vector<Argument> arguments;
    for (const auto& [source, tensor] : sources_) {
      program.addInput(cloner.clone(source));
      arguments.push_back(tensor.to(DeviceId::cpu()));
    }
    for (const int64_t k : indices(local.inputs())) {
      if (!local.inputs()[k]->isTensor()) {
        program.addInput(cloner.clone(local.inputs()[k]));
        arguments.push_back(inputs[k]);
      }
    }
    for (const Expr* e : local.exprs()) {
      if (exprs_.contains(e)) {
        cloner.clone(e);
      }
    }
    program.addOutput(cloner.clone(val));
    return interpret(program, arguments)[0];
  }

 private:
  void add(const Val* val) {
    if (seen_.insert(val).second) {
      std::optional<Tensor> tensor = val->isTensor() ? binding_.remaining(val->id()) : std::nullopt;
      const Expr* e = val->definition();
      if (tensor) {
        sources_.emplace_back(val, std::move(*tensor));
      } else if (e != nullptr) {
        isKnown_ = isKnown_ && e->kind() != ExprKind::Communicate;
        exprs_.insert(e);
        std::ranges::for_each(e->inputs(), [this](const Val* in) { add(in); });
      } else {
        isKnown_ = isKnown_ && !val->isTensor();
      }
    }
  }

  const Binding& binding_;
  bool isKnown_ = true;
  std::set<const Val*> seen_;
  std::set<const Expr*> exprs_;
  std::vector<std::pair<const Val*, Tensor>> sources_;
};

// The part of the index of a check that this rank has read, in the memory of the CPU.
std::optional<Tensor> partOfIndex(const Expr& check, const CompiledProgram& program, const Binding& binding,
                                  std::span<const Argument> inputs) {
  const Fusion& local = *program.program.local;
  const int64_t number = check.output()->id();
  const Val* checked = number < local.numVals() ? local.val(number) : nullptr;
  if (checked == nullptr || checked->definition() == nullptr || !isCheck(*checked->definition())) {
    return std::nullopt;  // the index is on other ranks
  }
  const Val* index = checked->definition()->input(0);
  const Cone cone(index, binding);
  if (!cone.isKnown()) {
    return std::nullopt;
  }
  try {
    return cone.compute(index, inputs, CoordinateSymbols(*program.program.planned).valuesOn(program.host->rank));
  } catch (const RefusedIndexError&) {  // it depends on another index that is out of range
    return std::nullopt;
  }
}

// The names of the ops that read a checked index or a copy of it.
void addReaders(const Fusion& fusion, const Val* index, std::set<std::string_view>& names) {
  for (const Expr* reader : fusion.uses(index)) {
    if (isCopy(*reader)) {
      addReaders(fusion, reader->output(), names);
    } else {
      names.insert(reader->calledName());
    }
  }
}

}  // namespace

RefusedIndexError withPosition(const RefusedIndexError& error, const CompiledProgram& program, const Binding* binding,
                               std::span<const Argument> inputs) {
  const Fusion& planned = *program.program.planned;
  const auto told = [&](std::string_view op, const std::string& where) {
    return RefusedIndexError(
        fmt::format("[run] {}: index {} is out of range for an extent of {}{}; give 0 <= index < {}", op, error.index,
                    error.extent, where, error.extent),
        error.index, error.extent);
  };
  std::set<std::string_view> ops;
  for (const Expr* check : planned.exprs()) {
    if (!isCheck(*check) || check->input(1)->isTensor() || !check->input(1)->intExpr().isConst(error.extent)) {
      continue;
    }
    std::set<std::string_view> names;
    addReaders(planned, check->output(), names);
    ops.insert(names.begin(), names.end());
    const std::optional<Tensor> part =
        binding != nullptr ? partOfIndex(*check, program, *binding, inputs) : std::nullopt;
    if (const auto at = part ? positionOf(*part, error.index) : std::nullopt) {
      const Position whole = inWhole(*at, check->tensorOutput(), program.host->rank);
      const int64_t input = inputOf(planned, check->input(0));
      return told(joined(names, ", "),
                  fmt::format(", at [{}] of {}", fmt::join(whole, ", "),
                              input >= 0 ? inputText(planned, input) : "the index, which is computed"));
    }
  }
  return ops.empty() ? error : told(joined(ops, " or "), "");
}

}  // namespace meshfuse
