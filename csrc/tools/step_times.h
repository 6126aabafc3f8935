// The times of a program's steps, predicted for a description of machines, and measured on virtual ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "autoplan/machine.h"
#include "tensor/argument.h"

namespace meshfuse {

class Fusion;
struct HostProgram;

// Seconds.
struct PredictedTime {
  std::string name;
  double predicted = 0;
  std::optional<double> measured;
};

struct StepTimes {
  std::vector<PredictedTime> steps;  // of rank 0
  PredictedTime call;  // the sum of the predictions; measured with the checks of arguments, on the slowest rank
};

[[nodiscard]] StepTimes predictTimes(const HostProgram& program, const DistributedConfig& machines);
// With the measured times of calls with these global inputs.
[[nodiscard]] StepTimes measureTimes(const Fusion& fusion, std::span<const Argument> inputs, int64_t ranks,
                                     const DistributedConfig& machines);

[[nodiscard]] std::string timesText(const StepTimes& times);

}  // namespace meshfuse
