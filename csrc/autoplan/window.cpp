#include "autoplan/window.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr double kSumError = 1e-12;    // part of the limit that sums of memory may be off
constexpr int64_t kClockPeriod = 256;  // choices between two looks at the clock
constexpr double kFaster = 1e-9;       // part of the time by which another plan must be faster
constexpr EliminationLimits kTables{.entries = int64_t{1} << 18};  // 2 MB each, one or few for each node of a window

class WindowSearch : public ChoiceVisitor {
 public:
  WindowSearch(const PlanGraph& graph, const Window& window)
      : graph_(graph), window_(window), variableOf_(graph.nodes.size(), -1), plan_(window.plan) {
    for (const int64_t k : indices(window.nodes)) {
      variableOf_[window.nodes[k]] = k;
    }
    findParts();
    findEdges();
  }

  WindowResult run() {
    const CostGraph costs = windowCosts();
    const bool isComplete = visitBelow(costs, startingBound(), window_.most, *this, kTables);
    return {std::move(best_), isComplete && !isLate_};
  }

  bool enter(int64_t variable, int64_t choice) override {
    if (entered_++ % kClockPeriod == 0) {
      isLate_ |= std::chrono::steady_clock::now() > window_.deadline;
    }
    std::vector<double> memory = memory_.back();
    const int64_t node = window_.nodes[variable];
    plan_[node] = choice;
    isSet_[variable] = true;
    for (const Held& held : heldBy_[variable]) {
      const double bytes = (graph_.nodes[node].elements[choice] - leastElements_[variable]) * held.size;
      for (int64_t part = held.first; part <= held.last; part++) {
        memory[part] += bytes;
      }
    }
    for (const auto& [edge, part] : edgesOf_[variable]) {
      if (isDecided(edge->from) && isDecided(edge->to)) {
        memory[part] += edge->tables->copied.at(plan_[edge->from], plan_[edge->to]);
      }
    }
    memory_.push_back(std::move(memory));
    return !isLate_ && std::ranges::max(memory_.back()) <= window_.memory * (1 + kSumError);
  }

  void leave(int64_t variable) override {
    isSet_[variable] = false;
    memory_.pop_back();
  }

  double visit(const std::vector<int64_t>& choices) override {
    const double seconds = secondsOf(choices);
    if (seconds < least_ * (1 - kFaster) && std::ranges::max(graph_.memoryOf(plan_)) <= window_.memory) {
      least_ = seconds;
      best_ = plan_;
    }
    return least_ + paid_;
  }

 private:
  // Steps between which nothing of the window changes form a part: only the fullest of them matters.
  struct Held {
    int64_t first = 0;  // parts
    int64_t last = 0;
    double size = 0;  // bytes of an element
  };

  bool isInside(int64_t node) const { return variableOf_[node] >= 0; }
  bool isDecided(int64_t node) const { return !isInside(node) || isSet_[variableOf_[node]]; }

  void findParts() {
    std::set<int64_t> starts{0};
    for (const int64_t node : window_.nodes) {
      for (const StoredTensor& t : graph_.nodes[node].stored) {
        starts.insert({t.firstStep, t.lastStep + 1});
      }
    }
    for (const PlanEdge& edge : graph_.edges) {
      if (isInside(edge.from) || isInside(edge.to)) {
        starts.insert({edge.step, edge.step + 1});
      }
    }
    int64_t part = -1;
    for (int64_t step = 0; step < graph_.steps; step++) {
      part += starts.contains(step) ? 1 : 0;
      partOf_.push_back(part);
    }
    // memory without the window, of the fullest step of each part
    std::vector<double> change(graph_.steps + 1, 0.0);
    for (const int64_t node : indices(graph_.nodes)) {
      for (const StoredTensor& t : graph_.nodes[node].stored) {
        if (!isInside(node)) {
          const double bytes = graph_.nodes[node].elements[plan_[node]] * static_cast<double>(t.size);
          change[t.firstStep] += bytes;
          change[t.lastStep + 1] -= bytes;
        }
      }
    }
    for (const PlanEdge& edge : graph_.edges) {
      if (!isInside(edge.from) && !isInside(edge.to)) {
        const double bytes = edge.tables->copied.at(plan_[edge.from], plan_[edge.to]);
        change[edge.step] += bytes;
        change[edge.step + 1] -= bytes;
      }
    }
    outside_.assign(part + 1, 0.0);
    double bytes = 0;
    for (int64_t step = 0; step < graph_.steps; step++) {
      bytes += change[step];
      outside_[partOf_[step]] = std::max(outside_[partOf_[step]], bytes);
      if (const auto price = window_.prices.find(step); price != window_.prices.end()) {
        paid_ += price->second * (window_.memory - bytes);
      }
    }
    std::vector<double> least = outside_;
    for (const int64_t node : window_.nodes) {
      leastElements_.push_back(leastElementsOf(node));
      std::vector<Held>& held = heldBy_.emplace_back();
      for (const StoredTensor& t : graph_.nodes[node].stored) {
        held.push_back({partOf_[t.firstStep], partOf_[t.lastStep], static_cast<double>(t.size)});
        for (int64_t k = held.back().first; k <= held.back().last; k++) {
          least[k] += leastElements_.back() * held.back().size;
        }
      }
    }
    memory_.push_back(std::move(least));
  }

  double leastElementsOf(int64_t node) const {
    double least = std::numeric_limits<double>::infinity();
    for (const int64_t c : indices(graph_.nodes[node].elements)) {
      if (graph_.costs.costs[node][c] < std::numeric_limits<double>::infinity()) {
        least = std::min(least, graph_.nodes[node].elements[c]);
      }
    }
    return least;
  }

  void findEdges() {
    edgesOf_.resize(window_.nodes.size());
    isSet_.assign(window_.nodes.size(), false);
    for (const PlanEdge& edge : graph_.edges) {
      for (const int64_t node : {edge.from, edge.to}) {
        if (isInside(node)) {
          edgesOf_[variableOf_[node]].emplace_back(&edge, partOf_[edge.step]);
        }
      }
    }
    for (const PairCost& pair : graph_.costs.pairs) {
      if (isInside(pair.first) || isInside(pair.second)) {
        pairs_.push_back(&pair);
      }
    }
  }

  // Seconds and priced memory of the window's nodes, with the plan's choices around them.
  CostGraph windowCosts() const {
    const CostGraph priced = withMemory(graph_, window_.prices);
    CostGraph result{.costs = mapped(window_.nodes, [&](int64_t node) { return priced.costs[node]; })};
    for (const auto& [first, second, table] : priced.pairs) {
      if (isInside(first) && isInside(second)) {
        result.pairs.push_back({variableOf_[first], variableOf_[second], table});
      } else if (isInside(first) || isInside(second)) {
        std::vector<double>& costs = result.costs[variableOf_[isInside(first) ? first : second]];
        for (const int64_t c : indices(costs)) {
          costs[c] += isInside(first) ? table->at(c, plan_[second]) : table->at(plan_[first], c);
        }
      }
    }
    return result;
  }

  double secondsOf(const std::vector<int64_t>& choices) const {
    double seconds = 0;
    for (const int64_t k : indices(window_.nodes)) {
      seconds += graph_.costs.costs[window_.nodes[k]][choices[k]];
    }
    const auto choiceOf = [&](int64_t node) { return isInside(node) ? choices[variableOf_[node]] : plan_[node]; };
    for (const PairCost* pair : pairs_) {
      seconds += pair->table->at(choiceOf(pair->first), choiceOf(pair->second));
    }
    return seconds;
  }

  double startingBound() {
    const bool fits = std::ranges::max(graph_.memoryOf(window_.plan)) <= window_.memory;
    if (fits) {
      least_ = secondsOf(mapped(window_.nodes, [&](int64_t node) { return window_.plan[node]; }));
    }
    return least_ + paid_;
  }

  const PlanGraph& graph_;
  const Window& window_;
  std::vector<int64_t> variableOf_;  // by node; -1: outside
  std::vector<int64_t> plan_;
  std::vector<int64_t> partOf_;                                            // by step
  std::vector<double> outside_;                                            // memory of other nodes, by part
  std::vector<std::vector<Held>> heldBy_;                                  // by variable
  std::vector<double> leastElements_;                                      // by variable
  std::vector<std::vector<std::pair<const PlanEdge*, int64_t>>> edgesOf_;  // by variable, with the part
  std::vector<const PairCost*> pairs_;
  std::vector<bool> isSet_;                                 // by variable
  std::vector<std::vector<double>> memory_;                 // by part: at least, after each decision
  double paid_ = 0;                                         // for the memory that the others leave
  double least_ = std::numeric_limits<double>::infinity();  // seconds around the window
  std::optional<std::vector<int64_t>> best_;
  int64_t entered_ = 0;
  bool isLate_ = false;
};

}  // namespace

WindowResult searchWindow(const PlanGraph& graph, const Window& window) { return WindowSearch(graph, window).run(); }

}  // namespace meshfuse
