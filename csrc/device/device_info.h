// The facts about a device that schedules depend on, and the layouts of its tensors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tile/tile.h"

namespace meshfuse {

class Expr;
class TensorView;

// Where a tensor's elements lie: strides in elements of the stored shape, and a power of two (bytes, at most 64) that divides
// the base address.
struct Layout {
  std::vector<int64_t> strides;
  int64_t alignment = 64;
};
// Of a tensor of constant sizes; `layouts`, by Val id, has those of tensors that are not row-major.
[[nodiscard]] Layout layoutOf(const TensorView* tensor, const std::map<int64_t, Layout>& layouts);

struct DeviceInfo {
  tile::Target target = tile::Target::Cpu;
  int64_t l1Bytes = 32 << 10;  // CPU
  int64_t l2Bytes = 1 << 20;   // CPU
  int64_t lastCacheBytes = 32 << 20;
  std::string architecture;  // GPU: "sm_90a"
  std::string library;       // of matrix products: "cuBLASLt 130002"; empty: kernels compute them
  // Returns the reason why the library of the device does not accept a matmul or linear with operands in these layouts, by Val id;
  // nothing if it accepts it. Null: there is no library.
  std::optional<std::string> (*refuseContraction)(const Expr&, const std::map<int64_t, Layout>&) = nullptr;
  static DeviceInfo hopper();
};

}  // namespace meshfuse
