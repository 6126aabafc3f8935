// The facts about a device that schedules depend on, and the layouts of its tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "digits/int_expr.h"
#include "multidevice/mesh/collective.h"
#include "tensor/dtype.h"
#include "tensor/reduce_op.h"
#include "tile/tile.h"

namespace meshfuse {

class Expr;
class TensorView;

// Where a tensor's elements lie: strides in elements of the stored shape, over the symbols of its sizes, and a power of two (bytes, at
// most 64) that divides the base address.
struct Layout {
  std::vector<IntExpr> strides;
  int64_t alignment = 64;
};
// `layouts`, by Val id, has those of tensors that are not row-major.
[[nodiscard]] Layout layoutOf(const TensorView* tensor, const std::map<int64_t, Layout>& layouts);
// InternalError unless they are constants.
[[nodiscard]] std::vector<int64_t> constantStrides(const TensorView* tensor, const std::map<int64_t, Layout>& layouts);
// As IntExpr::substitute.
[[nodiscard]] std::map<int64_t, Layout> substitute(
    std::map<int64_t, Layout> layouts, const std::function<std::optional<IntExpr>(std::string_view)>& replacement);

// What schedules of kernels depend on in a GPU. A multiprocessor runs blocks of threads; the numbers are those of an H100.
struct GpuFacts {
  int64_t processors = 132;                 // multiprocessors
  int64_t threads = 2048;                   // of a multiprocessor, at a time
  int64_t registers = 65536;                // of a multiprocessor, of 4 bytes
  int64_t sharedBytes = 228 << 10;          // shared memory of a multiprocessor
  int64_t sharedBytesOfBlock = 227 << 10;   // the most that a kernel can ask for
  int64_t accessBytes = 16;                 // the widest access of a thread to memory
  int64_t bytesPerMicrosecond = 3'352'000;  // of memory at its peak; 0: unknown
  friend bool operator==(const GpuFacts&, const GpuFacts&) = default;
};

// A collective, as far as it decides whether a library carries it out.
struct CollectiveOfElements {
  Collective kind = Collective::AllReduce;
  DataType type = DataType::Float;
  ReduceOp op = ReduceOp::Sum;  // of a kind that reduces
};

struct DeviceInfo {
  tile::Target target = tile::Target::Cpu;
  int64_t l1Bytes = 32 << 10;   // CPU
  int64_t l2Bytes = 1 << 20;    // CPU
  int64_t followedStreams = 0;  // CPU: rows read side by side that it prefetches by itself; 0: unknown
  int64_t lastCacheBytes = 32 << 20;
  std::string architecture;        // GPU: "sm_90a"
  GpuFacts gpu;                    // GPU
  std::string library;             // of matrix products: "cuBLASLt 130002"; empty: kernels compute them
  int64_t mostWorkspaceBytes = 0;  // GPU: the most that a matrix product of the library may get
  // The workspace that a product needs can be asked for. False for a GPU known only by its architecture: each product is then planned with
  // mostWorkspaceBytes.
  bool knowsWorkspaces = true;
  // Returns the reason why the library of the device does not accept a matmul or linear with operands in these layouts, by Val id;
  // nothing if it accepts it. Null: there is no library.
  std::optional<std::string> (*refuseContraction)(const Expr&, const std::map<int64_t, Layout>&) = nullptr;

  // Returns the reason why a collective cannot be recorded with the work of the queues; nothing if it can. Null: none can.
  std::optional<std::string> (*refuseCollective)(const CollectiveOfElements&) = nullptr;

  // Bytes of the arena that a reduction of `ranks` ranks takes beside its operand and its result, if kernels combine the operands because
  // the library cannot; `elements`: of an all-reduce all, of a reduce-scatter those of the largest block. The same on all ranks. Null: none
  // takes any.
  int64_t (*combinedBytes)(const CollectiveOfElements&, int64_t elements, int64_t ranks) = nullptr;

  // A GPU by the name of its architecture, sm_80 or later: the largest GPU of that architecture. An architecture without a row of its own
  // has the facts of the row before it. Nothing if the name has another form. There is no library.
  static std::optional<DeviceInfo> ofArchitecture(std::string_view architecture);
  static DeviceInfo hopper();  // sm_90a

  // "sm_90a: 132 multiprocessors, each with ...", for explain; empty for a CPU.
  std::string describe() const;
};

// 90 of sm_90 and sm_90a; nothing if the name is not sm_, digits, and at most one letter.
[[nodiscard]] std::optional<int> architectureNumber(std::string_view architecture);
// The numbers of the architectures that have a row: 80, ...
[[nodiscard]] std::vector<int> knownArchitectures();

}  // namespace meshfuse
