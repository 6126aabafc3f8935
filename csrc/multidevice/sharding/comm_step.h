// CommStep: one step of a redistribution plan, with the state before and after it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/mesh/device_mesh.h"
#include "multidevice/sharding/plan_state.h"

namespace meshfuse {

struct TileTransfer;

// In order of preference where costs are equal. A kind with V counts differently for every pair of ranks.
enum class StepKind : uint8_t {
  Slice,           // a rank drops what it no longer owns
  ToPartial,       // a rank keeps its contribution to a sum, or holds zeros
  Permute,         // every rank receives the whole of one other
  PermutePartial,  // the same, with ranks that hold contributions to a sum
  AllToAll,
  AllToAllV,
  AllGather,
  AllGatherV,
  ReduceScatter,
  ReduceScatterV,
  AllReduce,
  Transfer,         // every rank fetches the pieces it lacks from those that hold them, between two meshes too
  TransferPartial,  // the same, of contributions to a sum, which the receiver adds up
};
[[nodiscard]] std::string_view name(StepKind kind);  // without the V

// The kinds of steps that an executor has.
class StepSet {
 public:
  constexpr StepSet() = default;
  constexpr StepSet(std::initializer_list<StepKind> kinds) {
    for (StepKind k : kinds) {
      bits_ |= bit(k);
    }
  }
  static constexpr StepSet all() { return StepSet(0xffffffff); }
  constexpr bool has(StepKind kind) const { return (bits_ & bit(kind)) != 0; }
  constexpr StepSet without(StepKind kind) const { return StepSet(bits_ & ~bit(kind)); }
  constexpr StepSet with(StepKind kind) const { return StepSet(bits_ | bit(kind)); }
  constexpr uint32_t bits() const { return bits_; }

 private:
  explicit constexpr StepSet(uint32_t bits) : bits_(bits) {}
  static constexpr uint32_t bit(StepKind kind) { return uint32_t{1} << static_cast<int>(kind); }
  uint32_t bits_ = 0;
};

struct CommStep {
  StepKind kind = StepKind::Slice;
  DeviceMesh mesh;                  // the mesh whose axes are the atoms of both states
  DeviceMesh tensorMesh;            // the mesh that `mesh` refines
  std::vector<AtomOrigin> origins;  // of the atoms in it
  std::vector<int> axes;            // the team, ascending
  PlanState before;
  PlanState after;
  int64_t elements = 0;          // received by the busiest rank
  std::vector<int64_t> sources;  // Permute: for each device of the mesh (row-major) the position it receives from
  // Transfer: who sends what; its states are before and after, on its own two meshes. Null for all other kinds.
  std::shared_ptr<const TileTransfer> transfer;

  bool communicates() const { return kind != StepKind::Slice && kind != StepKind::ToPartial; }
  std::string toString() const;  // all_gather(x)
};

}  // namespace meshfuse
