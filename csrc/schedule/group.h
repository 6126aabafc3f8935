// The input and the output of templates: a group of ops of a local fusion becomes one kernel or one library call.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "device/device_info.h"
#include "digits/int_expr.h"
#include "tile/tile.h"

namespace meshfuse {

class Expr;
class Fusion;
class TensorView;
class Val;

// A connected or horizontally compatible set of ops, in topological order. Tensors computed outside the group are
// inputs, tensors read outside it are outputs. All other tensors stay in registers unless the schedule stores them.
struct Group {
  const Fusion* fusion = nullptr;
  std::vector<Expr*> exprs;
  std::vector<TensorView*> inputs;
  std::vector<TensorView*> outputs;
  std::map<int64_t, Layout> layouts;  // by Val id, for all inputs and outputs; a missing one is contiguous
  // Outputs written into the memory of an input they are computed from: output Val id -> input Val id.
  std::map<int64_t, int64_t> aliases;
};

[[nodiscard]] std::vector<const Expr*> reductionsOf(const Group& group);
[[nodiscard]] std::vector<TensorView*> tensorsOf(const Group& group);  // inputs, then outputs

// How a kernel's arguments bind to the fusion.
struct KernelPlan {
  struct Workspace {
    DataType dtype;
    IntExpr elements;
    bool zeroed;
  };
  struct Slot {  // one for each tensor parameter except scratch, in order
    const TensorView* tensor = nullptr;
    int64_t workspace = -1;  // position in workspaces if tensor is null
  };
  tile::Program program;
  std::string text;  // of `program`, as writeSteps() of segment prints it; empty before
  std::vector<Slot> slots;
  std::vector<Workspace> workspaces;
  std::vector<IntExpr> sizes;  // values of Program::sizes over symbols of the fusion (coordinates, run-time integers)
  std::vector<const Val*> scalars;  // values of Program::scalars
  std::string_view kind;            // as Judgement::kind
};

// A call of a library, or of a routine of our own.
struct LibraryCall {
  const Expr* op = nullptr;
  std::map<int64_t, Layout> layouts;  // as Group::layouts
};

}  // namespace meshfuse
