#include "autoplan/cost_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr int64_t kLanes = 4;  // sums that the compiler forms at once

using Costs = std::shared_ptr<const std::vector<double>>;

// Costs over the choices of some variables, ascending; row-major, the last variable fastest. Tables with one number have equal costs.
struct Table {
  std::vector<int64_t> scope;
  Costs costs;
  int64_t number = -1;
};

// What eliminating a variable leaves: costs over its neighbours, and its best choice for each entry. Variables of repeated layers have equal
// tables, so the result is kept.
struct Eliminated {
  Costs costs;
  std::shared_ptr<const std::vector<int32_t>> best;
  int64_t number = -1;
};

enum class Kept : uint8_t { Best, Tables };

// What is kept of an eliminated variable to read off its choice: its best choice for each entry over the neighbours, or the tables, if
// the elimination is not exact or other choices are asked for.
struct Bucket {
  int64_t variable = 0;
  std::vector<int64_t> scope;
  std::shared_ptr<const std::vector<int32_t>> best;
  std::vector<Table> tables;
  Costs least = nullptr;  // of the scope, if the elimination is exact
};

class Elimination {
 public:
  Elimination(const CostGraph& graph, const EliminationLimits& limits, Kept kept)
      : graph_(graph), limits_(limits), kept_(kept) {
    const int64_t count = std::ssize(graph.costs);
    neighbours_.resize(count);
    tablesOf_.resize(count);
    for (const PairCost& pair : graph.pairs) {
      invariant(pair.first != pair.second,
                "[autoplan] a pair of variable {} with itself; add its costs to the variable", pair.first);
      neighbours_[pair.first].insert(pair.second);
      neighbours_[pair.second].insert(pair.first);
      add(tableOf(pair));
    }
    std::map<std::vector<double>, int64_t> known;
    for (const std::vector<double>& costs : graph.costs) {
      const auto [entry, isNew] = known.try_emplace(costs, numbers_);
      numbers_ += isNew ? 1 : 0;
      ownNumbers_.push_back(entry->second);
    }
    for (int64_t v = 0; v < count; v++) {
      order_.emplace(sizeAround(v), v);
      sizes_.push_back(sizeAround(v));
    }
  }

  Minimum minimum() {
    while (!order_.empty()) {
      eliminate(order_.begin()->second);
    }
    std::vector<int64_t> choices(graph_.costs.size(), 0);
    for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) {
      choices[bucket->variable] = bestOf(*bucket, choices);
    }
    result_.choices = std::move(choices);
    result_.bound = constant_;
    result_.cost = graph_.costOf(result_.choices);
    return std::move(result_);
  }

  std::optional<std::vector<EliminatedVariable>> order() {
    while (!order_.empty() && result_.isExact) {
      eliminate(order_.begin()->second);
    }
    if (!result_.isExact) {
      return std::nullopt;
    }
    return mapped(buckets_, [](const Bucket& b) { return EliminatedVariable{b.variable, b.scope, b.least}; });
  }

  bool visitBelow(double below, int64_t most, ChoiceVisitor& visitor) {
    while (!order_.empty() && result_.isExact) {
      eliminate(order_.begin()->second);
    }
    if (!result_.isExact) {
      return false;
    }
    Descent descent{
        .below = below, .left = most, .visitor = visitor, .choices = std::vector(graph_.costs.size(), int64_t{0})};
    descend(descent, std::ssize(buckets_) - 1, constant_);
    return descent.left >= 0;
  }

 private:
  struct Descent {
    double below;
    int64_t left;  // choices that may still be tried
    ChoiceVisitor& visitor;
    std::vector<int64_t> choices;
  };

  // `cost`: the least of all choices with those of the variables of later buckets.
  void descend(Descent& d, int64_t bucket, double cost) const {
    if (bucket < 0) {
      d.below = d.visitor.visit(d.choices);
      return;
    }
    const int64_t v = buckets_[bucket].variable;
    const std::vector<double> costs = costsOfChoices(buckets_[bucket], d.choices);
    std::vector<int64_t> order(costs.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    std::ranges::stable_sort(order, {}, [&](int64_t choice) { return costs[choice]; });
    for (const int64_t choice : order) {
      const double least = cost + (costs[choice] - costs[order.front()]);
      if (!(least < d.below) || d.left < 0 || --d.left < 0) {
        return;
      }
      d.choices[v] = choice;
      if (d.visitor.enter(v, choice)) {
        descend(d, bucket - 1, least);
      }
      d.visitor.leave(v);
    }
  }

  int64_t choicesOf(int64_t v) const { return std::ssize(graph_.costs[v]); }

  double sizeAround(int64_t v) const {
    double size = static_cast<double>(choicesOf(v));
    for (const int64_t u : neighbours_[v]) {
      size *= static_cast<double>(choicesOf(u));
    }
    return size;
  }

  Table tableOf(const PairCost& pair) {
    const bool isInOrder = pair.first < pair.second;
    Eliminated& known = pairTables_[{pair.table.get(), isInOrder}];
    if (known.costs == nullptr) {
      known.number = numbers_++;
      std::vector<double> costs = pair.table->costs;
      for (int64_t row = 0; row < pair.table->rows && !isInOrder; row++) {
        for (int64_t column = 0; column < pair.table->columns; column++) {
          costs[column * pair.table->rows + row] = pair.table->at(row, column);
        }
      }
      known.costs = std::make_shared<const std::vector<double>>(std::move(costs));
    }
    return {{std::min(pair.first, pair.second), std::max(pair.first, pair.second)}, known.costs, known.number};
  }

  void add(Table table) {
    if (table.scope.empty()) {
      constant_ += table.costs->front();
      return;
    }
    for (const int64_t v : table.scope) {
      tablesOf_[v].push_back(std::ssize(tables_));
    }
    tables_.push_back(std::move(table));
  }

  // The table with the eliminated variable as its last, so that its costs lie next to each other.
  Table variableLast(const Table& table, int64_t v) const {
    const int64_t place = positionIn(table.scope, v);
    if (place == std::ssize(table.scope)) {
      return table;  // of v alone
    }
    int64_t inner = 1;
    for (int64_t k = place + 1; k < std::ssize(table.scope); k++) {
      inner *= choicesOf(table.scope[k]);
    }
    Table moved = table;
    moved.scope.erase(moved.scope.begin() + place);
    if (inner == 1) {
      return moved;
    }
    const int64_t n = choicesOf(v);
    const int64_t outer = std::ssize(*table.costs) / (n * inner);
    std::vector<double> costs(table.costs->size());
    for (int64_t o = 0; o < outer; o++) {
      for (int64_t s = 0; s < n; s++) {
        for (int64_t i = 0; i < inner; i++) {
          costs[(o * inner + i) * n + s] = (*table.costs)[(o * n + s) * inner + i];
        }
      }
    }
    moved.costs = std::make_shared<const std::vector<double>>(std::move(costs));
    return moved;
  }

  // Of the variables around `v` in these tables, ascending.
  static std::vector<int64_t> scopeOf(int64_t v, const std::vector<Table>& tables) {
    std::set<int64_t> scope;
    for (const Table& t : tables) {
      scope.insert(t.scope.begin(), t.scope.end());
    }
    scope.erase(v);
    return {scope.begin(), scope.end()};
  }

  // A table over some variables of a scope and the eliminated variable, whose costs lie next to each other.
  struct Operand {
    const double* costs = nullptr;
    std::vector<int64_t> strides;  // by variable of the scope: entries of the eliminated variable to the next choice
    int64_t offset = 0;            // of the current choices, in the same unit
  };

  Operand operandOf(const Table& table, const std::vector<int64_t>& scope) const {
    Operand operand{.costs = table.costs->data(), .strides = std::vector<int64_t>(scope.size(), 0)};
    int64_t stride = 1;
    for (int64_t k = std::ssize(table.scope) - 1; k >= 0; k--) {
      operand.strides[positionIn(scope, table.scope[k])] = stride;
      stride *= choicesOf(table.scope[k]);
    }
    return operand;
  }

  static void addTo(std::vector<double>& sum, const double* costs) {
    const auto n = std::ssize(sum);
    int64_t k = 0;
    for (; k + kLanes <= n; k += kLanes) {
      std::array<double, kLanes> lanes;
      for (int64_t l = 0; l < kLanes; l++) {
        lanes[l] = sum[k + l] + costs[k + l];
      }
      for (int64_t l = 0; l < kLanes; l++) {
        sum[k + l] = lanes[l];
      }
    }
    for (; k < n; k++) {
      sum[k] += costs[k];
    }
  }

  static int64_t firstLeast(const double* costs, int64_t n) {
    std::array<double, kLanes> lanes;
    lanes.fill(costs[0]);
    int64_t k = 0;
    for (; k + kLanes <= n; k += kLanes) {
      for (int64_t l = 0; l < kLanes; l++) {
        lanes[l] = costs[k + l] < lanes[l] ? costs[k + l] : lanes[l];
      }
    }
    for (; k < n; k++) {
      lanes[0] = std::min(lanes[0], costs[k]);
    }
    const double least = std::ranges::min(lanes);
    return std::find_if(costs, costs + n, [&](double cost) { return !(cost > least); }) - costs;
  }

  // Minimizes the sum of tables over the choices of `v`. Of the tables that do not depend on the last variable of the scope, the sum is
  // computed once for all its choices.
  Eliminated minimizeOut(int64_t v, const std::vector<Table>& given, const std::vector<int64_t>& scope) const {
    const std::vector<Table> tables = mapped(given, [&](const Table& t) { return variableLast(t, v); });
    const int64_t n = choicesOf(v);
    const int64_t entries = productOf(scope, [&](int64_t u) { return choicesOf(u); });
    const int64_t lastChoices = scope.empty() ? 1 : choicesOf(scope.back());
    std::vector<Operand> fixed;
    std::vector<Operand> moving;  // with the last variable, by which they move one entry at a time
    for (const Table& t : tables) {
      const bool moves = !scope.empty() && contains(t.scope, scope.back());
      (moves ? moving : fixed).push_back(operandOf(t, scope));
    }
    std::vector<double> out(entries);
    std::vector<int32_t> best(entries);
    std::vector<int64_t> index(scope.size(), 0);
    std::vector<double> base(n);
    std::vector<double> sums(lastChoices * n);  // of all choices of the last variable: contiguous in the tables too
    for (int64_t entry = 0; entry < entries; entry += lastChoices) {
      std::ranges::fill(base, 0.0);
      for (const Operand& t : fixed) {
        addTo(base, t.costs + t.offset * n);
      }
      for (int64_t last = 0; last < lastChoices; last++) {
        std::ranges::copy(base, sums.begin() + last * n);
      }
      for (const Operand& t : moving) {
        addTo(sums, t.costs + t.offset * n);
      }
      for (int64_t last = 0; last < lastChoices; last++) {
        const double* row = sums.data() + last * n;
        const int64_t least = firstLeast(row, n);
        out[entry + last] = row[least];
        best[entry + last] = static_cast<int32_t>(least);
      }
      for (int64_t k = std::ssize(index) - 2; k >= 0; k--) {
        const bool carries = ++index[k] == choicesOf(scope[k]);
        for (std::vector<Operand>* operands : {&fixed, &moving}) {
          for (Operand& t : *operands) {
            t.offset += carries ? -t.strides[k] * (index[k] - 1) : t.strides[k];
          }
        }
        if (!carries) {
          break;
        }
        index[k] = 0;
      }
    }
    return {std::make_shared<const std::vector<double>>(std::move(out)),
            std::make_shared<const std::vector<int32_t>>(std::move(best))};
  }

  // The same, computed once for equal tables that meet in the same way.
  const Eliminated& minimizedOut(int64_t v, const std::vector<Table>& tables, const std::vector<int64_t>& scope) {
    std::vector<int64_t> key;
    for (const Table& t : tables) {
      key.push_back(t.number);
      for (const int64_t u : t.scope) {
        key.push_back(u == v ? -1 : -2 - positionIn(scope, u));
      }
    }
    Eliminated& known = known_[std::move(key)];
    if (known.costs == nullptr) {
      known = minimizeOut(v, tables, scope);
      known.number = numbers_++;
    }
    return known;
  }

  // Puts the tables into groups, each over as many entries as the limit allows; one group if the elimination is exact.
  std::vector<std::vector<Table>> grouped(int64_t v, std::vector<Table> tables) const {
    std::vector<std::vector<Table>> groups;
    std::vector<std::set<int64_t>> scopes;
    std::ranges::stable_sort(tables, std::greater<>(), [](const Table& t) { return t.costs->size(); });
    for (Table& t : tables) {
      size_t at = 0;
      for (; at < groups.size(); at++) {
        std::set<int64_t> joined = scopes[at];
        joined.insert(t.scope.begin(), t.scope.end());
        const double entries = productOf(joined, [&](int64_t u) { return static_cast<double>(choicesOf(u)); });
        if (entries <= static_cast<double>(limits_.entries)) {
          scopes[at] = std::move(joined);
          break;
        }
      }
      if (at == groups.size()) {
        groups.emplace_back();
        scopes.emplace_back(t.scope.begin(), t.scope.end()).insert(v);
      }
      groups[at].push_back(std::move(t));
    }
    return groups;
  }

  void eliminate(int64_t v) {
    order_.erase({sizes_[v], v});
    std::vector<Table> tables{{{}, std::make_shared<const std::vector<double>>(graph_.costs[v]), ownNumbers_[v]}};
    for (const int64_t t : tablesOf_[v]) {
      if (tables_[t].costs != nullptr) {
        tables.push_back(std::move(tables_[t]));
        tables_[t].costs = nullptr;
      }
    }
    const std::set<int64_t> around = neighbours_[v];
    result_.width = std::max(result_.width, std::ssize(around));
    for (const int64_t u : around) {
      neighbours_[u].erase(v);
    }
    Bucket bucket{.variable = v, .scope = {}, .best = nullptr, .tables = {}};
    if (sizes_[v] <= static_cast<double>(limits_.entries)) {
      bucket.scope = scopeOf(v, tables);
      const Eliminated& rest = minimizedOut(v, tables, bucket.scope);
      bucket.best = rest.best;
      bucket.least = rest.costs;
      connect(bucket.scope);
      add({bucket.scope, rest.costs, rest.number});
    } else {
      result_.isExact = false;
      for (const std::vector<Table>& group : grouped(v, tables)) {
        const std::vector<int64_t> scope = scopeOf(v, group);
        const Eliminated rest = minimizeOut(v, group, scope);
        connect(scope);
        add({scope, rest.costs, numbers_++});
      }
    }
    if (bucket.best == nullptr || kept_ == Kept::Tables) {
      bucket.tables = mapped(tables, [&](const Table& t) { return variableLast(t, v); });
    }
    for (const int64_t u : around) {
      order_.erase({sizes_[u], u});
      sizes_[u] = sizeAround(u);
      order_.emplace(sizes_[u], u);
    }
    buckets_.push_back(std::move(bucket));
  }

  void connect(const std::vector<int64_t>& scope) {
    for (const int64_t u : scope) {
      for (const int64_t w : scope) {
        if (u != w) {
          neighbours_[u].insert(w);
        }
      }
    }
  }

  int64_t entryOf(const std::vector<int64_t>& scope, const std::vector<int64_t>& choices) const {
    int64_t entry = 0;
    for (const int64_t u : scope) {
      entry = entry * choicesOf(u) + choices[u];
    }
    return entry;
  }

  int64_t bestOf(const Bucket& bucket, const std::vector<int64_t>& choices) const {
    if (bucket.tables.empty()) {
      return (*bucket.best)[entryOf(bucket.scope, choices)];
    }
    const std::vector<double> costs = costsOfChoices(bucket, choices);
    return std::ranges::min_element(costs) - costs.begin();
  }

  // The least costs of all choices of earlier buckets, by choice of this variable.
  std::vector<double> costsOfChoices(const Bucket& bucket, const std::vector<int64_t>& choices) const {
    const int64_t n = choicesOf(bucket.variable);
    std::vector<double> sum(n, 0.0);
    for (const Table& t : bucket.tables) {
      addTo(sum, t.costs->data() + entryOf(t.scope, choices) * n);
    }
    return sum;
  }

  const CostGraph& graph_;
  const EliminationLimits limits_;
  const Kept kept_;
  std::vector<std::set<int64_t>> neighbours_;
  std::vector<std::vector<int64_t>> tablesOf_;  // by variable
  std::vector<Table> tables_;                   // a consumed one has no costs
  std::vector<double> sizes_;                   // by variable: entries of the table that its elimination takes
  std::set<std::pair<double, int64_t>> order_;
  std::vector<Bucket> buckets_;
  std::vector<int64_t> ownNumbers_;  // by variable: of its costs
  int64_t numbers_ = 0;              // given to tables
  std::map<std::pair<const PairTable*, bool>, Eliminated> pairTables_;
  std::map<std::vector<int64_t>, Eliminated> known_;
  double constant_ = 0;
  Minimum result_;
};

}  // namespace

double CostGraph::costOf(std::span<const int64_t> choices) const {
  double sum = 0;
  for (int64_t v = 0; v < std::ssize(costs); v++) {
    sum += costs[v][choices[v]];
  }
  for (const PairCost& pair : pairs) {
    sum += pair.table->at(choices[pair.first], choices[pair.second]);
  }
  return sum;
}

Minimum minimize(const CostGraph& graph, const EliminationLimits& limits) {
  return Elimination(graph, limits, Kept::Best).minimum();
}

std::optional<std::vector<EliminatedVariable>> eliminated(const CostGraph& graph, const EliminationLimits& limits) {
  return Elimination(graph, limits, Kept::Best).order();
}

bool visitBelow(const CostGraph& graph, double below, int64_t most, ChoiceVisitor& visitor,
                const EliminationLimits& limits) {
  return Elimination(graph, limits, Kept::Tables).visitBelow(below, most, visitor);
}

}  // namespace meshfuse
