#include "autoplan/limited_minimum.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr int64_t kFound = 16;
constexpr double kRounding = 1e-13;  // part of the known cost
constexpr double kLimitRounding = 1e-12;

// A pair of a set: the choice of a variable, or the sum of two pairs.
struct Point {
  double cost = 0;
  double weight = 0;
  int64_t left = -1;   // place in all points; -1: a choice
  int64_t right = -1;  // of a choice: the variable
  int64_t choice = 0;
};

using Points = std::vector<Point>;

// A variable in the order of elimination.
struct Step {
  EliminatedVariable eliminated;
  std::vector<int64_t> pairs;     // of the priced costs, with variables that are eliminated later
  std::vector<int64_t> children;  // steps whose tables are read here
  // Entries of its table that are part of nearly best plans: what everything else costs at least.
  std::map<int64_t, double> outside;
  std::map<int64_t, std::vector<int64_t>> sets;  // of these entries: points
};

class Layers {
 public:
  Layers(const CostGraph& costs, const CostGraph& priced, const WeightLimit& limit)
      : costs_(costs), priced_(priced), limit_(limit), most_(limit.below + limit.weight) {}

  LimitedMinimum run() {
    if (!makeSteps() || !findEntries()) {
      return {};
    }
    for (Step& step : steps_) {
      if (!makeSets(step)) {
        return {};
      }
    }
    return result();
  }

 private:
  int64_t choicesOf(int64_t v) const { return std::ssize(priced_.costs[v]); }

  bool makeSteps() {
    std::optional<std::vector<EliminatedVariable>> order = eliminated(priced_);
    if (!order) {
      return false;
    }
    std::vector<int64_t> place(priced_.costs.size(), 0);
    for (EliminatedVariable& e : *order) {
      place[e.variable] = std::ssize(steps_);
      steps_.push_back({.eliminated = std::move(e)});
    }
    for (const int64_t k : indices(priced_.pairs)) {
      const PairCost& pair = priced_.pairs[k];
      steps_[std::min(place[pair.first], place[pair.second])].pairs.push_back(k);
    }
    for (const int64_t k : indices(steps_)) {
      const std::vector<int64_t>& scope = steps_[k].eliminated.scope;
      if (scope.empty()) {
        roots_.push_back(k);
        least_ += steps_[k].eliminated.least->front();
      } else {
        const int64_t reader = std::ranges::min(mapped(scope, [&](int64_t v) { return place[v]; }));
        steps_[reader].children.push_back(k);
      }
    }
    return std::isfinite(least_);
  }

  int64_t entryOf(const Step& step) const {
    int64_t entry = 0;
    for (const int64_t v : step.eliminated.scope) {
      entry = entry * choicesOf(v) + now_[v];
    }
    return entry;
  }
  double leastOf(const Step& step) const { return (*step.eliminated.least)[entryOf(step)]; }

  // Sets the choices of the variables of a table.
  void enter(const Step& step, int64_t entry) {
    const std::vector<int64_t>& scope = step.eliminated.scope;
    for (int64_t k = std::ssize(scope) - 1; k >= 0; k--) {
      now_[scope[k]] = entry % choicesOf(scope[k]);
      entry /= choicesOf(scope[k]);
    }
  }

  // Of the variable of the step, with those of its table, without children.
  double pricedHere(const Step& step) const {
    double sum = priced_.costs[step.eliminated.variable][now_[step.eliminated.variable]];
    for (const int64_t pair : step.pairs) {
      const PairCost& p = priced_.pairs[pair];
      sum += p.table->at(now_[p.first], now_[p.second]);
    }
    return sum;
  }
  double costHere(const Step& step) const {
    double sum = costs_.costs[step.eliminated.variable][now_[step.eliminated.variable]];
    for (const int64_t pair : step.pairs) {
      if (pair < std::ssize(costs_.pairs)) {
        const PairCost& p = costs_.pairs[pair];
        sum += p.table->at(now_[p.first], now_[p.second]);
      }
    }
    return sum;
  }

  // From the last variable to the first: which entries belong to plans that cost less than the known one.
  bool findEntries() {
    now_.assign(priced_.costs.size(), 0);
    for (const int64_t root : roots_) {
      steps_[root].outside[0] = least_ - steps_[root].eliminated.least->front();
    }
    for (int64_t k = std::ssize(steps_) - 1; k >= 0; k--) {
      const Step& step = steps_[k];
      for (const auto& [entry, outside] : step.outside) {
        enter(step, entry);
        for (int64_t& c = now_[step.eliminated.variable] = 0; c < choicesOf(step.eliminated.variable); c++) {
          double all = outside + pricedHere(step);
          for (const int64_t child : step.children) {
            all += leastOf(steps_[child]);
          }
          if (!(all < most_)) {
            continue;
          }
          for (const int64_t child : step.children) {
            const double others = all - leastOf(steps_[child]);
            const auto [at, isNew] = steps_[child].outside.try_emplace(entryOf(steps_[child]), others);
            at->second = std::min(at->second, others);
          }
          made_++;
        }
        if (isOver()) {
          return false;
        }
      }
    }
    return true;
  }

  bool isOver() const {
    return made_ + std::ssize(points_) > limit_.most || std::chrono::steady_clock::now() > limit_.deadline;
  }

  int64_t add(const Point& p) {
    points_.push_back(p);
    return std::ssize(points_) - 1;
  }

  // Sums of pairs of both sets that cost less than the known plan, if all else costs at least `rest`, priced.
  Points sums(const Points& a, const std::vector<int64_t>& b, double rest) {
    made_ += std::ssize(a) * std::ssize(b);
    if (isOver()) {
      return {};
    }
    Points result;
    for (const Point& x : a) {
      const int64_t left = b.empty() ? -1 : add(x);
      for (const int64_t y : b) {
        const Point& other = points_[y];
        const Point sum{x.cost + other.cost, x.weight + other.weight, left, y};
        if (rest + sum.cost + sum.weight < most_ && sum.weight <= limit_.weight + kLimitRounding * most_) {
          result.push_back(sum);
        }
      }
    }
    return unbeaten(std::move(result));
  }

  // Without pairs if another one is better in both, or beaten in cost by less than rounding.
  Points unbeaten(Points all) const {
    std::ranges::stable_sort(
        all, [](const Point& a, const Point& b) { return std::pair(a.weight, a.cost) < std::pair(b.weight, b.cost); });
    Points kept;
    for (const Point& p : all) {
      if (kept.empty() || p.cost < kept.back().cost - kRounding * limit_.below) {
        kept.push_back(p);
      }
    }
    return kept;
  }

  bool makeSets(Step& step) {
    for (const auto& [entry, outside] : step.outside) {
      Points all;
      enter(step, entry);
      const int64_t v = step.eliminated.variable;
      for (int64_t& c = now_[v] = 0; c < choicesOf(v); c++) {
        const double priced = pricedHere(step);
        double rest = outside;
        for (const int64_t child : step.children) {
          rest += leastOf(steps_[child]);
        }
        if (!(rest + priced < most_)) {
          continue;
        }
        const double cost = costHere(step);
        Points here{{.cost = cost, .weight = priced - cost, .right = v, .choice = c}};
        for (const int64_t child : step.children) {
          rest -= leastOf(steps_[child]);
          here = sums(here, steps_[child].sets[entryOf(steps_[child])], rest);
        }
        all.insert(all.end(), here.begin(), here.end());
      }
      if (isOver()) {
        return false;
      }
      step.sets[entry] = mapped(unbeaten(std::move(all)), [&](const Point& p) { return add(p); });
    }
    return true;
  }

  void read(int64_t point, std::vector<int64_t>& choices) const {
    std::vector<int64_t> left{point};
    while (!left.empty()) {
      const Point& p = points_[left.back()];
      left.pop_back();
      if (p.left < 0) {
        choices[p.right] = p.choice;
      } else {
        left.push_back(p.left);
        left.push_back(p.right);
      }
    }
  }

  LimitedMinimum result() {
    double rest = least_;
    Points all;
    for (const int64_t root : roots_) {
      rest -= steps_[root].eliminated.least->front();
      const std::vector<int64_t>& set = steps_[root].sets[0];
      all = root == roots_.front() ? mapped(set, [&](int64_t p) { return points_[p]; }) : sums(all, set, rest);
    }
    if (isOver()) {
      return {};
    }
    std::ranges::stable_sort(all, {}, &Point::cost);
    LimitedMinimum found{.bound = all.empty() ? limit_.below : std::min(all.front().cost, limit_.below)};
    for (const Point& p : all) {
      if (std::ssize(found.found) < kFound && p.cost < limit_.below) {
        std::vector<int64_t>& choices = found.found.emplace_back(priced_.costs.size(), 0);
        read(add(p), choices);
      }
    }
    return found;
  }

  const CostGraph& costs_;
  const CostGraph& priced_;
  const WeightLimit limit_;
  const double most_;  // that a plan costs, priced
  std::vector<Step> steps_;
  std::vector<int64_t> roots_;  // steps that no other one reads
  double least_ = 0;            // of all plans, priced
  std::vector<int64_t> now_;    // choices, by variable
  Points points_;               // of sets, and of sums that they consist of
  int64_t made_ = 0;            // entries and sums
};

}  // namespace

LimitedMinimum minimizeWithin(const CostGraph& costs, const CostGraph& priced, const WeightLimit& limit) {
  return Layers(costs, priced, limit).run();
}

}  // namespace meshfuse
