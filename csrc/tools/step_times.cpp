#include "tools/step_times.h"

#include <fmt/core.h>

#include "base/ranges.h"
#include "exec/fusion_executor_cache.h"
#include "exec/timed_steps.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "multidevice/transport/loopback/loopback.h"
#include "tools/traced_run.h"

namespace meshfuse {

namespace {

constexpr double kSeconds = 0.5;  // that a measurement takes, about

}  // namespace

StepTimes predictTimes(const HostProgram& program, const DistributedConfig& machines) {
  StepTimes times{.call = {.name = "call"}};
  const std::vector<double> predicted = predictSteps(program, machines);
  for (const int64_t k : indices(predicted)) {
    times.steps.push_back({program.steps[k].name, predicted[k], std::nullopt});
    times.call.predicted += predicted[k];
  }
  return times;
}

StepTimes measureTimes(const Fusion& fusion, std::span<const Argument> inputs, int64_t ranks,
                       const DistributedConfig& machines) {
  StepTimes result;
  runLoopback(ranks, [&](Communicator& comm) {
    FusionExecutorCache cache(fusion.clone(), {.communicator = &comm});
    const Profile measured = timeSteps(cache, inputsOfRank(fusion, inputs, comm.rank()), comm, kSeconds);
    if (comm.rank() == 0) {
      result = predictTimes(*cache.hostProgram(), machines);
      result.call.measured = measured.seconds;
      for (const int64_t k : indices(result.steps)) {
        result.steps[k].measured = measured.steps[k].seconds;
      }
    }
  });
  return result;
}

std::string timesText(const StepTimes& times) {
  const auto line = [](const PredictedTime& t) {
    return fmt::format("{:>12.2f} {:>12}  {}\n", t.predicted * 1e6,
                       t.measured ? fmt::format("{:.2f}", *t.measured * 1e6) : "", t.name);
  };
  const bool isMeasured = times.call.measured.has_value();
  return fmt::format("{:>12} {:>12}  step, in us\n", "predicted", isMeasured ? "measured" : "") +
         joined(times.steps, "", line) + line(times.call);
}

}  // namespace meshfuse
