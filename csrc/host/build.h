// Builds a HostProgram from segments with written kernels: compiles the kernels, plans the memory, binds the symbols of this rank.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/program.h"
#include "segment/segment.h"

namespace meshfuse {

class ThreadPool;

struct BuildOptions {
  std::map<int64_t, Layout> layouts;  // by Val id: of inputs, views, and results that are not row-major
  int64_t rank = 0;
  std::map<std::string, int64_t, std::less<>> coordinates;  // of this rank, by symbol: coord.x
  int64_t workers = 1;
  uint64_t identity = 0;      // of the plan; the same on all ranks
  bool communicates = false;  // some rank of the plan does
  // Compiles tile programs, all at once.
  std::function<std::vector<std::shared_ptr<const CpuKernel>>(std::span<const tile::Program>)> compile;
};

// `fusion`: the local fusion of the segments; the program keeps it alive.
[[nodiscard]] std::shared_ptr<const HostProgram> buildHostProgram(std::shared_ptr<const Fusion> fusion,
                                                                  std::span<const Segment> segments,
                                                                  const BuildOptions& options);

}  // namespace meshfuse
