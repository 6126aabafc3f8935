// Plans remembered by their arguments.
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "multidevice/sharding/planner.h"

namespace meshfuse {

namespace {

constexpr size_t kMaxPlans = 4096;

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
    for (int axis : state.partial) {
      add(static_cast<uint64_t>(axis) + 1);
    }
    add(state.mesh.devices().size());
    for (int a = 0; a < state.mesh.numAxes(); a++) {
      add(state.mesh.axisSize(a));
    }
  }
};

struct Key {
  ShardState from;
  ShardState to;
  PlanOptions options;
};

bool same(const ShardState& a, const ShardState& b) {
  return a.partial == b.partial && a.dims.size() == b.dims.size() && a.mesh == b.mesh &&
         std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(), [](const DigitList& x, const DigitList& y) {
           return x.isOpaque() == y.isOpaque() &&
                  std::equal(x.digits().begin(), x.digits().end(), y.digits().begin(), y.digits().end());
         });
}

bool same(const PlanOptions& a, const PlanOptions& b) {
  return a.alpha == b.alpha && a.alphaPeer == b.alphaPeer && a.alphas == b.alphas && a.beta == b.beta &&
         a.alphasTo == b.alphasTo && a.betaTo == b.betaTo && a.betaBetween == b.betaBetween && a.bound == b.bound &&
         a.steps.bits() == b.steps.bits() && a.forbid == b.forbid && a.direct == b.direct && a.maxStates == b.maxStates;
}

struct Entry {
  Key key;
  std::shared_ptr<const RedistributionPlan> plan;
};

class Memo {
 public:
  std::shared_ptr<const RedistributionPlan> find(uint64_t hash, const ShardState& from, const ShardState& to,
                                                 const PlanOptions& options) {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = plans_.equal_range(hash);
    for (auto at = first; at != last; ++at) {
      const Key& key = at->second.key;
      if (same(key.from, from) && same(key.to, to) && same(key.options, options)) {
        return at->second.plan;
      }
    }
    return nullptr;
  }

  void add(uint64_t hash, Entry entry) {
    const std::lock_guard lock(mutex_);
    if (plans_.size() >= kMaxPlans) {
      plans_.clear();
    }
    plans_.emplace(hash, std::move(entry));
  }

 private:
  std::mutex mutex_;
  std::unordered_multimap<uint64_t, Entry> plans_;
};

Memo& memo() {
  static Memo* instance = new Memo;  // never destroyed: threads may plan while the process ends
  return *instance;
}

}  // namespace

std::shared_ptr<const RedistributionPlan> sharedPlan(const ShardState& from, const ShardState& to,
                                                     const PlanOptions& options) {
  Hasher hasher;
  hasher.add(from);
  hasher.add(to);
  hasher.add(uint64_t{options.steps.bits()});
  if (std::shared_ptr<const RedistributionPlan> known = memo().find(hasher.value, from, to, options)) {
    return known;
  }
  auto plan = std::make_shared<const RedistributionPlan>(planAnew(from, to, options));
  memo().add(hasher.value, {{from, to, options}, plan});
  return plan;
}

RedistributionPlan planRedistribution(const ShardState& from, const ShardState& to, const PlanOptions& options) {
  return *sharedPlan(from, to, options);
}

}  // namespace meshfuse
