// compile: from a user's fusion to a host program.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "analysis/pass_settings.h"
#include "exec/agreement.h"
#include "exec/shape_class.h"
#include "segment/segment.h"
#include "tensor/argument.h"

namespace meshfuse {

class Device;
struct HostProgram;

// A fusion as the steps of one rank.
struct SegmentedProgram {
  std::shared_ptr<const Fusion> planned;  // the global program, every edge aligned, local or a planned communication
  std::shared_ptr<const Fusion> local;    // the program of a rank
  std::vector<Segment> segments;          // of `local`
  std::map<int64_t, Layout> layouts;      // by Val id in `local`: of inputs, views, and results that are not row-major
  AgreedPlan agreed;
  std::vector<std::string> remarks;  // decisions of passes with reasons
  std::map<int64_t, std::string>
      reasons;                  // by Val id in `planned`: the origin of a tensor's mesh axes, if the user placed none
  ShapeClass sizes = {};        // for which the program holds
  bool acceptsBetween = false;  // of the class, see exec/shape_class.h
};

struct CompiledProgram {
  SegmentedProgram program;
  std::shared_ptr<const HostProgram> host;
};

// The steps for arguments like `inputs` on `device`; matmul and linear are library calls only if it has a library. `sizes`: of the arguments;
// without symbols, the program holds for their sizes alone. Collective; throws the errors of compile().
[[nodiscard]] SegmentedProgram compileToSegments(const Fusion& fusion, std::span<const Argument> inputs,
                                                 const Agreement::Call& call, const DeviceInfo& device,
                                                 const PassSettings& passes = {}, const ShapeClass& sizes = {});

// A program of `device` for arguments like `inputs` on this rank; compiling reads their sizes and layouts, and elements that are sizes.
// Collective: every rank compiles in the same call. UserError for arguments that do not fit, or naming ranks and the first differing line if the ranks' plans, devices or libraries differ.
[[nodiscard]] CompiledProgram compile(const Fusion& fusion, std::span<const Argument> inputs,
                                      const Agreement::Call& call, const std::shared_ptr<Device>& device,
                                      const PassSettings& passes = {}, const ShapeClass& sizes = {});

}  // namespace meshfuse
