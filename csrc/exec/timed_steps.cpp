#include "exec/timed_steps.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <ranges>
#include <string>
#include <string_view>

#include "autoplan/work.h"
#include "base/ranges.h"
#include "exec/fusion_executor_cache.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

constexpr int64_t kRounds = 5;
constexpr double kMostCalls = 1000;  // of a round

// By rank, then in the order given.
std::vector<std::vector<double>> exchangeNumbers(Communicator& comm, const std::vector<double>& mine) {
  const auto numbersOf = [](const std::string& bytes) {
    std::vector<double> numbers(bytes.size() / sizeof(double));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  };
  const auto* data = reinterpret_cast<const char*>(mine.data());
  return mapped(comm.exchange(std::string_view(data, mine.size() * sizeof(double))), numbersOf);
}

bool isOnOneMachine(const Team& team, const DistributedConfig& machines) {
  return std::ranges::all_of(team.ranks, [&](int64_t rank) {
    return rank / machines.devicesPerMachine == team.ranks[0] / machines.devicesPerMachine;
  });
}

// Whether the step reads only the rows of this tensor that an index names.
bool isPicked(const TensorView* tv) {
  const std::vector<Expr*> uses = tv->fusion().uses(tv);
  return !uses.empty() && std::ranges::all_of(uses, [&](const Expr* e) {
    return ruleOf(*e).form == OpForm::Index && hasIndex(*e) && e->input(tableOf(*e)) == tv;
  });
}

double bytesOf(const TensorView* tv) {
  return static_cast<double>(dataTypeSize(tv->dtype()) * productOf(tv->constantShape()));
}

// Which part of the elements of each tensor is computed or read, by id: of a tensor that is only sliced, what the slices take. Ops that are
// neither elementwise nor slices read all of an operand.
std::map<int64_t, double> neededParts(const Fusion& step) {
  const auto elements = [](const TensorView* tv) { return static_cast<double>(productOf(tv->constantShape())); };
  std::map<int64_t, double> parts;
  std::map<int64_t, double> ofSlices;
  for (const Val* out : step.outputs()) {
    parts[out->id()] = 1;
  }
  const std::vector<Expr*> exprs = step.exprs();
  for (const Expr* e : exprs | std::views::reverse) {
    double result = 0;
    for (const Val* out : e->outputs()) {
      result = std::max(result, parts[out->id()]);
    }
    for (const TensorView* in : e->tensorInputs()) {
      double& part = parts[in->id()];
      if (e->kind() == ExprKind::Slice) {
        double& taken = ofSlices[in->id()];
        taken = std::min(1.0, taken + result * elements(e->tensorOutput()) / std::max(1.0, elements(in)));
        part = std::max(part, taken);
      } else {
        const bool isElementwise = e->kind() == ExprKind::Point || e->kind() == ExprKind::Cast;
        const bool isWhole = !isElementwise || elements(in) < elements(e->tensorOutput());
        part = std::max(part, result > 0 && isWhole ? 1.0 : result);
      }
    }
  }
  return parts;
}

// The part of a rank in a kernel or a library call.
Work workOf(const Fusion& step) {
  std::map<int64_t, double> parts = neededParts(step);
  Work work;
  for (const Expr* e : step.exprs()) {
    if (e->output()->isTensor()) {
      Work more = workOf(*e);
      for (double* of : {&more.flops, &more.functions, &more.points}) {
        *of *= parts[e->output()->id()];
      }
      work += more;
    }
  }
  for (const Val* in : step.inputs()) {
    if (in->isTensor() && !isPicked(in->asTensor())) {
      work.bytes += bytesOf(in->asTensor()) * parts[in->id()];
    }
  }
  for (const Val* out : step.outputs()) {
    work.bytes += bytesOf(out->asTensor());
  }
  return work;
}

}  // namespace

std::vector<double> timesOfRanks(const std::vector<std::vector<double>>& measured, int64_t rank) {
  std::vector<double> times = measured[rank];
  times[0] = std::ranges::max(measured, {}, [](const std::vector<double>& of) { return of[0]; })[0];
  if (std::ranges::all_of(measured, [&](const std::vector<double>& of) { return of.size() == times.size(); })) {
    const auto inSteps =
        mapped(measured, [](const std::vector<double>& of) { return sumOf(of | std::views::drop(1)); });
    const double part = std::ranges::max(inSteps) / std::max(sumOf(inSteps), std::numeric_limits<double>::min());
    for (size_t k = 1; k < times.size(); k++) {
      times[k] = part * sumOf(measured, [&](const std::vector<double>& of) { return of[k]; });
    }
  }
  return times;
}

Profile timeSteps(FusionExecutorCache& cache, const std::vector<Argument>& inputs, Communicator& comm, double seconds) {
  const auto agreed = [&](const std::vector<double>& mine) {
    return timesOfRanks(exchangeNumbers(comm, mine), comm.rank());
  };
  (void)cache.profile(inputs);
  Profile result = cache.profile(inputs, 2);
  const double one = agreed({result.seconds})[0];
  const auto calls = static_cast<int64_t>(std::clamp(seconds / kRounds / one, 1.0, kMostCalls));
  std::vector<double> fastest;
  for (int64_t round = 0; round < kRounds; round++) {
    std::vector<double> times(result.steps.size() + 1);
    comm.barrier(comm.world());
    for (int64_t call = 0; call < calls; call++) {
      const Profile p = cache.profile(inputs);
      times[0] += p.seconds / static_cast<double>(calls);
      for (const int64_t k : indices(p.steps)) {
        times[k + 1] += p.steps[k].seconds / static_cast<double>(calls);
      }
    }
    times = agreed(times);
    fastest = fastest.empty() || times[0] < fastest[0] ? times : fastest;
  }
  result.seconds = fastest[0];
  for (const int64_t k : indices(result.steps)) {
    result.steps[k].seconds = fastest[k + 1];
  }
  return result;
}

std::vector<double> predictSteps(const HostProgram& program, const DistributedConfig& machines) {
  const DeviceSpeed& device = machines.device;
  return mapped(indices(program.steps), [&](int64_t k) {
    const Step& step = program.steps[k];
    switch (step.kind) {
      case HostStepKind::Launch:
      case HostStepKind::Routine:
      case HostStepKind::Reference:
        return device.launch + device.seconds(workOf(*step.reference.fusion()));
      case HostStepKind::Copy:
        return device.launch +
               device.seconds({.bytes = 2.0 * static_cast<double>(program.sizes().tensors[step.writes[0]].bytes)});
      case HostStepKind::Communicate:
        break;
    }
    const LinkSpeed& link = isOnOneMachine(step.comm.team, machines) ? machines.within : machines.between;
    return link.seconds(step.comm.kind, std::ssize(step.comm.team.ranks),
                        static_cast<double>(program.sizes().steps[k].comm.bytesReceived));
  });
}

}  // namespace meshfuse
