// Which bytes the steps of a host program read and write.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "host/program.h"

namespace meshfuse {

struct Access {
  std::tuple<Place, int64_t> memory;  // the arena, or an input or output with its number
  int64_t begin = 0;                  // bytes
  int64_t end = 0;
  int64_t step = 0;
  bool writes = false;
  int64_t val = -1;  // the tensor's; -1 for a workspace
};

// By all steps, sorted by memory, begin and step.
[[nodiscard]] std::vector<Access> accesses(const HostProgram& program, const ProgramSizes& sizes);

// Whether the memory of a tensor has its elements once the steps before `end` have run: they have computed it, and none has written over it.
[[nodiscard]] bool isIntact(const HostProgram& program, const ProgramSizes& sizes, int64_t tensor, int64_t end);

}  // namespace meshfuse
