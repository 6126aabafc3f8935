#include "autoplan/stage_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include "autoplan/program_steps.h"
#include "autoplan/search.h"
#include "autoplan/strategies.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

using enum PassOfProgram;

constexpr double kBelowRounding = 1 - 1e-12;
constexpr int64_t kInput = -1;  // the step of an input

DistributedConfig machinesOf(const DistributedConfig& all, int64_t devices) {
  DistributedConfig some = all;
  some.machines = std::max<int64_t>(1, devices / all.devicesPerMachine);
  some.devicesPerMachine = std::min(devices, all.devicesPerMachine);
  return some;
}

}  // namespace

struct StageCosts::StageGraph {
  PlanGraph graph;
  std::vector<PassOfProgram> nodePasses;
  std::vector<PassOfProgram> edgePasses;
  std::vector<int64_t> key;  // equal for equal graphs
};

StageCosts::StageCosts(const MicroBatches& micro, const ProgramParts& parts, const DistributedConfig& machines,
                       GraphOf graphOf, Deadline deadline)
    : micro_(micro), parts_(parts), machines_(machines), graphOf_(std::move(graphOf)), deadline_(deadline) {
  const ProgramSteps kernels = programSteps(*micro.program);
  const int64_t count = micro.program->numVals();
  stepOf_.assign(count, kInput);
  owner_.assign(count, 0);
  roles_.assign(count, MicroBatchRole::Whole);
  for (const auto& [id, role] : micro.roles) {
    roles_[id] = role;
    owner_[id] = kernels.ownerOf(id);
  }
  for (const int64_t step : indices(parts.exprs)) {
    stepOf_[parts.exprs[step]->output()->id()] = step;
    kernelOf_.push_back(kernels.stepOf.at(parts.exprs[step]->output()->id()));
    operands_.push_back(mapped(parts.exprs[step]->tensorInputs(), &TensorView::id));
  }
}

std::vector<StageCosts::Graph>& StageCosts::graphsOf(int64_t devices) {
  const auto [entry, isNew] = graphs_.try_emplace(devices);
  if (isNew) {
    const DistributedConfig machines = machinesOf(machines_, devices);
    for (const DeviceMesh& mesh : candidateMeshes(devices)) {
      Graph& g = entry->second.emplace_back(Graph{graphOf_(*micro_.program, machines, mesh), {}, {}, {}, {}, {}});
      std::map<std::pair<std::vector<double>, std::vector<double>>, int64_t> known;
      for (const int64_t node : indices(g.graph.nodes)) {
        const auto number =
            known.try_emplace({g.graph.costs.costs[node], g.graph.nodes[node].elements}, std::ssize(known));
        g.costNumbers.push_back(number.first->second);
      }
      g.nodeOf.assign(stepOf_.size(), -1);
      for (const auto& [tensor, node] : g.graph.nodeOf) {
        g.nodeOf[tensor] = node;
      }
      for (const PlanEdge& edge : g.graph.edges) {
        g.tableNumbers.try_emplace(edge.tables.get(), std::ssize(g.tableNumbers));
        std::shared_ptr<const PairTable>& table = g.ofUpdate[edge.tables.get()];
        if (table == nullptr) {
          PairTable divided = edge.tables->seconds;
          for (double& seconds : divided.costs) {
            seconds /= static_cast<double>(micro_.count);
          }
          table = std::make_shared<const PairTable>(std::move(divided));
        }
      }
    }
  }
  return entry->second;
}

// The nodes and edges of a stage, numbered anew, with the steps of its ops.
StageCosts::StageGraph StageCosts::stageGraph(Graph& from, const StageOfParts& stage) const {
  const PlanGraph& all = from.graph;
  const int64_t steps = std::ssize(parts_.exprs);
  const auto microBatches = static_cast<double>(micro_.count);
  // The ops of the stage, and those without rows of the batch that they need.
  std::vector<bool> isIn(steps, false);
  std::vector<bool> isNeeded(stepOf_.size(), false);
  for (int64_t step = steps - 1; step >= 0; step--) {
    const int64_t part = parts_.parts[step];
    isIn[step] =
        part == kEveryPart ? isNeeded[parts_.exprs[step]->output()->id()] : stage.begin <= part && part < stage.end;
    for (int64_t k = 0; isIn[step] && k < std::ssize(operands_[step]); k++) {
      isNeeded[operands_[step][k]] = true;
    }
  }
  // Memory is counted by kernels.
  const int64_t kernels = all.steps - 1;
  std::vector<std::optional<PassOfProgram>> passes(kernels);  // of the kernels that the stage has
  for (int64_t step = steps - 1; step >= 0; step--) {
    if (isIn[step]) {
      passes[kernelOf_[step]] = parts_.passes[step];
    }
  }
  std::vector<int64_t> before(kernels + 2, 0);  // by kernel: kernels of the stage before it
  for (int64_t kernel = 0; kernel < kernels; kernel++) {
    before[kernel + 1] = before[kernel] + (passes[kernel] ? 1 : 0);
  }
  before[kernels + 1] = before[kernels] + 1;
  const int64_t end = before[kernels];
  const auto first = [&](int64_t kernel) { return before[kernel]; };
  const auto last = [&](int64_t kernel) { return std::max<int64_t>(0, before[kernel + 1] - 1); };
  int64_t backward = end;                                        // the first kernel of the backward pass
  std::vector<int64_t> lastReader(stepOf_.size(), 0);            // by tensor that owns memory
  std::map<int64_t, std::map<int64_t, PassOfProgram>> received;  // by node: tensors, in which pass
  for (int64_t step = steps - 1; step >= 0; step--) {
    if (!isIn[step]) {
      continue;
    }
    const int64_t kernel = first(kernelOf_[step]);
    backward = parts_.passes[step] == Backward ? std::min(backward, kernel) : backward;
    for (const int64_t in : operands_[step]) {
      lastReader[owner_[in]] = std::max(lastReader[owner_[in]], kernel);
      const int64_t made = stepOf_[in];
      if (made != kInput && !isIn[made]) {
        received[from.nodeOf[in]][in] = parts_.passes[made];
      }
    }
  }

  StageGraph result;
  result.graph.mesh = all.mesh;
  result.graph.steps = end + 1;
  std::vector<int64_t> numbers(all.nodes.size(), -1);
  const auto addNode = [&](int64_t node, PlanNode copy, std::vector<double> costs, PassOfProgram pass) {
    numbers[node] = std::ssize(result.graph.nodes);
    if (pass == Update) {
      for (double& c : costs) {
        c /= microBatches;
      }
    }
    result.graph.nodes.push_back(std::move(copy));
    result.graph.costs.costs.push_back(std::move(costs));
    result.nodePasses.push_back(pass);
  };
  // What lives from the forward to the backward pass is there once for each micro-batch in flight.
  const auto store = [&](PlanNode& node, const StoredTensor& t) {
    node.stored.push_back(t);
    if (stage.inFlight > 1 && t.firstStep < backward && backward <= t.lastStep && backward < end) {
      node.stored.push_back({t.id, 0, end, t.size * (stage.inFlight - 1)});
    }
  };
  const auto sizeOf = [&](int64_t id) { return dataTypeSize(micro_.program->val(id)->dtype()); };
  std::vector<bool> isReadHere(all.nodes.size(), false);
  for (const PlanEdge& edge : all.edges) {
    isReadHere[edge.from] = isReadHere[edge.from] || (edge.step < kernels && passes[edge.step]);
  }
  std::vector<bool> isStored(stepOf_.size(), false);
  for (const int64_t k : indices(all.nodes)) {
    const PlanNode& node = all.nodes[k];
    const bool isInput = node.expr == nullptr && !node.isCopy;
    const bool isHere = isInput ? isNeeded[node.head] : node.expr != nullptr && isIn[stepOf_[node.head]];
    if (node.isCopy) {
      if (isReadHere[k]) {
        addNode(k, {.head = node.head, .isCopy = true, .elements = node.elements}, all.costs.costs[k], Forward);
      }
      continue;
    }
    if (!isHere) {
      const auto tensors = received.find(k);
      if (tensors == received.end()) {
        continue;
      }
      PlanNode copy{.head = node.head, .elements = node.elements};
      std::vector<double> costs(node.elements.size(), 0.0);
      PassOfProgram pass = Forward;
      for (const auto& [id, made] : tensors->second) {
        const int64_t part = parts_.parts[stepOf_[id]];
        const StageLink link = part < stage.begin ? stage.before : stage.after;
        const LinkSpeed& speed = link == StageLink::Within ? machines_.within : machines_.between;
        for (int64_t c = 0; link != StageLink::None && c < std::ssize(costs); c++) {
          costs[c] += speed.latency + node.elements[c] * static_cast<double>(sizeOf(id)) / speed.bandwidth;
        }
        pass = made;
        const int64_t since = made == Forward ? 0 : backward;
        store(copy, {id, since, std::max(since, lastReader[owner_[id]]), sizeOf(id)});
        isStored[id] = true;
      }
      addNode(k, std::move(copy), std::move(costs), pass);
      continue;
    }
    PlanNode copy{.head = node.head, .expr = node.expr, .elements = node.elements};
    copy.strategies = node.strategies < 0 ? -1 : numbers[node.strategies];
    const bool isSum = node.expr != nullptr && roles_[node.head] == MicroBatchRole::Sum;
    const bool isResult = node.expr != nullptr && node.choices == nullptr;
    for (const StoredTensor& t : node.stored) {
      const bool isRows = roles_[t.id] == MicroBatchRole::Rows;
      const int64_t made = stepOf_[t.id];
      if (made != kInput && !isIn[made]) {
        continue;
      }
      isStored[t.id] = true;
      const bool isOfCall = isRows && (made == kInput || t.lastStep >= kernels);
      if (isOfCall) {
        copy.stored.push_back({t.id, 0, end, t.size * micro_.count});
        continue;
      }
      const int64_t since = made == kInput ? 0 : first(t.firstStep);
      const StoredTensor here{t.id, since, std::max(since, last(std::min(t.lastStep, kernels))), t.size};
      if (isRows && parts_.passes[made] == Forward) {
        store(copy, here);
      } else {
        copy.stored.push_back(here);
      }
    }
    if (isSum) {
      StoredTensor sum{node.head, 0, end, sizeOf(node.head)};
      (isResult ? result.graph.nodes[copy.strategies].stored : copy.stored).push_back(sum);
    }
    const PassOfProgram made = node.expr == nullptr ? Forward : parts_.passes[stepOf_[node.head]];
    addNode(k, std::move(copy), all.costs.costs[k], isSum && isResult ? Update : made);
  }
  // A backward pass cannot be in one kernel with a forward pass: what it reads reaches memory.
  for (int64_t step = 0; step < steps; step++) {
    if (!isIn[step] || parts_.passes[step] != Backward) {
      continue;
    }
    for (const int64_t in : operands_[step]) {
      const int64_t id = owner_[in];
      const int64_t made = stepOf_[id];
      const int64_t node = numbers[from.nodeOf[id]];
      if (made != kInput && isIn[made] && parts_.passes[made] == Forward && node >= 0 &&
          roles_[id] == MicroBatchRole::Rows && !isStored[id]) {
        isStored[id] = true;
        store(result.graph.nodes[node], {id, first(kernelOf_[made]), lastReader[id], sizeOf(id)});
      }
    }
  }
  for (const PlanEdge& edge : all.edges) {
    const bool isAlias = edge.step == kernels;
    const PlanNode& reader = all.nodes[edge.to];
    if (numbers[edge.from] < 0 || numbers[edge.to] < 0 || !(isAlias || passes[edge.step] || reader.isCopy)) {
      continue;
    }
    const bool combinesSum =
        all.nodes[edge.to].strategies == edge.from && roles_[all.nodes[edge.to].head] == MicroBatchRole::Sum;
    const PassOfProgram pass = isAlias || combinesSum   ? Update
                               : reader.expr != nullptr ? parts_.passes[stepOf_[reader.head]]
                                                        : passes[edge.step].value_or(Forward);
    const int64_t step = std::min(end, first(edge.step));
    result.graph.edges.push_back({numbers[edge.from], numbers[edge.to], step, edge.tables});
    result.edgePasses.push_back(pass);
    const std::shared_ptr<const PairTable> table =
        pass == Update ? from.ofUpdate.at(edge.tables.get())
                       : std::shared_ptr<const PairTable>(edge.tables, &edge.tables->seconds);
    result.graph.costs.pairs.push_back({numbers[edge.from], numbers[edge.to], table});
    append(result.key, std::vector<int64_t>{numbers[edge.from], numbers[edge.to],
                                            from.tableNumbers.at(edge.tables.get()), step, static_cast<int64_t>(pass)});
  }
  append(result.key, std::vector<int64_t>{-1, stage.devices, end, std::bit_cast<int64_t>(stage.memory)});
  for (const int64_t k : indices(all.nodes)) {
    if (numbers[k] < 0) {
      continue;
    }
    const auto tensors = received.find(k);
    const bool isReceived =
        tensors != received.end() && result.graph.nodes[numbers[k]].expr == nullptr && all.nodes[k].expr != nullptr;
    append(result.key, std::vector<int64_t>{-2, from.costNumbers[k],
                                            static_cast<int64_t>(result.nodePasses[numbers[k]]), isReceived ? 1 : 0});
    if (isReceived) {
      for (const auto& [id, made] : tensors->second) {
        const bool isBefore = parts_.parts[stepOf_[id]] < stage.begin;
        append(result.key,
               std::vector<int64_t>{sizeOf(id), static_cast<int64_t>(isBefore ? stage.before : stage.after)});
      }
    }
    for (const StoredTensor& t : result.graph.nodes[numbers[k]].stored) {
      append(result.key, std::vector<int64_t>{-3, t.firstStep, t.lastStep, t.size});
    }
  }
  return result;
}

// What the ops of one part cost: inputs and ops in every part cost nothing, as other parts of a stage may share them.
CostGraph StageCosts::ownCosts(PlanGraph graph) const {
  const auto withoutFinite = [](std::vector<double> costs) {
    std::ranges::replace_if(
        costs, [](double c) { return std::isfinite(c); }, 0);
    return costs;
  };
  const auto isShared = [&](int64_t node) {
    const int64_t step = stepOf_[graph.nodes[node].head];
    return step == kInput || parts_.parts[step] == kEveryPart;
  };
  for (const int64_t node : indices(graph.nodes)) {
    if (isShared(node)) {
      graph.costs.costs[node] = withoutFinite(std::move(graph.costs.costs[node]));
    }
  }
  for (PairCost& pair : graph.costs.pairs) {
    if (isShared(pair.first) && isShared(pair.second)) {
      PairTable table = *pair.table;
      table.costs = withoutFinite(std::move(table.costs));
      pair.table = std::make_shared<const PairTable>(std::move(table));
    }
  }
  return std::move(graph.costs);
}

double StageCosts::leastOf(Graph& g, const StageOfParts& stage) {
  if (g.leastOfParts.empty()) {
    const std::vector<int64_t>& classes = classesOf(stage.devices);
    std::map<int64_t, double> known;
    for (int64_t part = 0; part < parts_.count; part++) {
      const auto [entry, isNew] = known.try_emplace(classes[part]);
      if (isNew) {
        StageGraph alone = stageGraph(g, {.begin = part, .end = part + 1, .devices = stage.devices});
        entry->second = kBelowRounding * minimize(ownCosts(std::move(alone.graph))).bound;
      }
      g.leastOfParts.push_back(entry->second);
    }
  }
  return sumOf(std::views::iota(stage.begin, stage.end), [&](int64_t part) { return g.leastOfParts[part]; });
}

double StageCosts::least(int64_t begin, int64_t end, int64_t devices) {
  double least = std::numeric_limits<double>::infinity();
  for (Graph& g : graphsOf(devices)) {
    least = std::min(least, leastOf(g, {.begin = begin, .end = end, .devices = devices}));
  }
  return least;
}

std::optional<StagePlan> StageCosts::search(const StageOfParts& stage) {
  std::optional<StagePlan> best;
  double least = std::numeric_limits<double>::infinity();
  std::vector<std::pair<double, Graph*>> order;  // by what the parts take at least, apart
  for (Graph& g : graphsOf(stage.devices)) {
    order.emplace_back(leastOf(g, stage), &g);
  }
  std::ranges::stable_sort(order, {}, [](const auto& entry) { return entry.first; });
  for (const auto& [bound, g] : order) {
    if (bound >= least) {
      break;
    }
    const StageGraph part = stageGraph(*g, stage);
    const std::optional<FoundPlan> found = searchPlan(part.graph, stage.memory, deadline_);
    if (!found || found->seconds >= least) {
      continue;
    }
    least = found->seconds;
    best = StagePlan{.peak = found->peak, .mesh = part.graph.mesh};
    const auto add = [&](PassOfProgram pass, double seconds) {
      StageSeconds& s = best->seconds;
      (pass == Forward ? s.forward : pass == Backward ? s.backward : s.update) += seconds;
    };
    for (const int64_t k : indices(part.graph.nodes)) {
      add(part.nodePasses[k], part.graph.costs.costs[k][found->choices[k]]);
    }
    for (const int64_t k : indices(part.graph.edges)) {
      const PlanEdge& edge = part.graph.edges[k];
      add(part.edgePasses[k], part.graph.costs.pairs[k].table->at(found->choices[edge.from], found->choices[edge.to]));
    }
    best->seconds.update *= static_cast<double>(micro_.count);
  }
  return best;
}

// Ranges of parts with equal classes have equal graphs: with equal ops, and operands from the same places of parts at the same distance.
const std::vector<int64_t>& StageCosts::classesOf(int64_t devices) {
  std::vector<int64_t>& classes = classes_[devices];
  if (!classes.empty()) {
    return classes;
  }
  const PlanGraph& graph = graphsOf(devices).front().graph;
  std::vector<int64_t> place(graph.nodes.size(), 0);  // among the nodes of its part
  std::map<int64_t, int64_t> counts;
  std::map<int64_t, std::set<int64_t>> partsOf;  // by node of an input or of ops in every part
  const auto partOf = [&](int64_t node) {
    const int64_t step = stepOf_[graph.nodes[node].head];
    return step == kInput ? kEveryPart : parts_.parts[step];
  };
  for (const int64_t node : indices(graph.nodes)) {
    place[node] = counts[partOf(node)]++;
  }
  std::vector<std::vector<int64_t>> read(parts_.count);  // nodes of tensors that ops of a part read
  for (const int64_t step : indices(parts_.exprs)) {
    for (const int64_t in : operands_[step]) {
      const int64_t part = parts_.parts[step];
      const int64_t node = graphsOf(devices).front().nodeOf[in];
      if (part != kEveryPart) {
        read[part].push_back(node);
        partsOf[node].insert(part);
      }
    }
  }
  std::map<std::vector<int64_t>, int64_t> known;
  for (int64_t part = 0; part < parts_.count; part++) {
    std::vector<int64_t> key;
    for (Graph& g : graphsOf(devices)) {  // parts may be equal on one mesh alone
      append(key, stageGraph(g, {.begin = part, .end = part + 1, .devices = devices}).key);
    }
    for (const int64_t node : read[part]) {
      const int64_t from = partOf(node);
      const bool isShared = from == kEveryPart && partsOf.at(node).size() > 1;
      append(key, from != kEveryPart ? std::vector<int64_t>{-5, from - part, place[node]}
                                     : std::vector<int64_t>{-6, isShared ? node : -1});
    }
    classes.push_back(known.try_emplace(std::move(key), std::ssize(known)).first->second);
  }
  return classes;
}

const std::optional<StagePlan>& StageCosts::of(const StageOfParts& s) {
  const auto [known, isNew] =
      byStage_.try_emplace({s.begin, s.end, s.devices, static_cast<int64_t>(s.before), static_cast<int64_t>(s.after),
                            s.inFlight, std::bit_cast<int64_t>(s.memory)});
  if (isNew) {
    std::vector<int64_t> key{s.devices, static_cast<int64_t>(s.before), static_cast<int64_t>(s.after), s.inFlight,
                             std::bit_cast<int64_t>(s.memory)};
    const std::vector<int64_t>& classes = classesOf(s.devices);
    key.insert(key.end(), classes.begin() + s.begin, classes.begin() + s.end);
    const auto [equal, isNewGraph] = byClasses_.try_emplace(std::move(key));
    if (isNewGraph) {
      equal->second = search(s);
    }
    known->second = &equal->second;
  }
  return *known->second;
}

}  // namespace meshfuse
