// What a fusion becomes on one rank, and what its kernels read and write as the tile interpreter counts it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/fusion.h"
#include "tensor/argument.h"

namespace meshfuse {

// The shape that most programs are measured with, in Float.
inline constexpr int64_t kRows = 24;
inline constexpr int64_t kColumns = 80;
inline constexpr int64_t kBytes = kRows * kColumns * 4;

using Steps = std::vector<std::string>;

struct ProgramTraffic {
  Steps steps;                          // "normalization", "linear", "copy", ...
  std::vector<std::string> boundaries;  // why kernels are no larger, where they say so
  std::vector<std::string> joins;       // which kernels were joined beside each other, and why
  int64_t readBytes = 0;                // distinct elements, summed over kernels
  int64_t writtenBytes = 0;
  int64_t arenaBytes = 0;
};

[[nodiscard]] ProgramTraffic measure(const std::function<void(Fusion&)>& build, const std::vector<Argument>& inputs);

}  // namespace meshfuse
