#include "host/order_steps.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/exact.h"
#include "base/ranges.h"
#include "device/device.h"
#include "host/step_schedule.h"
#include "ir/fusion.h"
#include "tensor/dtype.h"

namespace meshfuse {

namespace {

// Numbers of the values from which `last` are computed, these included, up to `first`.
std::set<int64_t> valuesBetween(const Fusion& fusion, const std::set<int64_t>& first, std::vector<int64_t> last) {
  std::set<int64_t> values;
  while (!last.empty()) {
    const int64_t v = last.back();
    last.pop_back();
    const Expr* const e = fusion.val(v)->definition();
    if (values.insert(v).second && !first.contains(v) && e != nullptr) {
      append(last, mapped(e->inputs(), &Val::id));
    }
  }
  return values;
}

// The integers that a step reads and from which it computes the indices that it may refuse.
std::vector<int64_t> readForIndices(const HostProgram& program, const Step& step) {
  const auto valOf = [&](int64_t t) { return program.tensors[t].val; };
  const auto read = mapped(step.reads, valOf);
  const std::set<int64_t> first(read.begin(), read.end());
  std::vector<int64_t> refused;
  for (const int64_t v : valuesBetween(*program.fusion, first, mapped(step.writes, valOf))) {
    const Expr* const e = program.fusion->val(v)->definition();
    if (!first.contains(v) && e != nullptr && e->kind() == ExprKind::Point && mayRefuse(e->attributes().point)) {
      refused.push_back(e->input(0)->id());
    }
  }
  const std::set<int64_t> needed = valuesBetween(*program.fusion, first, refused);
  std::vector<int64_t> tensors;
  std::ranges::copy_if(step.reads, std::back_inserter(tensors),
                       [&](int64_t t) { return needed.contains(valOf(t)) && isIntegral(program.tensors[t].dtype); });
  return tensors;
}

class StepOrdering {
 public:
  explicit StepOrdering(HostProgram& program) : program_(program) {
    for (const Step& s : program.steps) {
      if (s.launch.checksIndices && refusesLate()) {
        for (const int64_t t : readForIndices(program, s)) {
          kept_.insert(program.storageOf(t));
        }
      }
    }
  }

  void run(bool overlaps) {
    StepSchedule schedule = overlaps ? beside() : inOrder();
    program_.arena = arenaOf(schedule);
    issue(schedule);
  }

 private:
  // The queue of a step: that of its team for a collective. All ranks may take part in a transfer. Queues have different teams, because a
  // team has one lane.
  int64_t queueOf(const Step& s) {
    if (s.kind != HostStepKind::Communicate) {
      return 0;
    }
    Team team = s.comm.team;
    if (s.comm.kind == Collective::Transfer) {
      team.ranks.resize(program_.ranks);
      std::iota(team.ranks.begin(), team.ranks.end(), int64_t{0});
    }
    const int64_t known = positionIn(program_.teams, team);
    if (known == std::ssize(program_.teams)) {
      program_.teams.push_back(team);
    }
    return known + 1;
  }

  // Numbers of the memories of tensors: equal if and only if tensors share bytes whatever the plan of the arena.
  std::vector<int64_t> memoriesOf(const std::vector<int64_t>& tensors) const {
    return mapped(tensors, [this](int64_t t) {
      const int64_t storage = program_.storageOf(t);
      const TensorPlan& p = program_.tensors[storage];
      return p.place == Place::Arena ? storage : -1 - 2 * p.index - (p.place == Place::Output ? 1 : 0);
    });
  }

  // All steps on one queue.
  StepSchedule inOrder() const {
    StepSchedule schedule;
    schedule.orders.resize(program_.steps.size());
    append(schedule.steps, indices(program_.steps));
    return schedule;
  }

  // The same order, in which each step waits for the one before. Other ranks may still run collectives beside other steps, so the queues stay.
  static StepSchedule oneByOne(const std::vector<StepUse>& uses) {
    StepSchedule schedule;
    HappensBefore before;
    for (const int64_t i : indices(uses)) {
      schedule.steps.push_back(i);
      schedule.orders.push_back(
          before.appendAfter(uses[i].queue, i == 0 ? std::vector<int64_t>() : std::vector{i - 1}));
    }
    return schedule;
  }

  // Collectives beside other steps.
  StepSchedule beside() {
    const std::optional<int64_t> inOneQueue = bytesOf(arenaOf(inOrder()));
    const auto uses = mapped(program_.steps, [this](const Step& s) {
      return StepUse{.queue = queueOf(s), .reads = memoriesOf(s.reads), .writes = memoriesOf(s.writes)};
    });
    if (inOneQueue) {
      const int64_t most = mostArenaBytes(*inOneQueue);
      const int64_t all = std::ssize(uses);
      const std::pair<int64_t, int64_t> reaches[] = {{256, all}, {32, all}, {4, all}, {0, all},
                                                     {0, 64},    {0, 16},   {0, 4}};
      for (const auto& [ahead, early] : reaches) {
        StepSchedule schedule = scheduleSteps(uses, ahead, early);
        if (bytesOf(arenaOf(schedule)) <= most) {
          return schedule;
        }
      }
    }
    return oneByOne(uses);
  }

  int64_t mostArenaBytes(int64_t inOneQueue) const {
    const auto grown = static_cast<int64_t>(static_cast<double>(inOneQueue) * (1 + kMostArenaGrowth));
    if (!program_.overlap.memory) {
      return grown;
    }
    const auto given = filtered(program_.inputs, [](int64_t t) { return t >= 0; });
    const auto made = filtered(indices(program_.outputs), [this](int64_t i) { return !program_.aliasOf[i]; });
    std::vector<IntExpr> others = mapped(given, [this](int64_t t) { return program_.tensors[t].bytes; });
    append(others, mapped(made, [this](int64_t i) { return program_.tensors[program_.outputs[i]].bytes; }));
    if (!std::ranges::all_of(others, [](const IntExpr& bytes) { return bytes.isConst(); })) {
      return inOneQueue;
    }
    const int64_t taken = sumExact(others, [](const IntExpr& bytes) { return bytes.constValue(); });
    return std::clamp(*program_.overlap.memory - taken, inOneQueue, grown);
  }

  // Nothing if some block has no constant size.
  static std::optional<int64_t> bytesOf(const std::vector<ArenaBlock>& arena) {
    if (!std::ranges::all_of(arena, [](const ArenaBlock& b) { return b.bytes.isConst(); })) {
      return std::nullopt;
    }
    auto blocks = mapped(arena, [](const ArenaBlock& b) {
      return MemoryBlock{.bytes = b.bytes.constValue(), .firstStep = b.firstStep, .lastStep = b.lastStep};
    });
    return planMemory(blocks);
  }

  std::vector<ArenaBlock> arenaOf(const StepSchedule& schedule) const {
    std::vector<ArenaBlock> arena;
    std::vector<std::vector<int64_t>> uses;  // by block: positions
    const auto add = [&](const ArenaBlock& block) {
      arena.push_back(block);
      uses.push_back({block.firstStep});
    };
    for (const int64_t i : indices(schedule.steps)) {
      for (const Workspace& w : program_.steps[schedule.steps[i]].workspaces) {
        if (!w.zeroed) {
          add({w.bytes, i, i});
        }
      }
    }
    std::map<int64_t, int64_t> blockOf;  // of a storage
    for (const int64_t i : indices(schedule.steps)) {
      const Step& step = program_.steps[schedule.steps[i]];
      for (const auto* list : {&step.reads, &step.writes}) {
        for (const int64_t t : *list) {
          const int64_t r = program_.storageOf(t);
          if (program_.tensors[r].place != Place::Arena) {
            continue;
          }
          const auto [it, isNew] = blockOf.try_emplace(r, std::ssize(arena));
          if (isNew) {
            add({.bytes = program_.tensors[r].bytes, .firstStep = i, .tensor = r});
          }
          arena[it->second].lastStep = kept_.contains(r) ? std::ssize(schedule.steps) - 1 : i;
          uses[it->second].push_back(i);
        }
      }
    }
    if (!program_.teams.empty()) {
      extendLives(arena, schedule, uses);
    }
    return arena;
  }

  // Whether steps run after one that refuses an index. The error tells where the index is, so what the step has computed it from
  // must remain.
  bool refusesLate() const {
    return (program_.overlap.allowed && program_.overlap.endsTogether) || !program_.device->isHostMemory();
  }

  // A block lives until the last step that may begin before one of its uses has ended.
  static void extendLives(std::vector<ArenaBlock>& blocks, const StepSchedule& schedule,
                          const std::vector<std::vector<int64_t>>& uses) {
    HappensBefore before;
    std::ranges::for_each(schedule.orders, [&](const StepOrder& order) { before.append(order); });
    for (const int64_t b : indices(blocks)) {
      for (int64_t i = before.steps() - 1; i > blocks[b].lastStep; i--) {
        if (std::ranges::any_of(uses[b], [&](int64_t use) { return !before(use, i); })) {
          blocks[b].lastStep = i;
        }
      }
    }
  }

  void issue(StepSchedule& schedule) {
    std::vector<Step> steps;
    for (const int64_t i : indices(schedule.steps)) {
      steps.push_back(std::move(program_.steps[schedule.steps[i]]));
      steps.back().order = std::move(schedule.orders[i]);
    }
    program_.steps = std::move(steps);
    HappensBefore before;
    std::ranges::for_each(program_.steps, [&](const Step& s) { before.append(s.order); });
    for (int64_t i = before.steps(); i-- > 0;) {  // depends on the later ones
      program_.steps[i].runsBeside = program_.steps[i].order.queue != 0 && hasWorkBeforeWait(i, before);
    }
  }

  // Whether a step of the device is issued after a collective, and before the caller's thread waits for it.
  bool hasWorkBeforeWait(int64_t collective, const HappensBefore& before) const {
    for (int64_t i = collective + 1; i < before.steps(); i++) {
      const Step& s = program_.steps[i];
      const bool isPosted = s.runsBeside && s.order.queue == program_.steps[collective].order.queue;
      if (before(collective, i) && !isPosted) {
        return false;
      }
      if (s.order.queue == 0) {
        return true;
      }
    }
    return false;
  }

  HostProgram& program_;
  std::set<int64_t> kept_;  // storages that live until the end
};

}  // namespace

void orderSteps(HostProgram& program, const Overlap& overlap) {
  program.overlap = overlap;
  StepOrdering(program).run(overlap.allowed);
}

}  // namespace meshfuse
