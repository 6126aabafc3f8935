#include "autoplan/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr double kEnough = 1e-4;  // a gap at which the search ends
constexpr int64_t kRounds = 8;    // steps that get a price
constexpr int64_t kRaises = 40;   // of a price until its step fits
constexpr int64_t kBisections = 14;

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
      const std::optional<std::vector<int64_t>> next = priceStep(fullestStep(graph_.memoryOf(at)));
      if (!next) {
        break;
      }
      at = *next;
    }
    if (!best_) {  // no price was high enough, or the time was too short
      consider(smallestPlan(graph_).choices);
    }
    if (!best_) {
      return std::nullopt;
    }
    if (!isDone()) {
      crossOver();
      improveSingly();
    }
    best_->bound = std::min(bound_, best_->seconds);
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
  bool isDone() const {
    return (best_ && best_->seconds - bound_ <= kEnough * best_->seconds) ||
           std::chrono::steady_clock::now() > deadline_;
  }

  void consider(const std::vector<int64_t>& choices) {
    const double seconds = graph_.costs.costOf(choices);
    const double peak = std::ranges::max(graph_.memoryOf(choices));
    if (peak > memory_) {
      tooFull_.push_back(choices);
    } else if (!best_ || seconds < best_->seconds) {
      best_ = FoundPlan{choices, seconds, 0, peak};
    }
  }

  std::vector<int64_t> solve() {
    Minimum found = minimize(withMemory(graph_, prices_));
    const double paid = sumOf(prices_, [&](const auto& price) { return price.second * memory_; });
    bound_ = std::max(bound_, found.bound - paid);
    consider(found.choices);
    return std::move(found.choices);
  }

  // Finds a price for a step that makes it fit; nothing if none does.
  std::optional<std::vector<int64_t>> priceStep(int64_t step) {
    const auto fitsAt = [&](const std::vector<int64_t>& choices) { return graph_.memoryOf(choices)[step] <= memory_; };
    double& price = prices_[step];
    double low = 0;
    double high = std::max(bound_, 1e-9) / memory_ / 16;
    std::optional<std::vector<int64_t>> found;
    for (int64_t k = 0; k < kRaises && !found; k++) {
      price = high;
      std::vector<int64_t> at = solve();
      if (fitsAt(at)) {
        found = std::move(at);
      } else {
        low = high;
        high *= 4;
      }
      if (std::chrono::steady_clock::now() > deadline_) {
        break;
      }
    }
    for (int64_t k = 0; k < kBisections && found && !isDone(); k++) {
      price = low == 0 ? high / 4 : std::sqrt(low * high);
      std::vector<int64_t> at = solve();
      if (fitsAt(at)) {
        high = price;
        found = std::move(at);
      } else {
        low = price;
      }
    }
    price = high;
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
      for (size_t k = 0; k < part.size(); k++) {
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

FoundPlan smallestPlan(const PlanGraph& graph) {
  std::map<int64_t, double> weights;
  FoundPlan smallest{{}, 0, 0, std::numeric_limits<double>::infinity()};
  std::vector<int64_t> at = minimize(graph.costs).choices;
  for (int64_t round = 0; round < kRounds; round++) {
    const std::vector<double> memory = graph.memoryOf(at);
    const int64_t step = fullestStep(memory);
    if (memory[step] < smallest.peak) {
      smallest = {at, graph.costs.costOf(at), 0, memory[step]};
    }
    if (!weights.emplace(step, 1.0).second) {  // a second a byte: time no longer counts
      break;
    }
    at = minimize(withMemory(graph, weights)).choices;
  }
  return smallest;
}

}  // namespace meshfuse
