// The planned program of a call: for a class of sizes, or for its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/pass_settings.h"
#include "exec/call_descriptor.h"
#include "exec/parsed_fusion.h"
#include "exec/shape_class.h"
#include "tensor/argument.h"

namespace meshfuse {

class DiskCache;

// A plan on which the ranks agree.
struct AgreedPlan {
  uint64_t identity = 0;       // a hash of the planned program: the same on all ranks
  bool communicates = false;   // some rank does
  bool redistributes = false;  // the program may communicate at other sizes, even if this plan does not
  std::shared_ptr<const PlanDescriptor> descriptor =
      {};  // only on several ranks, for a plan that communicates; exists while the plan may run
};

// Of a planned program, for ranks that have not read it.
struct PlanFacts {
  bool communicates = false;  // as AgreedPlan has them
  bool redistributes = false;
  int64_t exprs = 0;  // the number of ops
};

// The same on all ranks.
struct PlannedProgram {
  ParsedFusion planned;  // the global program, every edge aligned, local or a planned communication
  AgreedPlan agreed;
  ShapeClass sizes = {};             // for which the program holds; its values are those of the call that was planned
  bool acceptsBetween = false;       // of the class, see exec/shape_class.h
  std::vector<std::string> remarks;  // decisions of passes with reasons
  std::map<int64_t, std::string>
      reasons;  // by Val id in `planned`: the origin of a tensor's mesh axes, if the user placed none
  std::shared_ptr<const std::string> text = {};  // of the program on which the ranks agree, from which this one is made
  std::optional<PlanFacts> facts = {};           // of a stored plan
};

// Reads the program if it has no facts.
[[nodiscard]] PlanFacts factsOf(const PlannedProgram& program);

// Begins the reason why sizes are constants if a stage failed for their class by a bug.
inline constexpr std::string_view kInternalError = "an internal error:";

// A fusion and the sizes of a call.
struct SizedFusion {
  const Fusion& fusion;
  std::span<const std::vector<int64_t>> sizes;  // of inputs, as globalSizes() gives them
  const std::string& assumed;                   // its lines about assumed sizes
  std::string_view text = {};                   // of the fusion, if it has been printed; else empty
  // The fusion with these sizes; throws the errors that it has with them.
  [[nodiscard]] std::shared_ptr<Fusion> constant() const;
};

// The program for these sizes. They become constants if no plan holds for the class on all ranks, if some pass needs a size as a number or
// has an internal error for the class, or if its redistributions are not those of the fusion with the sizes of the call. Loaded from `disk`
// if it is there, else made and stored there; it is the same program. Null: no disk. UserError if the fusion breaks a rule of the IR, or is
// split by a symbol that no input has.
[[nodiscard]] std::shared_ptr<PlannedProgram> planProgram(const SizedFusion& sized, const ShapeClass& sizes,
                                                          const PassSettings& passes, DiskCache* disk);
// What a rank makes of a program for these arguments. It is a program for constant sizes with the same redistributions if a size that is a
// symbol belongs to an argument that is not row-major, or if stages of this rank are known not to hold for the class (`whyNotHere` says
// why; else it is empty). Otherwise it is the program itself. `values`: of the symbols of the program.
[[nodiscard]] PlannedProgram programFor(const PlannedProgram& program, const Fusion& fusion,
                                        std::span<const Argument> inputs, const SymbolValues& values,
                                        const std::string& whyNotHere);
// Runs the stages of a rank after planning. False if they do not hold for a class: `program` is then one for these values, with the
// redistributions of the class, and to be compiled again. Peers need not know. Errors for constant sizes are thrown.
[[nodiscard]] bool holdsForClass(PlannedProgram& program, const SymbolValues& values,
                                 const std::function<void()>& stages);
// What the ranks agree on for these values. `isConstant`: for a program for them alone.
[[nodiscard]] AgreedPlan agreedFor(const PlannedProgram& program, bool isConstant, const SymbolValues& values);
// A planned program of a class with these values in place of symbols.
[[nodiscard]] std::shared_ptr<const Fusion> plannedFor(const Fusion& planned, const SymbolValues& values);

}  // namespace meshfuse
