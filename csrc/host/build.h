// Builds a HostProgram from segments with written kernels: compiles the kernels, plans the memory, binds the symbols of this rank.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host/happens_before.h"
#include "host/program.h"
#include "segment/segment.h"

namespace meshfuse {

struct BuildOptions {
  std::shared_ptr<Device> device;     // of the program: compiles the kernels and makes the routines
  std::map<int64_t, Layout> layouts;  // by Val id: of inputs, views, and results that are not row-major
  int64_t rank = 0;
  int64_t ranks = 1;                                        // of the world
  std::map<std::string, int64_t, std::less<>> coordinates;  // of this rank, by symbol: coord.x
  uint64_t identity = 0;                                    // of the plan; the same on all ranks
  bool communicates = false;                                // some rank of the plan does
  Overlap overlap;                                          // the same on all ranks
};

// The kind of the step of a segment; nothing for a view, which needs no step.
[[nodiscard]] std::optional<HostStepKind> stepKindOf(SegmentKind kind);

// `fusion`: the local fusion of the segments; the program keeps it alive.
[[nodiscard]] std::shared_ptr<const HostProgram> buildHostProgram(std::shared_ptr<const Fusion> fusion,
                                                                  std::span<const Segment> segments,
                                                                  const BuildOptions& options);

}  // namespace meshfuse
