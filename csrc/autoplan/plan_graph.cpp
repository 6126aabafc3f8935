#include "autoplan/plan_graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "autoplan/program_steps.h"
#include "autoplan/work.h"
#include "base/error.h"
#include "base/ranges.h"
#include "base/rounding.h"
#include "ir/attribute_text.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ir/root_text.h"

namespace meshfuse {

namespace {

// Of plans that take equal time, the one whose tensors are smaller is better: an element costs this part of a byte read.
constexpr double kHolding = 1e-6;

double elementsOf(const Sizes& shape) {
  return productOf(shape, [](int64_t n) { return static_cast<double>(n); });
}

// Whether the result of a strategy can have this placement: a partial sum can be combined to any.
bool canBecome(const Strategy& s, const Placement& to) {
  return std::ranges::all_of(indices(to),
                             [&](int64_t axis) { return to[axis] == s.result[axis] || contains(s.summed, axis); });
}

class Builder {
 public:
  Builder(const Fusion& fusion, const DistributedConfig& machines, const DeviceMesh& mesh, Division division,
          SumType sums)
      : fusion_(fusion),
        machines_(machines),
        axes_(mesh.axisSizes()),
        division_(division),
        sums_(sums),
        redistributions_(machines, mesh, withLinkCosts(fusion.planner(), machines, mesh)),
        steps_(programSteps(fusion)) {
    graph_.mesh = mesh;
    graph_.steps = steps_.count + 1;
  }

  PlanGraph build() {
    findLives();
    for (const Val* in : fusion_.inputs()) {
      if (in->isTensor()) {
        addInput(in->asTensor());
      }
    }
    for (const Expr* e : fusion_.exprs()) {
      addOp(*e);
    }
    for (const auto& [output, input] : fusion_.aliases()) {
      const int64_t from = graph_.nodeOf.at(output->id());
      const int64_t to = graph_.nodeOf.at(input->id());
      addReader(output, from, to, steps_.count, graph_.nodes[to].placements);
    }
    shareCopies();
    for (const Reader& r : readers_) {
      if (r.from != r.to) {
        graph_.edges.push_back({r.from, r.to, r.step, tablesOf(r)});
      }
    }
    makeCosts();
    return std::move(graph_);
  }

 private:
  // A node that reads a tensor of another node.
  struct Reader {
    int64_t from;
    int64_t to;
    int64_t step;
    int64_t tensor;
    int64_t size;  // bytes of an element
    bool isProduct;
    int64_t needed;  // number of a list: by choice of `to`

    bool operator==(const Reader&) const = default;
  };
  struct OpTable {
    std::shared_ptr<const std::vector<OpChoice>> choices;
    std::vector<Placement> placements;  // of the results of strategies
    std::vector<int64_t> needed;        // by operand: number of a list, by choice
    // If the result is a node of its own: its placements, and the costs of combination.
    std::vector<Placement> combined;
    std::shared_ptr<const EdgeTables> combine;
  };

  // -- what reaches memory ----------------------------------------------------------------------------------------------
  void findLives() {
    for (const Expr* e : fusion_.exprs()) {
      if (!e->output()->isTensor() || steps_.owner.contains(e->output()->id())) {
        continue;
      }
      const int64_t step = stepOf(*e);
      lives_[e->output()->id()] = {step, step};
      for (const TensorView* in : e->tensorInputs()) {
        int64_t& last = lives_[steps_.ownerOf(in->id())].second;
        last = std::max(last, step);
      }
    }
    for (const auto* list : {&fusion_.inputs(), &fusion_.outputs()}) {
      for (const Val* val : *list) {
        lives_[steps_.ownerOf(val->id())] = {0, steps_.count};
      }
    }
    for (const auto& [output, input] : fusion_.aliases()) {
      if (steps_.ownerOf(output->id()) == output->id()) {
        inPlace_.insert(output->id());
      }
    }
  }

  int64_t stepOf(const Expr& e) const { return steps_.stepOf.at(e.output()->id()); }
  bool isStored(const Val* val) const { return steps_.isStored(val->id()); }

  void addTensor(int64_t node, const TensorView* tv) {
    graph_.nodeOf[tv->id()] = node;
    graph_.nodes[node].tensors.push_back(tv->id());
    if (steps_.stored.contains(tv->id()) && !inPlace_.contains(tv->id())) {
      const auto& [first, last] = lives_.at(tv->id());
      graph_.nodes[node].stored.push_back({tv->id(), first, last, dataTypeSize(tv->dtype())});
    }
  }

  // -- nodes ------------------------------------------------------------------------------------------------------------
  std::optional<Placement> pinOf(const TensorView* tv) const {
    if (!tv->hasDeviceMesh()) {
      return std::nullopt;
    }
    check(
        tv->getDeviceMesh() == graph_.mesh,
        "[autoplan] {} is on mesh {}, the plan is for {}; give all annotated tensors the mesh of the plan, or ask for "
        "theirs",
        tv->toString(), tv->getDeviceMesh().toString(), graph_.mesh.toString());
    const ShardState state = shardState(tv);
    const std::optional<Placement> pin = placementOf(state);
    check(pin.has_value(),
          "[autoplan] {} has the sharding {}, which automatic plans do not have: expected blocks of whole mesh axes, "
          "the outer axis "
          "outside; remove the annotation, or shard it in blocks",
          tv->toString(), state.toString());
    check(fits(*pin, tv->constantShape(), axes_, Division::Uneven),
          "[autoplan] {} has the sharding {}, which leaves ranks without elements; remove the annotation",
          tv->toString(), state.toString());
    return pin;
  }

  int64_t addNode(PlanNode node) {
    node.elements = mapped(node.placements, [&](const Placement& p) { return localElements(p, node.shape, axes_); });
    graph_.nodes.push_back(std::move(node));
    nodeLists_.push_back(-1);
    return std::ssize(graph_.nodes) - 1;
  }

  void addInput(const TensorView* tv) {
    const Sizes shape = tv->constantShape();
    const std::optional<Placement> pin = pinOf(tv);
    PlanNode node{.head = tv->id(), .shape = shape};
    node.placements = pin ? std::vector<Placement>{*pin} : placementsOf(shape, axes_, division_);
    addTensor(addNode(std::move(node)), tv);
  }

  // The node that the result of an elementwise op follows: of all operands of its shape. Nothing if they differ.
  std::optional<int64_t> followed(const Expr& e) const {
    if (ruleOf(e).form != OpForm::Pointwise || e.tensorOutput()->hasDeviceMesh()) {
      return std::nullopt;
    }
    const Sizes shape = e.tensorOutput()->constantShape();
    std::optional<int64_t> node;
    for (const TensorView* in : e.tensorInputs()) {
      if (in->constantShape() == shape) {
        const int64_t of = graph_.nodeOf.at(in->id());
        if (node.value_or(of) != of) {
          return std::nullopt;
        }
        node = of;
      }
    }
    return node;
  }

  void addOp(const Expr& e) {
    if (!e.output()->isTensor()) {
      return;
    }
    firstOfOp_ = readers_.size();
    if (const std::optional<int64_t> node = followed(e)) {
      follow(e, *node);
      return;
    }
    const std::optional<Placement> pin = pinOf(e.tensorOutput());
    const OpTable& table = opTable(e, pin);
    PlanNode node{.head = e.output()->id(), .expr = &e, .shape = e.tensorOutput()->constantShape()};
    node.strategies = std::ssize(graph_.nodes);
    PlanNode result = node;
    node.placements = table.placements;
    node.choices = table.choices;
    const int64_t to = addNode(std::move(node));
    if (table.combine != nullptr) {
      result.placements = table.combined;
      addTensor(addNode(std::move(result)), e.tensorOutput());
      graph_.edges.push_back({to, to + 1, stepOf(e), table.combine});
    } else {
      addTensor(to, e.tensorOutput());
    }
    for (const int64_t operand : e.tensorPositions()) {
      const Val* in = e.input(operand);
      const int64_t from = graph_.nodeOf.at(in->id());
      if (table.combine != nullptr && isBias(e, operand)) {  // it is added to the combined result
        addReader(in, from, to + 1, stepOf(e), neededFor(e, operand, table.combined));
      } else {
        addReader({from, to, stepOf(e), in->id(), dataTypeSize(in->dtype()), isContraction(e), table.needed[operand]});
      }
    }
  }

  void addReader(const Val* tensor, int64_t from, int64_t to, int64_t step, const std::vector<Placement>& needed) {
    addReader({from, to, step, tensor->id(), dataTypeSize(tensor->dtype()), false, numberOf(needed)});
  }

  // Of operands that are one tensor at one placement, the first moves it; products share copies.
  void addReader(const Reader& r) {
    if (r.isProduct || !contains(std::span(readers_).subspan(firstOfOp_), r)) {
      readers_.push_back(r);
    }
  }

  // Where an operand is needed if the result has each of these placements and the op runs there.
  static std::vector<Placement> neededFor(const Expr& e, int64_t operand, const std::vector<Placement>& results) {
    const std::vector<Factor> all = factors(e);  // first those of the result's dims
    return mapped(results, [&](const Placement& p) {
      return mapped<int8_t>(p, [&](int8_t dim) { return dim == kUncut ? kUncut : all[dim].operands[operand]; });
    });
  }

  void follow(const Expr& e, int64_t node) {
    addTensor(node, e.tensorOutput());
    const Sizes shape = e.tensorOutput()->constantShape();
    for (const int64_t operand : e.tensorPositions()) {
      const TensorView* in = e.input(operand)->asTensor();
      if (in->constantShape() != shape) {
        addReader(in, graph_.nodeOf.at(in->id()), node, stepOf(e),
                  neededFor(e, operand, graph_.nodes[node].placements));
      }
    }
    followers_.emplace_back(&e, node);
  }

  // -- choices of an op --------------------------------------------------------------------------------------------------
  std::string keyOf(const Expr& e, const std::optional<Placement>& pin) const {
    const auto text = [](const IntExpr& x) { return x.toString(); };
    const auto mesh = [](const DeviceMesh&) { return int64_t{0}; };
    std::string key =
        fmt::format("{}({}", e.opName(), ruleOf(e).form == OpForm::Positions ? "" : attributesText(e, text, mesh));
    for (const Val* in : e.inputs()) {
      key += in->isTensor() ? fmt::format(", {}{}{}{}", e.positionsOf(in)[0], name(in->dtype()),
                                          listText(in->asTensor()->constantShape()), isStored(in) ? "m" : "")
                            : ", s";
    }
    const TensorView* out = e.tensorOutput();
    key += fmt::format(") {}{}{}{}", name(out->dtype()), joined(out->getLogicalDomain(), " ", &IterDomain::toString),
                       rootText(*out, text),
                       steps_.owner.contains(out->id()) ? "v"
                       : isStored(out)                  ? "m"
                                                        : "");
    if (pin) {
      key += " pinned" + listText(mapped<int64_t>(*pin, std::identity()));
    }
    return key;
  }

  // The share of the work that the busiest rank does: it has the longest block of each factor. With onlySummed, other factors count as whole.
  double partOfLongest(const Expr& e, const Strategy& s, bool onlySummed = false) const {
    const std::vector<Factor> all = factors(e);
    double part = 1;
    for (int64_t f = 0; f < std::ssize(all); f++) {
      if (onlySummed && all[f].kind != FactorKind::Summed) {
        continue;
      }
      int64_t extent = all[f].result < 0 ? 1 : e.tensorOutput()->getRootDomain()[all[f].result]->extent().constValue();
      for (const int64_t operand : e.tensorPositions()) {
        const int64_t dim = all[f].operands[operand];
        extent = dim < 0 ? extent : e.input(operand)->asTensor()->constantShape()[dim];
      }
      int64_t blocks = 1;
      for (const int64_t axis : indices(axes_)) {
        blocks *= s.factors[axis] == f ? axes_[axis] : 1;
      }
      part *= extent == 0 ? 1 : static_cast<double>(divideUp(extent, blocks)) / static_cast<double>(extent);
    }
    return part;
  }

  double secondsOf(const Expr& e, const Strategy& s) const {
    const TensorView* out = e.tensorOutput();
    if (steps_.owner.contains(out->id()) || (isView(e) && !isStored(out))) {
      return 0;
    }
    const double share = partOfLongest(e, s);
    Work work = workOf(e);
    work.flops *= share;
    work.functions *= share;
    work.points *= share;
    work.product.contracted = std::max<int64_t>(
        1, std::llround(static_cast<double>(work.product.contracted) * partOfLongest(e, s, /*onlySummed=*/true)));
    std::set<std::pair<int64_t, Placement>> read;
    for (const int64_t operand : e.tensorPositions()) {
      const TensorView* in = e.input(operand)->asTensor();
      const bool picks = hasIndex(e) && operand == tableOf(e) && ruleOf(e).form == OpForm::Index;
      if (isStored(in) && !picks && read.insert({in->id(), s.operands[operand]}).second) {
        work.bytes += localElements(s.operands[operand], in->constantShape(), axes_) *
                      static_cast<double>(dataTypeSize(in->dtype()));
      }
    }
    if (isStored(out)) {
      work.bytes += elementsOf(out->constantShape()) * share * static_cast<double>(dataTypeSize(out->dtype()));
    }
    return machines_.device.seconds(work) + (isStored(out) ? machines_.device.launch : 0);
  }

  const OpTable& opTable(const Expr& e, const std::optional<Placement>& pin) {
    const auto [entry, isNew] = opTables_.try_emplace(keyOf(e, pin));
    OpTable& table = entry->second;
    if (!isNew) {
      return table;
    }
    std::vector<OpChoice> choices;
    bool sums = false;
    for (Strategy& s : strategiesOf(e, graph_.mesh, division_)) {
      sums |= !s.summed.empty();
      const double compute = secondsOf(e, s);
      choices.push_back({std::move(s), compute});
    }
    table.placements = mapped(choices, [](const OpChoice& c) { return c.strategy.result; });
    for (int64_t operand = 0; operand < std::ssize(e.inputs()); operand++) {
      table.needed.push_back(
          numberOf(mapped(choices, [&](const OpChoice& c) { return c.strategy.operands[operand]; })));
    }
    if (sums || pin) {
      table.combined =
          pin ? std::vector<Placement>{*pin} : placementsOf(e.tensorOutput()->constantShape(), axes_, division_);
      table.combine = combinations(*e.tensorOutput(), choices, table.combined, pin.has_value());
    }
    table.choices = std::make_shared<const std::vector<OpChoice>>(std::move(choices));
    return table;
  }

  // From the results of strategies to placements, if the result of each strategy may become any of them or only what it can become.
  std::shared_ptr<const EdgeTables> combinations(const TensorView& result, const std::vector<OpChoice>& choices,
                                                 const std::vector<Placement>& placements, bool any) {
    const Sizes shape = result.constantShape();
    const int64_t size = dataTypeSize(result.dtype());
    const int64_t sumSize = sums_ == SumType::Accumulated ? dataTypeSize(accumulateType(result.dtype())) : size;
    const auto rows = std::ssize(choices);
    const auto columns = std::ssize(placements);
    auto tables = std::make_shared<EdgeTables>();
    for (PairTable* t : {&tables->seconds, &tables->bytes, &tables->copied}) {
      *t = {rows, columns, std::vector<double>(rows * columns)};
    }
    for (int64_t row = 0; row < rows; row++) {
      const Strategy& s = choices[row].strategy;
      for (int64_t column = 0; column < columns; column++) {
        const int64_t at = row * columns + column;
        if (!any && !canBecome(s, placements[column])) {
          tables->seconds.costs[at] = std::numeric_limits<double>::infinity();
          continue;
        }
        const CommCost cost = redistributions_.of(s.result, {s.summed, sumSize}, placements[column], shape, size);
        tables->seconds.costs[at] = cost.seconds;
        tables->bytes.costs[at] = cost.bytes;
        if (cost.bytes > 0) {
          tables->copied.costs[at] =
              localElements(s.result, shape, axes_) * static_cast<double>(s.summed.empty() ? size : sumSize);
        }
      }
    }
    return tables;
  }

  // -- edges ------------------------------------------------------------------------------------------------------------
  // Products that read one tensor redistribute it once: a node for the copy stands between.
  void shareCopies() {
    std::map<int64_t, std::vector<int64_t>> products;  // by tensor
    for (int64_t k = 0; k < std::ssize(readers_); k++) {
      if (readers_[k].isProduct) {
        products[readers_[k].tensor].push_back(k);
      }
    }
    for (const auto& [tensor, all] : products) {
      if (all.size() < 2) {
        continue;
      }
      const Reader first = readers_[all[0]];
      const Sizes shape = graph_.nodes[first.from].shape;
      const int64_t copy = addNode(
          {.head = tensor, .isCopy = true, .shape = shape, .placements = placementsOf(shape, axes_, division_)});
      readers_.push_back({first.from, copy, first.step, tensor, first.size, false, listOf(copy)});
      for (const int64_t k : all) {
        readers_[k].from = copy;
      }
    }
  }

  int64_t numberOf(const std::vector<Placement>& list) {
    const auto [entry, isNew] = numbers_.try_emplace(list, std::ssize(numbers_));
    if (isNew) {
      lists_.push_back(&entry->first);
    }
    return entry->second;
  }
  int64_t listOf(int64_t node) {
    if (nodeLists_[node] < 0) {
      nodeLists_[node] = numberOf(graph_.nodes[node].placements);
    }
    return nodeLists_[node];
  }

  std::shared_ptr<const EdgeTables> tablesOf(const Reader& r) {
    const PlanNode& from = graph_.nodes[r.from];
    const bool isMade = !steps_.isStored(r.tensor);  // it is in memory since kernels end at a change of sharding
    auto& entry = edgeTables_[std::tuple(listOf(r.from), r.needed, from.shape, r.size, r.isProduct, isMade)];
    if (entry != nullptr) {
      return entry;
    }
    auto tables = std::make_shared<EdgeTables>();
    const std::vector<Placement>& needed = *lists_[r.needed];
    const auto rows = std::ssize(from.placements);
    const auto columns = std::ssize(needed);
    for (PairTable* t : {&tables->seconds, &tables->bytes, &tables->copied}) {
      *t = {rows, columns, std::vector<double>(rows * columns)};
    }
    std::map<std::pair<Placement, Placement>, CommCost> known;
    for (int64_t row = 0; row < rows; row++) {
      for (int64_t column = 0; column < columns; column++) {
        const Placement& held = from.placements[row];
        const Placement& wanted = needed[column];
        if (held == wanted) {
          continue;
        }
        const auto [cost, isNew] = known.try_emplace({held, wanted});
        if (isNew) {
          cost->second = redistributions_.of(held, wanted, from.shape, r.size);
        }
        const int64_t at = row * columns + column;
        tables->seconds.costs[at] = cost->second.seconds;
        tables->bytes.costs[at] = cost->second.bytes;
        const bool isCopied = cost->second.bytes > 0 || r.isProduct;  // kernels read slices where they are
        const double elements = (isCopied ? localElements(wanted, from.shape, axes_) : 0) +
                                (isMade ? localElements(held, from.shape, axes_) : 0);
        tables->copied.costs[at] = elements * static_cast<double>(r.size);
      }
    }
    entry = tables;
    return entry;
  }

  // -- costs ------------------------------------------------------------------------------------------------------------
  void makeCosts() {
    for (const PlanNode& node : graph_.nodes) {
      graph_.costs.costs.push_back(node.choices == nullptr ? std::vector<double>(node.placements.size(), 0.0)
                                                           : mapped(*node.choices, &OpChoice::compute));
    }
    for (int64_t k = 0; k < std::ssize(graph_.nodes); k++) {
      const bool isHeld = !graph_.nodes[k].tensors.empty() || graph_.nodes[k].isCopy;
      for (int64_t c = 0; isHeld && c < std::ssize(graph_.nodes[k].elements); c++) {
        graph_.costs.costs[k][c] += kHolding / machines_.device.bandwidth * graph_.nodes[k].elements[c];
      }
    }
    for (const auto& [e, node] : followers_) {
      addFollower(*e, node);
    }
    // all edges between two nodes as one table, shared by pairs of nodes with the same edges
    std::map<std::pair<int64_t, int64_t>, std::vector<const PlanEdge*>> between;
    for (const PlanEdge& edge : graph_.edges) {
      between[std::minmax(edge.from, edge.to)].push_back(&edge);
    }
    std::map<std::vector<std::pair<const EdgeTables*, bool>>, std::shared_ptr<const PairTable>> sums;
    for (const auto& [nodes, edges] : between) {
      std::vector<std::pair<const EdgeTables*, bool>> key;
      for (const PlanEdge* edge : edges) {
        key.emplace_back(edge->tables.get(), edge->from == nodes.first);
      }
      std::shared_ptr<const PairTable>& table = sums[key];
      if (table == nullptr) {
        const int64_t rows = std::ssize(graph_.nodes[nodes.first].placements);
        const int64_t columns = std::ssize(graph_.nodes[nodes.second].placements);
        PairTable sum{rows, columns, std::vector<double>(rows * columns, 0.0)};
        for (const auto& [part, forward] : key) {
          for (int64_t row = 0; row < rows; row++) {
            for (int64_t column = 0; column < columns; column++) {
              sum.costs[row * columns + column] +=
                  forward ? part->seconds.at(row, column) : part->seconds.at(column, row);
            }
          }
        }
        table = std::make_shared<const PairTable>(std::move(sum));
      }
      graph_.costs.pairs.push_back({nodes.first, nodes.second, table});
    }
  }

  void addFollower(const Expr& e, int64_t node) {
    const TensorView* out = e.tensorOutput();
    const double launch = isStored(out) ? machines_.device.launch : 0;
    double size = isStored(out) ? static_cast<double>(dataTypeSize(out->dtype())) : 0;
    for (const int64_t operand : e.tensorPositions()) {
      const Val* in = e.input(operand);
      const bool isFull = graph_.nodeOf.at(in->id()) == node && e.positionsOf(in)[0] == operand;
      size += isFull && isStored(in) ? static_cast<double>(dataTypeSize(in->dtype())) : 0;
    }
    const Work whole = workOf(e);
    std::vector<double>& costs = graph_.costs.costs[node];
    for (int64_t k = 0; k < std::ssize(costs); k++) {
      const double elements = graph_.nodes[node].elements[k];
      const Work work{.functions = whole.functions > 0 ? elements : 0,
                      .points = whole.functions > 0 ? 0 : elements,
                      .bytes = elements * size};
      costs[k] += machines_.device.seconds(work) + launch;
    }
  }

  const Fusion& fusion_;
  const DistributedConfig& machines_;
  const Sizes axes_;
  const Division division_;
  const SumType sums_;
  RedistributionCosts redistributions_;
  const ProgramSteps steps_;
  PlanGraph graph_;
  std::map<int64_t, std::pair<int64_t, int64_t>> lives_;  // by tensor that owns memory: first and last step
  std::set<int64_t> inPlace_;                             // outputs in the memory of an input
  std::vector<Reader> readers_;
  size_t firstOfOp_ = 0;  // of the readers
  std::vector<std::pair<const Expr*, int64_t>> followers_;
  std::map<std::string, OpTable> opTables_;
  std::map<std::vector<Placement>, int64_t> numbers_;  // of lists of placements
  std::vector<const std::vector<Placement>*> lists_;   // by number
  std::vector<int64_t> nodeLists_;
  std::map<std::tuple<int64_t, int64_t, Sizes, int64_t, bool, bool>, std::shared_ptr<const EdgeTables>> edgeTables_;
};

}  // namespace

PlanGraph planGraph(const Fusion& fusion, const DistributedConfig& machines, const DeviceMesh& mesh, Division division,
                    SumType sums) {
  return Builder(fusion, machines, mesh, division, sums).build();
}

std::vector<double> PlanGraph::memoryOf(const std::vector<int64_t>& choices) const {
  std::vector<double> change(steps + 1, 0.0);
  for (int64_t k = 0; k < std::ssize(nodes); k++) {
    for (const StoredTensor& t : nodes[k].stored) {
      const double bytes = nodes[k].elements[choices[k]] * static_cast<double>(t.size);
      change[t.firstStep] += bytes;
      change[t.lastStep + 1] -= bytes;
    }
  }
  for (const PlanEdge& edge : edges) {
    const double bytes = edge.tables->copied.at(choices[edge.from], choices[edge.to]);
    change[edge.step] += bytes;
    change[edge.step + 1] -= bytes;
  }
  double sum = 0;
  change.pop_back();
  for (double& bytes : change) {
    bytes = sum += bytes;
  }
  return change;
}

double PlanGraph::bytesOf(const std::vector<int64_t>& choices) const {
  double bytes = 0;
  for (const PlanEdge& edge : edges) {
    bytes += edge.tables->bytes.at(choices[edge.from], choices[edge.to]);
  }
  return bytes;
}

CostGraph withMemory(const PlanGraph& graph, const std::map<int64_t, double>& secondsPerByte) {
  CostGraph result = graph.costs;
  for (int64_t k = 0; k < std::ssize(graph.nodes); k++) {
    double perElement = 0;
    for (const StoredTensor& t : graph.nodes[k].stored) {
      for (auto at = secondsPerByte.lower_bound(t.firstStep); at != secondsPerByte.end() && at->first <= t.lastStep;
           ++at) {
        perElement += at->second * static_cast<double>(t.size);
      }
    }
    for (int64_t c = 0; perElement > 0 && c < std::ssize(result.costs[k]); c++) {
      result.costs[k][c] += perElement * graph.nodes[k].elements[c];
    }
  }
  std::map<std::pair<const EdgeTables*, double>, std::shared_ptr<const PairTable>> priced;
  for (const PlanEdge& edge : graph.edges) {
    const auto price = secondsPerByte.find(edge.step);
    if (price != secondsPerByte.end()) {
      std::shared_ptr<const PairTable>& table = priced[{edge.tables.get(), price->second}];
      if (table == nullptr) {
        PairTable t = edge.tables->copied;
        for (double& c : t.costs) {
          c *= price->second;
        }
        table = std::make_shared<const PairTable>(std::move(t));
      }
      result.pairs.push_back({edge.from, edge.to, table});
    }
  }
  return result;
}

}  // namespace meshfuse
