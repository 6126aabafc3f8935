#include "autoplan/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "autoplan/least_memory.h"
#include "autoplan/limited_minimum.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr int64_t kRounds = 8;   // steps that get a price
constexpr int64_t kRaises = 12;  // of a price until its step fits
constexpr double kRaise = 16;
constexpr int64_t kIntersections = 30;
constexpr double kSameCost = 1e-9;
constexpr int64_t kGraphTries = 200'000;  // choices of single nodes in its search
constexpr int64_t kCore = 16;             // nodes of the core of a large graph
constexpr int64_t kCoreTries = 20'000;
constexpr int64_t kPairs = 10'000'000;  // in the search that counts whole choices
constexpr int64_t kAlike = 2;           // of these nodes that change alike
constexpr double kSameLoss = 1e-8;      // part of the time by which losses of nodes that change alike differ

int64_t fullestStep(const std::vector<double>& memory) { return std::ranges::max_element(memory) - memory.begin(); }

class Search {
 public:
  Search(const PlanGraph& graph, double memory, Deadline deadline)
      : graph_(graph), memory_(memory), deadline_(deadline), neighbours_(graph.nodes.size()) {
    for (const PairCost& pair : graph.costs.pairs) {
      neighbours_[pair.first].push_back({pair.second, pair.table.get(), true});
      neighbours_[pair.second].push_back({pair.first, pair.table.get(), false});
    }
  }

  std::optional<FoundPlan> run() {
    Minimum fastest = minimize(graph_.costs);
    bound_ = fastest.bound;
    if (!std::isfinite(fastest.cost)) {
      return std::nullopt;
    }
    std::vector<int64_t> at = std::move(fastest.choices);
    consider(at);
    for (int64_t round = 0; round < kRounds && !isDone() && isTooFull(at); round++) {
      const std::optional<std::vector<int64_t>> next = priceStep(fullestStep(graph_.memoryOf(at)), at);
      if (!next) {
        break;
      }
      at = *next;
    }
    if (!best_) {  // no price was high enough, or the time was too short
      consider(leastMemory(graph_, deadline_).choices);
    }
    if (best_ && !isDone()) {
      crossOver();
      improveSingly();
      improveInCore();
    }
    if (best_ && !isDone() && best_->seconds - bound_ > kSmallGap * best_->seconds) {
      countWhole();
    }
    if (!isDone() && std::ssize(graph_.nodes) <= kSmallGraph) {
      searchAll(at);
    }
    if (!best_) {
      return std::nullopt;
    }
    best_->bound = std::min(bound_, best_->seconds);
    best_->isLate = !isNearBound() && isLate();
    return std::move(best_);
  }

 private:
  struct Neighbour {
    int64_t node;
    const PairTable* table;
    bool isFirst;  // the node itself, in the table
  };

  bool isTooFull(const std::vector<int64_t>& choices) const {
    return std::ranges::max(graph_.memoryOf(choices)) > memory_;
  }
  bool isNearBound() const { return best_ && best_->seconds - bound_ <= kEnoughGap * best_->seconds; }
  bool isDone() const { return isNearBound() || isLate(); }
  bool isLate() const { return std::chrono::steady_clock::now() > deadline_; }

  void consider(const std::vector<int64_t>& choices) {
    const double seconds = graph_.costs.costOf(choices);
    const double peak = std::ranges::max(graph_.memoryOf(choices));
    if (peak > memory_) {
      tooFull_.push_back(choices);
    } else if (!best_ || seconds < best_->seconds) {
      best_ = FoundPlan{.choices = choices, .seconds = seconds, .peak = peak};
    }
  }

  std::vector<int64_t> solve() {
    Minimum found = minimize(withMemory(graph_, prices_));
    const double paid = sumOf(prices_, [&](const auto& price) { return price.second * memory_; });
    bound_ = std::max(bound_, found.bound - paid);
    consider(found.choices);
    return std::move(found.choices);
  }

  // What a plan costs for any price of a step, if the other prices stay: seconds + price * excess.
  struct Line {
    double seconds = 0;
    double excess = 0;  // bytes above the limit in this step
  };
  Line lineOf(const std::vector<int64_t>& choices, int64_t step) const {
    const std::vector<double> memory = graph_.memoryOf(choices);
    Line line{graph_.costs.costOf(choices), memory[step] - memory_};
    for (const auto& [other, price] : prices_) {
      line.seconds += other == step ? 0 : price * (memory[other] - memory_);
    }
    return line;
  }

  // Finds the price of a step at which the bound is highest, and the plan at that price that fits in this step; nothing if none does. The
  // bound is the least of all lines: where the lines of a plan that fits and of one that does not intersect, another plan is below, or
  // the bound is found.
  std::optional<std::vector<int64_t>> priceStep(int64_t step, const std::vector<int64_t>& tooFull) {
    Line above = lineOf(tooFull, step);
    double& price = prices_[step];
    price = std::max(bound_, 1e-9) / memory_;
    std::vector<int64_t> found;
    Line below{.excess = 1};
    for (int64_t k = 0; k < kRaises && below.excess > 0 && !isLate(); k++) {
      price *= kRaise;
      found = solve();
      const Line line = lineOf(found, step);
      (line.excess > 0 ? above : below) = line;
    }
    if (below.excess > 0) {
      return std::nullopt;
    }
    for (int64_t k = 0; k < kIntersections && !isDone(); k++) {
      price = (below.seconds - above.seconds) / (above.excess - below.excess);
      std::vector<int64_t> at = solve();
      const Line line = lineOf(at, step);
      if (line.seconds + price * line.excess >= below.seconds + price * below.excess - kSameCost * bound_) {
        break;
      }
      (line.excess > 0 ? above : below) = line;
      if (line.excess <= 0) {
        found = std::move(at);
      }
    }
    return found;
  }

  // Seconds of the costs that the node takes part in.
  double secondsAround(const std::vector<int64_t>& choices, int64_t node, int64_t choice) const {
    double seconds = graph_.costs.costs[node][choice];
    for (const Neighbour& n : neighbours_[node]) {
      seconds += n.isFirst ? n.table->at(choice, choices[n.node]) : n.table->at(choices[n.node], choice);
    }
    return seconds;
  }

  // The nodes on which two plans differ, in connected parts: changes of different parts do not touch each other.
  std::vector<std::vector<int64_t>> differingParts(const std::vector<int64_t>& a, const std::vector<int64_t>& b) const {
    std::vector<std::vector<int64_t>> parts;
    std::vector<bool> seen(a.size(), false);
    for (int64_t start = 0; start < std::ssize(a); start++) {
      if (seen[start] || a[start] == b[start]) {
        continue;
      }
      std::vector<int64_t>& part = parts.emplace_back(1, start);
      seen[start] = true;
      for (int64_t k = 0; k < std::ssize(part); k++) {
        for (const Neighbour& n : neighbours_[part[k]]) {
          if (!seen[n.node] && a[n.node] != b[n.node]) {
            seen[n.node] = true;
            part.push_back(n.node);
          }
        }
      }
    }
    return parts;
  }

  void crossOver() {
    std::ranges::sort(tooFull_, {}, [&](const auto& choices) { return std::ranges::max(graph_.memoryOf(choices)); });
    for (const std::vector<int64_t>& faster : tooFull_) {
      for (const std::vector<int64_t>& part : differingParts(best_->choices, faster)) {
        std::vector<int64_t> mixed = best_->choices;
        for (const int64_t node : part) {
          mixed[node] = faster[node];
        }
        if (graph_.costs.costOf(mixed) < best_->seconds && !isTooFull(mixed)) {
          consider(mixed);
        }
      }
      if (isDone()) {
        return;
      }
    }
  }

  void improveSingly() {
    for (bool changed = true; changed && !isDone();) {
      changed = false;
      for (int64_t node = 0; node < std::ssize(graph_.nodes); node++) {
        const double now = secondsAround(best_->choices, node, best_->choices[node]);
        for (int64_t c = 0; c < std::ssize(graph_.costs.costs[node]); c++) {
          if (secondsAround(best_->choices, node, c) < now * (1 - 1e-9)) {
            std::vector<int64_t> other = best_->choices;
            other[node] = c;
            const double before = best_->seconds;
            if (!isTooFull(other)) {
              consider(other);
            }
            if (best_->seconds < before) {
              changed = true;
              break;
            }
          }
        }
      }
    }
  }

  // What single choices of the best plan's nodes cost under the prices, if all other choices stay.
  std::vector<std::vector<double>> pricedAlternatives() const {
    const CostGraph priced = withMemory(graph_, prices_);
    std::vector<std::vector<double>> costs = priced.costs;
    for (const PairCost& pair : priced.pairs) {
      for (const int64_t c : indices(costs[pair.first])) {
        costs[pair.first][c] += pair.table->at(c, best_->choices[pair.second]);
      }
      for (const int64_t c : indices(costs[pair.second])) {
        costs[pair.second][c] += pair.table->at(best_->choices[pair.first], c);
      }
    }
    return costs;
  }

  // The nodes of the cheapest single changes: of a change, the cost is what the plan loses by it under the prices. Of nodes with equal
  // changes at most kAlike are taken, so that repeated layers do not fill the core.
  std::vector<int64_t> core() const {
    struct Change {
      double loss;
      double elements;
      int64_t node;
    };
    const std::vector<std::vector<double>> costs = pricedAlternatives();
    std::vector<Change> changes;
    for (const int64_t node : indices(costs)) {
      const int64_t now = best_->choices[node];
      const std::vector<double>& elements = graph_.nodes[node].elements;
      for (const int64_t c : indices(costs[node])) {
        const double loss = costs[node][c] - costs[node][now];
        if (c != now && loss < best_->seconds - bound_) {
          changes.push_back({loss, elements[c] - elements[now], node});
        }
      }
    }
    std::ranges::stable_sort(changes, {}, &Change::loss);
    std::set<int64_t> nodes;
    std::map<std::pair<int64_t, double>, int64_t> alike;
    for (const Change& change : changes) {
      const auto loss = std::llround(change.loss / (kSameLoss * best_->seconds));
      if (std::ssize(nodes) < kCore && ++alike[{loss, change.elements}] <= kAlike) {
        nodes.insert(change.node);
      }
    }
    return {nodes.begin(), nodes.end()};
  }

  void improveInCore() {
    for (bool changed = true; changed && !isDone();) {
      const WindowResult found = searchWindow(graph_, {.nodes = core(),
                                                       .plan = best_->choices,
                                                       .prices = prices_,
                                                       .memory = memory_,
                                                       .most = kCoreTries,
                                                       .deadline = deadline_});
      changed = found.choices.has_value();
      if (changed) {
        consider(*found.choices);
      }
    }
  }

  // The bound at a price counts a part of a layer where a whole one does not fit. This one does not, and finds plans that fill the memory.
  void countWhole() {
    const double paid = sumOf(prices_, [&](const auto& price) { return price.second * memory_; });
    const LimitedMinimum found =
        minimizeWithin(graph_.costs, withMemory(graph_, prices_),
                       {.weight = paid, .below = best_->seconds, .most = kPairs, .deadline = deadline_});
    bound_ = std::max(bound_, found.bound);
    for (const std::vector<int64_t>& choices : found.found) {
      consider(choices);
    }
  }

  // `any`: a plan without forbidden choices.
  void searchAll(const std::vector<int64_t>& any) {
    std::vector<int64_t> nodes(graph_.nodes.size());
    std::iota(nodes.begin(), nodes.end(), int64_t{0});
    const WindowResult found = searchWindow(graph_, {.nodes = std::move(nodes),
                                                     .plan = best_ ? best_->choices : any,
                                                     .prices = prices_,
                                                     .memory = memory_,
                                                     .most = kGraphTries,
                                                     .deadline = deadline_});
    if (found.choices) {
      consider(*found.choices);
    }
    if (found.isComplete && best_) {
      bound_ = best_->seconds;
    }
  }

  const PlanGraph& graph_;
  const double memory_;
  const Deadline deadline_;
  std::vector<std::vector<Neighbour>> neighbours_;
  std::map<int64_t, double> prices_;  // seconds a byte, by step
  double bound_ = 0;
  std::optional<FoundPlan> best_;
  std::vector<std::vector<int64_t>> tooFull_;
};

}  // namespace

std::optional<FoundPlan> searchPlan(const PlanGraph& graph, double memory, Deadline deadline) {
  return Search(graph, memory, deadline).run();
}

}  // namespace meshfuse
