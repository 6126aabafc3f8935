#include "device/device_info.h"

#include "ir/tensor_view.h"
#include "tensor/tensor.h"

namespace meshfuse {

Layout layoutOf(const TensorView* tensor, const std::map<int64_t, Layout>& layouts) {
  const auto known = layouts.find(tensor->id());
  return known != layouts.end() ? known->second : Layout{contiguousStrides(tensor->constantShape())};
}

DeviceInfo DeviceInfo::hopper() {
  return {.target = tile::Target::Gpu, .lastCacheBytes = 50 << 20, .architecture = "sm_90a"};
}

}  // namespace meshfuse
