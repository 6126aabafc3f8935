#include "exec/default_world.h"

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "ir/tensor_view.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

Tensor shardTensor(const Tensor& tensor, int64_t axis, const DeviceMesh& mesh) {
  return shardTensor(tensor, axis, mesh, defaultWorld().rank());
}

Tensor shardTensor(const Tensor& tensor, const TensorView* tv) {
  return shardTensor(tensor, tv, defaultWorld().rank());
}

Tensor unshardTensor(const Tensor& part, const TensorView* tv) {
  Communicator& world = defaultWorld();
  Tensor packed = part.contiguous();
  std::string_view bytes(static_cast<const char*>(packed.data()), static_cast<size_t>(packed.nbytes()));
  std::vector<std::string> all = world.exchange(bytes);
  std::vector<Tensor> parts;
  for (int64_t rank : tv->getDeviceMesh().devices()) {
    const std::string& text = all[static_cast<size_t>(rank)];
    check(text.size() == bytes.size(), "[unshardTensor] rank {} has {} bytes of {}, this rank {}", rank, text.size(),
          tv->toString(), bytes.size());
    parts.push_back(Tensor::empty({part.sizes().begin(), part.sizes().end()}, part.dtype()));
    std::memcpy(parts.back().data(), text.data(), text.size());
  }
  return unshardTensor(parts, tv);
}

}  // namespace meshfuse
