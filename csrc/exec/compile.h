// compile: the order of everything, from a user's fusion to a host program.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "analysis/pass_settings.h"
#include "host/program.h"
#include "segment/segment.h"
#include "tensor/argument.h"

namespace meshfuse {

class Communicator;
class Fusion;
struct PlanAccount;

// Whether the ranks meet to compare their plans.
struct Meeting {
  int64_t call = 0;      // number of the call that compiles: part of what the ranks agree on
  bool agreed = false;   // the ranks agreed on arguments of these types and sizes before
  bool expected = true;  // the peers come to meet this rank: false for programs of which no plan has communicated yet
  size_t maxPlans = 0;   // that are kept: the ranks forget, and so meet, alike
  std::string libraryVersion = {};  // of this rank; "": that of this build
};

struct CompileOptions {
  int threads = 1;
  Meeting meeting = {};
  PassSettings passes = {};
  // Compiles all kernels of a program; default: the compiler that the process shares.
  std::function<std::vector<std::shared_ptr<const CpuKernel>>(std::span<const tile::Program>)> compile = {};
};

// A fusion as the steps of one rank: all that does not depend on which rank it is.
struct SegmentedProgram {
  std::shared_ptr<const Fusion> planned;  // the global program, every edge aligned, local or a planned communication
  std::shared_ptr<const Fusion> local;    // the program of a rank
  std::vector<Segment> segments;          // of `local`
  std::map<int, Layout> layouts;          // by Val id in `local`: of inputs, views, and results that are not row-major
  bool communicates = false;              // some rank does
  uint64_t identity = 0;                  // of all that ranks which run together have alike
  std::shared_ptr<const PlanAccount> account;  // of such a plan, on several ranks: lives as long as it may run
  std::vector<std::string> remarks;            // what passes decided and why
  std::map<int, std::string>
      reasons;  // by Val id in `planned`: where the axes of a tensor that the user did not place come from
};

struct CompiledProgram {
  SegmentedProgram program;
  std::shared_ptr<const HostProgram> host;
};

// The steps for arguments like `inputs` on `device`; matmul and linear are library calls only on a CPU. Collective and with
// errors as compile().
[[nodiscard]] SegmentedProgram compileToSegments(const Fusion& fusion, std::span<const Argument> inputs,
                                                 Communicator& communicator, const DeviceInfo& device,
                                                 const Meeting& meeting = {}, const PassSettings& passes = {});

// A program for arguments like `inputs` on this rank of `communicator`. Collective: every rank compiles the same call. UserError
// for arguments that do not fit, or naming ranks and the first differing line if the ranks' plans, devices or libraries differ.
[[nodiscard]] CompiledProgram compile(const Fusion& fusion, std::span<const Argument> inputs,
                                      Communicator& communicator, const CompileOptions& options);

}  // namespace meshfuse
