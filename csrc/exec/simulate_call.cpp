#include "exec/simulate_call.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "device/open.h"
#include "exec/abstract_inputs.h"
#include "exec/assumed_ranks.h"
#include "exec/compile.h"
#include "exec/rank_classes.h"
#include "exec/timed_steps.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "preseg_passes/concretize.h"

namespace meshfuse {

namespace {

constexpr int64_t kMostClasses = 256;

// Seconds that some of these spans cover.
double covered(std::vector<SimulatedStep> spans) {
  std::ranges::sort(spans, {}, &SimulatedStep::begin);
  double seconds = 0;
  double end = 0;
  for (const SimulatedStep& s : spans) {
    seconds += std::max(0.0, s.end - std::max(end, s.begin));
    end = std::max(end, s.end);
  }
  return seconds;
}

class Events {
 public:
  Events(std::span<const std::shared_ptr<const HostProgram>> programs, const std::vector<int64_t>& classOf,
         const DistributedConfig& machines)
      : classOf_(classOf) {
    for (const int64_t c : indices(programs)) {
      ranks_.push_back({.program = programs[c].get(), .seconds = predictSteps(*programs[c], machines)});
      for (const Step& step : programs[c]->steps) {
        if (step.kind == HostStepKind::Communicate) {
          meetings_[step.comm.number].expected.insert(c);
        }
      }
    }
  }

  void run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (const int64_t c : indices(ranks_)) {
        while (advance(c)) {
          moves = true;
        }
      }
    }
  }

  std::vector<SimulatedStep> stepsOf(int64_t c) const { return ranks_[c].steps; }
  int64_t collectives() const { return std::ssize(meetings_); }

  std::vector<std::string> blocked() const {
    std::vector<std::string> result;
    for (const Rank& r : ranks_) {
      if (isAtEnd(r)) {
        continue;
      }
      const Step& step = r.program->steps[std::ssize(r.steps)];
      result.push_back(fmt::format("rank {} waits in {} for rank {}", r.program->rank, step.name, absentIn(step)));
    }
    return result;
  }

 private:
  struct Rank {
    const HostProgram* program = nullptr;
    std::vector<double> seconds;            // by step
    std::vector<SimulatedStep> steps = {};  // that have ended, in order
    std::map<int64_t, double> queues = {};  // end of the last step of each
  };

  struct Rendezvous {
    std::set<int64_t> expected;         // classes with a step for this collective
    std::map<int64_t, double> arrived;  // when a class comes to it
  };

  // Of the team, else of a class that meets others in the same collective.
  int64_t absentIn(const Step& step) const {
    const Rendezvous& here = meetings_.at(step.comm.number);
    for (const int64_t rank : step.comm.team.ranks) {
      if (!here.arrived.contains(classOf_.at(rank))) {
        return rank;
      }
    }
    const auto absent = std::ranges::find_if(here.expected, [&](int64_t c) { return !here.arrived.contains(c); });
    invariant(absent != here.expected.end(), "[simulate] all ranks have come to {}, which does not begin", step.name);
    return ranks_[*absent].program->rank;
  }

  static bool isAtEnd(const Rank& r) { return r.steps.size() == r.program->steps.size(); }

  // Comes to the next step or ends it; false if there is none, or if the class has come to it and another one has not.
  bool advance(int64_t c) {
    Rank& r = ranks_[c];
    if (isAtEnd(r)) {
      return false;
    }
    const int64_t k = std::ssize(r.steps);
    const Step& step = r.program->steps[k];
    double begin = r.queues[step.order.queue];
    for (const int64_t before : step.order.waits) {
      begin = std::max(begin, r.steps.at(before).end);
    }
    if (step.kind == HostStepKind::Communicate) {
      Rendezvous& here = meetings_.at(step.comm.number);
      if (here.arrived.emplace(c, begin).second) {
        return true;
      }
      if (here.arrived.size() < here.expected.size()) {
        return false;
      }
      for (const int64_t rank : step.comm.team.ranks) {
        const auto other = here.arrived.find(classOf_.at(rank));
        if (other == here.arrived.end()) {
          return false;
        }
        begin = std::max(begin, other->second);
      }
    }
    const double end = begin + r.seconds[k];
    r.steps.push_back({begin, end});
    r.queues[step.order.queue] = end;
    return true;
  }

  const std::vector<int64_t>& classOf_;
  std::vector<Rank> ranks_;                 // the first one of each class
  std::map<int64_t, Rendezvous> meetings_;  // by collective
};

}  // namespace

int64_t SimulatedClass::peakBytes() const { return program->sizes().peakBytes; }

Simulation simulatePrograms(std::span<const std::shared_ptr<const HostProgram>> programs,
                            const std::vector<int64_t>& classOf, const DistributedConfig& machines) {
  Events events(programs, classOf, machines);
  events.run();
  Simulation result{.collectives = events.collectives(), .blocked = events.blocked()};
  for (const int64_t c : indices(programs)) {
    SimulatedClass& of = result.classes.emplace_back();
    of.rank = programs[c]->rank;
    of.ranks = std::ranges::count(classOf, c);
    of.program = programs[c];
    of.steps = events.stepsOf(c);
    std::vector<SimulatedStep> kernels;
    for (const int64_t k : indices(of.steps)) {
      if (programs[c]->steps[k].kind != HostStepKind::Communicate) {
        kernels.push_back(of.steps[k]);
      }
      result.seconds = std::max(result.seconds, of.steps[k].end);
    }
    of.kernels = covered(std::move(kernels));
    of.busy = covered(of.steps);
  }
  for (const SimulatedClass& of : result.classes) {
    result.idle += of.idle(result.seconds) * static_cast<double>(of.ranks) / static_cast<double>(classOf.size());
  }
  return result;
}

Simulation simulateCall(const Fusion& annotated, const std::vector<std::vector<int64_t>>& shapes,
                        const DistributedConfig& machines) {
  checkMachines(machines);
  const std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 1, .compiles = false});
  const std::unique_ptr<Fusion> sized = concretize(annotated, shapes);
  const auto compiledFor = [&](int64_t rank) {
    AssumedRanks assumed(machines.devices(), rank);
    return compile(*sized, abstractInputs(*sized, shapes, rank), Agreement(assumed).call(), device,
                   {.verify = rank == 0});  // a run verifies those of the other ranks
  };
  const CompiledProgram first = compiledFor(0);
  const RankClasses classes = rankClasses(*first.program.planned, machines.devices());
  check(std::ssize(classes.firstRanks) <= kMostClasses,
        "[simulate] the {} ranks are of {} kinds, by their parts and transfers, and each kind is compiled; expected at "
        "most {}: describe fewer ranks, or divide tensors evenly",
        machines.devices(), classes.firstRanks.size(), kMostClasses);
  std::vector<std::shared_ptr<const HostProgram>> programs{first.host};
  for (const int64_t rank : classes.firstRanks) {
    if (rank > 0) {
      programs.push_back(compiledFor(rank).host);
    }
  }
  Simulation result = simulatePrograms(programs, classes.classOf, machines);
  result.isOfFirstRanks = std::ssize(programs) < machines.devices() && mayExchangeUnlikeBlocks(*first.program.planned);
  return result;
}

}  // namespace meshfuse
