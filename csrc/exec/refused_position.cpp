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
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/sharding/shard_tensor.h"

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

// The whole tensor of a part: elements that only other ranks have are 0.
Tensor asWhole(const Tensor& part, const TensorView* tv, int64_t rank) {
  const Tensor onHost = part.to(DeviceId::cpu());
  if (!tv->hasDeviceMesh()) {
    return onHost;
  }
  const ShardState state = shardState(tv);
  const Part own = heldPart(state, rank);
  const auto partOf = [&](int64_t device) {
    const Part held = heldPart(state, device);
    return held == own ? onHost : Tensor::zeros(held.sizes(), part.dtype());
  };
  return unshardTensor(mapped(tv->getDeviceMesh().devices(), partOf), tv);
}

// Whether a rank gets elements of other ranks on the way from inputs to this value.
bool needsOtherRanks(const Val* val) {
  std::set<const Val*> seen;
  std::vector<const Val*> left = {val};
  while (!left.empty()) {
    const Expr* e = left.back()->definition();
    left.pop_back();
    if (e == nullptr) {
      continue;
    }
    if (e->attributes().communications() > 0) {
      return true;
    }
    for (const Val* in : e->inputs()) {
      if (seen.insert(in).second) {
        left.push_back(in);
      }
    }
  }
  return false;
}

// The part of an index that this rank computes from its parts of the inputs. Other elements of the inputs do not matter for it.
std::optional<Tensor> partOfIndex(const Fusion& fusion, const Val* index, std::span<const Argument> inputs,
                                  int64_t rank) {
  if (!index->isTensor() || needsOtherRanks(index)) {
    return std::nullopt;
  }
  const std::unique_ptr<Fusion> alone = fusion.clone();
  for (Val* out : std::vector<Val*>(alone->outputs())) {
    alone->removeOutput(out);
  }
  alone->addOutput(alone->val(index->id()));
  try {
    const auto whole = mapped(indices(inputs), [&](int64_t k) -> Argument {
      const auto* part = std::get_if<Tensor>(&inputs[k]);
      return part != nullptr ? asWhole(*part, fusion.inputs()[k]->asTensor(), rank) : inputs[k];
    });
    return shardTensor(interpret(*alone, whole)[0], index->asTensor(), rank);
  } catch (const Error&) {  // it depends on another index that is out of range
    return std::nullopt;
  }
}

std::string_view nameOf(const Expr* e) {
  const std::string_view called = e->attributes().calledAs;
  return called.empty() ? e->opName() : called;
}

// The names of the ops that read a checked index or a copy of it.
void addReaders(const Fusion& fusion, const Val* index, std::set<std::string_view>& names) {
  for (const Expr* reader : fusion.uses(index)) {
    if (isCopy(*reader)) {
      addReaders(fusion, reader->output(), names);
    } else {
      names.insert(nameOf(reader));
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
                                                        : partOfIndex(planned, index, inputs, rank);
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
