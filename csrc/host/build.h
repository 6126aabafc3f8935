// Builds a HostProgram: segments in order, kernels compiled, memory planned, symbols of this rank bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/program.h"
#include "segment/segment.h"

namespace meshfuse {

class ThreadPool;

struct BuildOptions {
  std::map<int, Layout> inputLayouts;  // by Val id
  int rank = 0;
  int workers = 1;
  // Compiles tile programs, all at once.
  std::function<std::vector<std::shared_ptr<const CpuKernel>>(std::span<const tile::Program>)> compile;
};

// `fusion`: the local fusion the segments are of; kept alive by the program.
[[nodiscard]] std::shared_ptr<const HostProgram> buildHostProgram(std::shared_ptr<const Fusion> fusion, std::vector<Segment> segments,
                                                                  const DeviceInfo& device, const BuildOptions& options);

// Value of a symbol of the local fusion on a rank, if it is a coordinate: `coord.<axis>`.
[[nodiscard]] std::optional<int64_t> coordinateValue(const Fusion& fusion, std::string_view symbol, int rank);

}  // namespace meshfuse
