#include "preseg_passes/pack_redistributions.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <ranges>
#include <set>
#include <span>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/moved_inputs.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/sized_steps.h"
#include "preseg_passes/reshard_cost.h"

namespace meshfuse {

namespace {

// The only communication of a Redistribute that can share a call. Calls with equal `key` can be shared.
struct Shareable {
  std::string key;
  std::string call;  // all_to_all(x)
};

std::optional<Shareable> shareable(const Expr* e) {
  if (!isOneMeshReshard(e) || !e->attributes().plan) {  // without a plan its sizes are symbols
    return std::nullopt;
  }
  const std::vector<IntExpr> extents = e->tensorOutput()->shape();
  const std::vector<CommStep> calls = filtered(*e->attributes().plan, &CommStep::communicates);
  if (calls.size() != 1 || calls[0].to ||
      !(isEven(calls[0], plannedExtents(calls[0], extents)) || calls[0].kind == Collective::AllReduce)) {
    return std::nullopt;
  }
  const CommStep& call = calls[0];
  const DataType type = e->output()->dtype();
  return Shareable{
      fmt::format("{} {} {} {} {} {}", name(call.kind), call.on.atoms.toString(), call.axes, static_cast<int64_t>(type),
                  reduces(call.kind) ? static_cast<int64_t>(e->attributes().reduce) : -1, call.sources),
      call.toString()};
}

// The program as a graph of dependencies; several exprs may be joined into one node.
class Order {
 public:
  explicit Order(const Fusion& fusion) : exprs_(fusion.exprs()) {
    std::map<int64_t, int64_t> at;  // by id
    for (int64_t k = 0; k < std::ssize(exprs_); k++) {
      at[exprs_[k]->id()] = k;
      weights_.push_back(weightOf(exprs_[k]));
      nodes_.push_back({{k}, {}, {}});
      nodeOf_.push_back(k);
    }
    for (int64_t k = 0; k < std::ssize(exprs_); k++) {
      for (const Val* in : exprs_[k]->inputs()) {
        if (in->definition() != nullptr) {
          const int64_t before = at.at(in->definition()->id());
          nodes_[k].before.push_back(before);
          nodes_[before].after.push_back(k);
        }
      }
    }
  }

  const std::vector<Expr*>& exprs() const { return exprs_; }

  // Joins expr `k` to the node of expr `with`.
  void join(int64_t k, int64_t with) {
    Node& from = node(k);
    Node& to = node(with);
    for (int64_t member : from.members) {
      nodeOf_[member] = nodeOf_[with];
    }
    append(to.members, from.members);
    append(to.before, from.before);
    append(to.after, from.after);
    from = {};
  }

  // Whether one of them depends on the other through further exprs.
  bool dependsOn(int64_t a, int64_t b) const { return reaches(a, b) || reaches(b, a); }

  // Weights of the heaviest chains before and after each expr.
  void measure() {
    ready_.assign(exprs_.size(), 0);
    rest_.assign(exprs_.size(), 0);
    length_ = 0;
    const std::vector<int64_t> order = nodesInOrder();
    const auto sweep = [&](const auto& nodes, std::vector<int64_t>& times, const std::vector<int64_t> Node::*next) {
      for (int64_t n : nodes) {
        const int64_t end = times[n] + weightOfNode(n);
        length_ = std::max(length_, end);
        for (int64_t k : at(n).*next) {
          int64_t& time = times[nodeOf_[k]];
          time = std::max(time, end);
        }
      }
    };
    sweep(order, ready_, &Node::after);
    sweep(std::views::reverse(order), rest_, &Node::before);
  }
  int64_t length() const { return length_; }
  int64_t ready(int64_t k) const { return ready_[nodeOf_[k]]; }
  int64_t rest(int64_t k) const { return rest_[nodeOf_[k]]; }
  // When the first reader of expr `k` has all its operands.
  int64_t neededAt(int64_t k) const {
    int64_t needed = length_;
    for (int64_t next : node(k).after) {
      needed = std::min(needed, ready(next));
    }
    return needed;
  }

  // Nodes in order, a joined node at the position of its last expr; fewer nodes if some are in a cycle.
  std::vector<int64_t> nodesInOrder() const {
    std::vector<int64_t> waiting(exprs_.size(), 0);
    std::priority_queue<std::pair<int64_t, int64_t>, std::vector<std::pair<int64_t, int64_t>>, std::greater<>> open;
    const auto add = [&](int64_t n) { open.emplace(std::ranges::max(at(n).members), n); };
    for (int64_t n = 0; n < std::ssize(nodes_); n++) {
      waiting[n] = nodes_[n].before.size();
      if (!nodes_[n].members.empty() && waiting[n] == 0) {
        add(n);
      }
    }
    std::vector<int64_t> order;
    while (!open.empty()) {
      const int64_t n = open.top().second;
      open.pop();
      order.push_back(n);
      for (int64_t next : at(n).after) {
        const int64_t reader = nodeOf_[next];
        if (--waiting[reader] == 0) {
          add(reader);
        }
      }
    }
    return order;
  }

  // The same order, but what only moves inputs stands right before its first reader.
  std::vector<int64_t> nodesByReaders() const {
    const std::set<int64_t> moved = movedInputs(exprs_);
    const auto waits = [&](int64_t n) {
      return std::ranges::all_of(at(n).members, [&](int64_t k) { return moved.contains(exprs_[k]->id()); });
    };
    std::vector<int64_t> result;
    std::vector<bool> placed(nodes_.size(), false);
    const std::function<void(int64_t)> place = [&](int64_t n) {
      if (!placed[n]) {
        placed[n] = true;
        std::ranges::for_each(at(n).before, [&](int64_t k) { place(nodeOf_[k]); });
        result.push_back(n);
      }
    };
    for (const int64_t n : nodesInOrder()) {
      if (!waits(n)) {
        place(n);
      }
    }
    return result;
  }
  std::vector<Expr*> exprsOf(int64_t n) const {
    std::vector<int64_t> members = at(n).members;
    std::ranges::sort(members);
    return mapped(members, [&](int64_t k) { return exprs_[k]; });
  }

 private:
  struct Node {
    std::vector<int64_t> members;  // exprs
    std::vector<int64_t> before;   // exprs that they read, once for each time
    std::vector<int64_t> after;
  };

  const Node& at(int64_t n) const { return nodes_[n]; }
  const Node& node(int64_t k) const { return at(nodeOf_[k]); }
  Node& node(int64_t k) { return nodes_[nodeOf_[k]]; }

  // Weights of ops that take time: contractions and calls.
  static int64_t weightOf(const Expr* e) { return isContraction(*e) ? 1 : e->attributes().communications(); }
  int64_t weightOfNode(int64_t n) const {
    return std::ranges::max(at(n).members | std::views::transform([&](int64_t k) { return weights_[k]; }));
  }

  bool reaches(int64_t from, int64_t to) const {
    const int64_t goal = nodeOf_[to];
    std::vector<bool> seen(exprs_.size(), false);
    std::vector<int64_t> open{nodeOf_[from]};
    while (!open.empty()) {
      const int64_t n = open.back();
      open.pop_back();
      if (n == goal) {
        return true;
      }
      for (int64_t next : at(n).after) {
        const int64_t reader = nodeOf_[next];
        // a node that is ready after the goal is not before it
        if (!seen[reader] && ready_[reader] <= ready_[goal]) {
          seen[reader] = true;
          open.push_back(reader);
        }
      }
    }
    return false;
  }

  std::vector<Expr*> exprs_;
  std::vector<int64_t> weights_;
  std::vector<Node> nodes_;  // one an expr; one that was joined to another has no members
  std::vector<int64_t> nodeOf_;
  std::vector<int64_t> ready_;
  std::vector<int64_t> rest_;
  int64_t length_ = 0;
};

class Packing {
 public:
  Packing(Fusion& fusion, PassContext& context) : fusion_(fusion), context_(context), order_(fusion) {}

  bool run() {
    std::vector<Bucket> candidates;
    std::map<std::string, int64_t> alike;
    for (int64_t k = 0; k < std::ssize(order_.exprs()); k++) {
      const Expr* e = order_.exprs()[k];
      std::optional<Shareable> call = shareable(e);
      if (!call) {
        continue;
      }
      const int64_t before = bytesOf(e->input(0));
      const int64_t after = bytesOf(e->output());
      if (const int64_t bytes = std::max(before, after); bytes < context_.settings().bucketBytes) {
        alike[call->key]++;
        candidates.push_back({{k}, 0, std::move(*call), bytes, after > before, after < before});
      }
    }
    std::erase_if(candidates, [&](const Bucket& c) { return alike.at(c.call.key) == 1; });
    if (candidates.empty()) {
      return false;
    }
    order_.measure();
    for (Bucket& c : candidates) {
      c.when = c.grows ? order_.neededAt(c.exprs[0]) : order_.ready(c.exprs[0]);
    }
    std::ranges::stable_sort(candidates, {}, &Bucket::when);
    for (const Bucket& c : candidates) {
      place(c);
    }
    return number();
  }

 private:
  // A candidate is alone in its bucket at first.
  struct Bucket {
    std::vector<int64_t> exprs;
    int64_t when;    // the time at which the first is ready, or needed if it grows
    Shareable call;  // of the first
    int64_t bytes;   // of all; each counts the larger one of operand and result
    bool grows;      // the result is larger than the operand
    bool shrinks;
  };

  int64_t bytesOf(const Val* val) const {
    return localBytes(context_.memo<PlanMemo>(), shardState(val->asTensor()), val->dtype());
  }

  bool fits(const Bucket& c, const Bucket& bucket) const {
    const int64_t expr = c.exprs[0];
    const int64_t first = bucket.exprs[0];
    return bucket.bytes + c.bytes <= context_.settings().bucketBytes &&
           (!(c.grows || c.shrinks) || c.when <= bucket.when + 1) &&
           std::max(order_.ready(expr), order_.ready(first)) + 1 + std::max(order_.rest(expr), order_.rest(first)) <=
               order_.length() &&
           !order_.dependsOn(expr, first);
  }

  void place(const Bucket& c) {
    std::vector<Bucket>& buckets = buckets_[c.call.key];
    // a bucket that has received no member for a long time is closed
    constexpr size_t kOpen = 4;
    for (Bucket& bucket : std::span(buckets).last(std::min(buckets.size(), kOpen))) {
      if (fits(c, bucket)) {
        order_.join(c.exprs[0], bucket.exprs[0]);
        order_.measure();
        append(bucket.exprs, c.exprs);
        bucket.bytes += c.bytes;
        return;
      }
    }
    buckets.push_back(c);
  }

  // In the order of the program.
  bool number() {
    std::map<int64_t, const Bucket*> packs;
    for (const auto& [key, buckets] : buckets_) {
      for (const Bucket& bucket : buckets) {
        if (bucket.exprs.size() > 1) {
          packs[std::ranges::min(bucket.exprs)] = &bucket;
        }
      }
    }
    int64_t pack = 0;
    for (const auto& [first, bucket] : packs) {
      pack++;
      for (int64_t k : bucket->exprs) {
        fusion_.setPack(order_.exprs()[k], pack);
      }
      const auto nameOf = [&](int64_t k) { return fmt::format("T{}", order_.exprs()[k]->output()->id()); };
      context_.remark(fmt::format("{} are one {} of {} bytes", joined(bucket->exprs, ", ", nameOf), bucket->call.call,
                                  bucket->bytes));
    }
    return pack > 0;
  }

  Fusion& fusion_;
  PassContext& context_;
  Order order_;
  std::map<std::string, std::vector<Bucket>> buckets_;
};

}  // namespace

bool packRedistributions(Fusion& fusion, PassContext& context) {
  if (std::ranges::any_of(fusion.exprs(), [](const Expr* e) { return e->attributes().pack != 0; })) {
    (void)inPackedOrder(fusion);
    return false;
  }
  const PassSettings& settings = context.settings();
  return settings.optimizeReshards && settings.bucketBytes > 0 && Packing(fusion, context).run();
}

std::vector<std::vector<Expr*>> inPackedOrder(const Fusion& fusion) {
  Order order(fusion);
  std::map<int64_t, std::pair<int64_t, std::string>> first;  // by pack number: an expr and the key of its call
  for (int64_t k = 0; k < std::ssize(order.exprs()); k++) {
    const Expr* e = order.exprs()[k];
    if (e->attributes().pack == 0) {
      continue;
    }
    const std::optional<Shareable> call = shareable(e);
    check(call.has_value(),
          "[pack-redistributions] {} has pack={}, but is not one collective with equal parts; remove its pack",
          e->output()->toString(), e->attributes().pack);
    const auto [it, isNew] = first.emplace(e->attributes().pack, std::pair(k, call->key));
    if (!isNew) {
      check(it->second.second == call->key,
            "[pack-redistributions] {} and {} have pack={}, but they cannot be one collective; remove their pack",
            order.exprs()[it->second.first]->output()->toString(), e->output()->toString(), e->attributes().pack);
      order.join(k, it->second.first);
    }
  }
  auto steps = mapped(order.nodesByReaders(), [&](int64_t n) { return order.exprsOf(n); });
  check(sumOf(steps, [](const std::vector<Expr*>& step) { return step.size(); }) == order.exprs().size(),
        "[pack-redistributions] redistributions with one pack number depend on each other; remove their pack");
  return steps;
}

}  // namespace meshfuse
