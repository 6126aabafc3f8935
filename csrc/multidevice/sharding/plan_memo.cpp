#include "multidevice/sharding/plan_memo.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "multidevice/sharding/plan_options.h"

namespace meshfuse {

namespace {

struct Hasher {
  uint64_t value = 1469598103934665603ull;
  void add(uint64_t v) { value = (value ^ v) * 1099511628211ull + (value >> 32); }
  void add(const IntExpr& e) { add(static_cast<uint64_t>(e.constantTerm()) + e.terms().size()); }
  void add(const ShardState& state) {
    for (const DigitList& dim : state.dims) {
      add(uint64_t{dim.isOpaque()} + 2 * dim.digits().size());
      for (const Digit& d : dim.digits()) {
        add(d.stride);
        add(d.size);
        add(static_cast<uint64_t>(d.owner.kind) << 32 | static_cast<uint64_t>(d.owner.axis));
        add(d.owner.below);
        for (const IntExpr& size : d.parts) {
          add(size);
        }
      }
    }
    for (int64_t axis : state.partial) {
      add(static_cast<uint64_t>(axis) + 1);
    }
    add(state.mesh.devices().size());
    for (int64_t a = 0; a < state.mesh.numAxes(); a++) {
      add(state.mesh.axisSize(a));
    }
  }
};

bool same(const ShardState& a, const ShardState& b) {
  const auto areSame = [](const DigitList& x, const DigitList& y) {
    return x.isOpaque() == y.isOpaque() && std::ranges::equal(x.digits(), y.digits());
  };
  return a.partial == b.partial && a.mesh == b.mesh && std::ranges::equal(a.dims, b.dims, areSame);
}

}  // namespace

IntExpr PlanMemo::atSizes(const IntExpr& size) const {
  return size.isConst() ? size : size.substitute(valuesIn(values_));
}

ShardState PlanMemo::atSizes(const ShardState& state) const {
  const auto isConstant = [](const DigitList& dim) { return dim.isOpaque() || dim.extent().isConst(); };
  if (std::ranges::all_of(state.dims, isConstant)) {
    return state;
  }
  const auto atValues = [this](const DigitList& dim) {
    return dim.isOpaque() ? dim : DigitList(mapped(dim.digits(), [this](Digit d) {
      for (IntExpr* e : {&d.stride, &d.size, &d.bound}) {
        *e = atSizes(*e);
      }
      return d;
    }));
  };
  return {state.mesh, mapped(state.dims, atValues), state.partial};
}

const RedistributionPlan& PlanMemo::plan(const ShardState& from, const ShardState& to, const PlanOptions& options) {
  if (values_.empty()) {
    return ofConstants(from, to, options);
  }
  const ShardState ends[] = {atSizes(from), atSizes(to)};
  for (const ShardState& state : ends) {
    for (const int64_t k : indices(state.dims)) {
      check(!state.dims[k].isOpaque() && state.dims[k].extent().isConst(),
            "[planner] the parts of dim {} of {} are not known for all sizes of a class; give constant sizes", k,
            state.toString());
    }
  }
  return ofConstants(ends[0], ends[1], options);
}

const RedistributionPlan& PlanMemo::ofConstants(const ShardState& from, const ShardState& to,
                                                const PlanOptions& options) {
  Hasher hasher;
  hasher.add(from);
  hasher.add(to);
  hasher.add(static_cast<uint64_t>(options.sums));
  const auto [first, last] = plans_.equal_range(hasher.value);
  for (auto at = first; at != last; ++at) {
    const Entry& entry = at->second;
    if (same(entry.from, from) && same(entry.to, to) && entry.options == options) {
      return entry.plan;
    }
  }
  return plans_.emplace(hasher.value, Entry{from, to, options, planRedistribution(from, to, options)})->second.plan;
}

const RedistributionPlan& PlanMemo::plan(const Fusion& fusion, const ShardState& from, const ShardState& to) {
  return plan(from, to, planOptions(fusion.planner(), from.mesh, to.mesh));
}

}  // namespace meshfuse
