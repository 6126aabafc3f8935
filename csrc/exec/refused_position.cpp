#include "exec/refused_position.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/ranges.h"
#include "exec/arguments.h"
#include "interpret/interpret.h"
#include "ir/fusion_cloner.h"
#include "localize/localize.h"
#include "multidevice/sharding/coordinates.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/shard_state.h"
#include "preseg_passes/concretize.h"

namespace meshfuse {

namespace {

using Position = std::vector<int64_t>;

// The first element with this value.
std::optional<Position> positionOf(const Tensor& tensor, int64_t value) {
  const Tensor t = tensor.to(DeviceId::cpu()).contiguous();
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

// The ops and inputs on the way to a value.
struct Cone {
  std::set<const Expr*> exprs;
  std::set<const Val*> inputs;
};

Cone coneOf(const Val* val) {
  Cone cone;
  std::vector<const Val*> left = {val};
  while (!left.empty()) {
    const Val* v = left.back();
    left.pop_back();
    const Expr* e = v->definition();
    if (v->isFusionInput()) {
      cone.inputs.insert(v);
    } else if (e != nullptr && cone.exprs.insert(e).second) {
      left.insert(left.end(), e->inputs().begin(), e->inputs().end());
    }
  }
  return cone;
}

// Of the program: the ops on the way to `index`, and the inputs that they need. The sizes of the call are constants.
std::unique_ptr<Fusion> programOf(const Val* index, const Cone& cone, std::span<const Argument> inputs, int64_t rank) {
  const Fusion& fusion = index->fusion();
  std::vector<std::vector<int64_t>> sizes = globalSizes(fusion, inputs, rank);
  for (const int64_t k : indices(sizes)) {
    if (!fusion.inputs()[k]->isTensor()) {
      sizes[k].clear();  // scalars stay arguments
    }
  }
  const SymbolValues values = bindSymbols(fusion, sizes);
  auto program = std::make_unique<Fusion>();
  FusionCloner cloner(fusion, *program, [&](const IntExpr& e) { return e.substitute(valuesIn(values)); });
  for (const Val* in : fusion.inputs()) {
    if (cone.inputs.contains(in)) {
      program->addInput(cloner.clone(in));
    }
  }
  for (const Expr* e : fusion.exprs()) {
    if (cone.exprs.contains(e)) {
      cloner.clone(e);
    }
  }
  program->addOutput(cloner.clone(index));
  return program;
}

// The part of an index that this rank computes from its parts of the inputs, in the memory of the CPU.
std::optional<Tensor> partOfIndex(const Val* index, std::span<const Argument> inputs, int64_t rank) {
  const Cone cone = coneOf(index);
  const auto communicates = [](const Expr* e) { return e->attributes().communications() > 0; };
  if (!index->isTensor() || std::ranges::any_of(cone.exprs, communicates)) {
    return std::nullopt;
  }
  const std::unique_ptr<Fusion> global = programOf(index, cone, inputs, rank);
  const auto coordinates = CoordinateSymbols(*global).valuesOn(rank);
  const std::unique_ptr<Fusion> local = localize(*global, rank);
  Fusion ofRank;
  FusionCloner cloner(*local, ofRank, [&](const IntExpr& e) { return e.substitute(valuesIn(coordinates)); });
  for (const Val* in : local->inputs()) {
    ofRank.addInput(cloner.clone(in));
  }
  for (const Expr* e : local->exprs()) {
    cloner.clone(e);
  }
  ofRank.addOutput(cloner.clone(local->outputs()[0]));
  std::vector<Argument> needed;
  for (const int64_t k : indices(inputs)) {
    if (cone.inputs.contains(index->fusion().inputs()[k])) {
      const auto* tensor = std::get_if<Tensor>(&inputs[k]);
      needed.push_back(tensor != nullptr ? tensor->to(DeviceId::cpu()) : inputs[k]);
    }
  }
  try {
    return interpret(ofRank, needed)[0];
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

RefusedIndexError withPosition(const RefusedIndexError& error, const Fusion& planned, std::span<const Argument> inputs,
                               int64_t rank) {
  const auto told = [&](std::string_view op, const std::string& where) {
    return RefusedIndexError(
        fmt::format("[run] {}: index {} is out of range for an extent of {}{}; give 0 <= index < {}", op, error.index,
                    error.extent, where, error.extent),
        error.index, error.extent);
  };
  std::set<std::string_view> ops;
  for (const Expr* check : planned.exprs()) {
    if (check->kind() != ExprKind::Point || check->attributes().point != PointOp::CheckedIndex ||
        check->input(1)->isTensor() || !check->input(1)->intExpr().isConst(error.extent)) {
      continue;
    }
    const Val* index = check->input(0);
    std::set<std::string_view> names;
    addReaders(planned, check->output(), names);
    ops.insert(names.begin(), names.end());
    const int64_t input = inputOf(planned, index);
    const std::optional<Tensor> values = inputs.empty() ? std::nullopt
                                         : input >= 0   ? std::get<Tensor>(inputs[input])
                                                        : partOfIndex(index, inputs, rank);
    if (const auto at = values ? positionOf(*values, error.index) : std::nullopt) {
      const Val* held = input >= 0 ? planned.inputs()[input] : index;
      const Position whole = inWhole(*at, held->asTensor(), rank);
      return told(joined(names, ", "),
                  fmt::format(", at [{}] of {}", fmt::join(whole, ", "),
                              input >= 0 ? inputText(planned, input) : "the index, which is computed"));
    }
  }
  return ops.size() == 1 ? told(*ops.begin(), "") : error;
}

}  // namespace meshfuse
