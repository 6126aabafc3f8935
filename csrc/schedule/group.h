// The input and the output of templates: a group of ops of a local fusion becomes one kernel or one library call.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "digits/int_expr.h"
#include "tile/tile.h"

namespace meshfuse {

class Expr;
class Fusion;
class TensorView;
class Val;

// Where a tensor's elements lie: strides in elements of the stored shape, and a power of two (bytes, at most 64) that divides
// the base address.
struct Layout {
  std::vector<int64_t> strides;
  int64_t alignment = 64;
};
// Of a tensor of constant sizes; `layouts`, by Val id, has those of tensors that are not row-major.
[[nodiscard]] Layout layoutOf(const TensorView* tensor, const std::map<int64_t, Layout>& layouts);

// The facts about a device that schedules depend on.
struct DeviceInfo {
  tile::Target target = tile::Target::Cpu;
  int64_t l1Bytes = 32 << 10;  // CPU
  int64_t l2Bytes = 1 << 20;   // CPU
  int64_t lastCacheBytes = 32 << 20;
  std::string architecture;  // GPU: "sm_90a"
  // Returns the reason why the library of the device does not accept a matmul or linear with operands in these layouts, by Val id;
  // nothing if it accepts it. Null: there is no library.
  std::optional<std::string> (*refuseContraction)(const Expr&, const std::map<int64_t, Layout>&) = nullptr;
  static DeviceInfo hopper();
};

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
