#include "autoplan/limited_minimum.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr int64_t kFound = 16;
constexpr double kRounding = 1e-13;  // part of the known cost
constexpr double kLimitRounding = 1e-12;
// Questions whether the search is over, and sums and pairs that are made, for each time that the clock is read.
constexpr int64_t kQuestions = 1024;
constexpr int64_t kWork = int64_t{1} << 16;

// A pair of a set: the choice of a variable, or the sum of two pairs.
struct Point {
  double cost = 0;
  double weight = 0;
  int32_t left = 0;   // place in all points; of a choice -1 - its number
  int32_t right = 0;  // place in all points; of a choice the variable
};

using Points = std::vector<Point>;

// Entries of a table by their number, each with the least of the values that were added for it.
class LeastOfEntries {
 public:
  struct Entry {
    int64_t number = 0;
    double least = 0;
  };

  void add(int64_t number, double value) {
    if (std::ssize(entries_) >= 2 * std::max<int64_t>(distinct_, kFew)) {
      settle();
    }
    entries_.push_back({number, value});
  }
  // Each number once, ascending.
  std::span<const Entry> settled() {
    settle();
    return entries_;
  }
  int64_t places() const { return static_cast<int64_t>(entries_.capacity()); }

 private:
  static constexpr int64_t kFew = 16;

  void settle() {
    if (distinct_ == std::ssize(entries_)) {
      return;
    }
    std::ranges::sort(entries_, {}, [](const Entry& e) { return std::pair(e.number, e.least); });
    const auto rest = std::ranges::unique(entries_, {}, &Entry::number);
    entries_.erase(rest.begin(), rest.end());
    distinct_ = std::ssize(entries_);
  }

  std::vector<Entry> entries_;
  int64_t distinct_ = 0;  // that settle() left
};

// A variable in the order of elimination.
struct Step {
  EliminatedVariable eliminated;
  std::vector<int64_t> pairs;     // of the priced costs, with variables that are eliminated later
  std::vector<int64_t> children;  // steps whose tables are read here
  // Entries of its table that are part of nearly best plans: what everything else costs at least.
  LeastOfEntries outside;
  std::vector<int32_t> ends;     // of the sets of these entries, in `members`
  std::vector<int32_t> members;  // points
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
      steps_[root].outside.add(0, least_ - steps_[root].eliminated.least->front());
    }
    for (int64_t k = std::ssize(steps_) - 1; k >= 0; k--) {
      Step& step = steps_[k];
      for (const auto& [entry, outside] : step.outside.settled()) {
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
            LeastOfEntries& entries = steps_[child].outside;
            const int64_t before = entries.places();
            entries.add(entryOf(steps_[child]), all - leastOf(steps_[child]));
            places_ += entries.places() - before;
          }
          made_++;
        }
        checkBytes({});
        if (isOver()) {
          return false;
        }
      }
    }
    return true;
  }

  bool isOver() {
    const int64_t work = made_ + std::ssize(points_);
    if (!isLate_ && (questions_++ % kQuestions == 0 || work - workAtClock_ > kWork)) {
      isLate_ = std::chrono::steady_clock::now() > limit_.deadline;
      workAtClock_ = work;
    }
    return isLate_ || isFull_ || work > limit_.most || std::ssize(points_) > std::numeric_limits<int32_t>::max() / 2;
  }

  // `more`: pairs that are not in a set yet.
  void checkBytes(const Points& more) {
    constexpr int64_t kEntry = sizeof(LeastOfEntries::Entry);
    constexpr int64_t kPoint = sizeof(Point) + sizeof(int32_t);
    isFull_ |= kEntry * places_ + kPoint * (std::ssize(points_) + std::ssize(more)) > limit_.bytes;
  }

  int32_t add(const Point& p) {
    points_.push_back(p);
    return static_cast<int32_t>(std::ssize(points_) - 1);
  }

  // Of an entry of the table of a step; none if no nearly best plan has it.
  std::span<const int32_t> setOf(Step& step, int64_t entry) {
    const std::span<const LeastOfEntries::Entry> entries = step.outside.settled();
    const auto at = std::ranges::lower_bound(entries, entry, {}, &LeastOfEntries::Entry::number);
    if (at == entries.end() || at->number != entry) {
      return {};
    }
    const int64_t k = at - entries.begin();
    const int64_t begin = k == 0 ? 0 : step.ends[k - 1];
    return std::span(step.members).subspan(begin, step.ends[k] - begin);
  }

  // Sums of pairs of both sets that cost less than the known plan, if all else costs at least `rest`, priced.
  Points sums(const Points& a, std::span<const int32_t> b, double rest) {
    made_ += std::ssize(a) * std::ssize(b);
    if (isOver()) {
      return {};
    }
    Points result;
    for (const Point& x : a) {
      checkBytes(result);
      if (isFull_) {
        return {};
      }
      const int32_t left = b.empty() ? -1 : add(x);
      for (const int32_t y : b) {
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
    for (const auto& [entry, outside] : step.outside.settled()) {
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
        Points here{{cost, priced - cost, static_cast<int32_t>(-1 - c), static_cast<int32_t>(v)}};
        for (const int64_t child : step.children) {
          rest -= leastOf(steps_[child]);
          here = sums(here, setOf(steps_[child], entryOf(steps_[child])), rest);
        }
        all.insert(all.end(), here.begin(), here.end());
      }
      if (isOver()) {
        return false;
      }
      append(step.members, mapped(unbeaten(std::move(all)), [&](const Point& p) { return add(p); }));
      step.ends.push_back(static_cast<int32_t>(std::ssize(step.members)));
    }
    return true;
  }

  void read(int64_t point, std::vector<int64_t>& choices) const {
    std::vector<int64_t> left{point};
    while (!left.empty()) {
      const Point& p = points_[left.back()];
      left.pop_back();
      if (p.left < 0) {
        choices[p.right] = -1 - p.left;
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
      const std::span<const int32_t> set = setOf(steps_[root], 0);
      all = root == roots_.front() ? mapped(set, [&](int32_t p) { return points_[p]; }) : sums(all, set, rest);
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
  int64_t places_ = 0;          // of all entries, in memory
  int64_t questions_ = 0;
  int64_t workAtClock_ = 0;  // sums and pairs that were made when the clock was read last
  bool isLate_ = false;
  bool isFull_ = false;
};

}  // namespace

LimitedMinimum minimizeWithin(const CostGraph& costs, const CostGraph& priced, const WeightLimit& limit) {
  return Layers(costs, priced, limit).run();
}

}  // namespace meshfuse
