// compile: from a user's fusion to a host program.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "analysis/pass_settings.h"
#include "exec/agreement.h"
#include "exec/planned_program.h"
#include "host/happens_before.h"
#include "segment/segment.h"
#include "tensor/argument.h"

namespace meshfuse {

class Device;
struct HostProgram;

// What the host program and the results of a rank take from the planned program.
struct RankFacts {
  std::map<std::string, int64_t, std::less<>> coordinates;  // of the rank, by symbol
  Overlap overlap;                                          // the same on all ranks
  std::vector<std::vector<int64_t>> unevenGlobalShapes =
      {};  // by output: the global shape, if a shard does not determine it; else empty
};

// A fusion as the steps of one rank. The planned program is for constant sizes if the layouts of this rank's arguments, or its
// stages, do not hold for a class.
struct SegmentedProgram : PlannedProgram {
  std::shared_ptr<const PlannedProgram> agreedOn;  // on which the ranks have agreed
  std::string
      whyNotHere;  // why the stages of this rank do not hold for the class of `agreedOn`, if they were tried and do not
  std::vector<std::vector<int64_t>> globalSizes;  // of the arguments
  RankFacts ofRank;
  std::shared_ptr<const Fusion> local;  // the program of a rank
  std::vector<Segment> segments;        // of `local`
  std::map<int64_t, Layout> layouts;    // by Val id in `local`: of inputs, views, and results that are not row-major
};

struct CompiledProgram {
  SegmentedProgram program;
  std::shared_ptr<const HostProgram> host;
};

// The steps for arguments like `inputs` on `device`; matmul and linear are library calls only if it has a library. `choice.sizes`: the
// sizes of the arguments; without symbols the program is for these sizes alone. `choice.program`: the program on which the ranks have
// agreed, or are about to agree; if it is null, the program is planned, together with all ranks. `finish`: the stages of this rank that
// follow. If its stages do not hold for a class, this rank alone makes a program for constant sizes, with the redistributions of the class.
// Throws the errors of compile().
[[nodiscard]] SegmentedProgram compileToSegments(
    const Fusion& fusion, std::span<const Argument> inputs, const Agreement::Call& call, const DeviceInfo& device,
    const PassSettings& passes = {}, const ProgramChoice& choice = {},
    const std::function<void(const SegmentedProgram&)>& finish = [](const SegmentedProgram&) {});

// A program of `device` for arguments like `inputs` on this rank; compiling reads their sizes and layouts, and elements that are sizes.
// Collective unless the ranks have agreed on the shapes: every rank compiles in the same call. If it is of a class,
// Agreement::Call::agreeOnSizes() must follow.
// UserError for arguments that do not fit, or naming ranks and the first differing line if the ranks' plans, devices or libraries differ.
[[nodiscard]] CompiledProgram compile(const Fusion& fusion, std::span<const Argument> inputs,
                                      const Agreement::Call& call, const std::shared_ptr<Device>& device,
                                      const PassSettings& passes = {}, const ProgramChoice& choice = {});

}  // namespace meshfuse
