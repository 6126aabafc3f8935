#include "exec/default_world.h"

#include <algorithm>
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

Tensor unshardTensor(const Tensor& shard, const TensorView* tv) {
  Communicator& world = defaultWorld();
  const Tensor packed = shard.to(DeviceId::cpu()).contiguous();
  // sizes come first: shards may be uneven
  std::string message(reinterpret_cast<const char*>(packed.sizes().data()), packed.sizes().size_bytes());
  message.append(static_cast<const char*>(packed.data()), packed.nbytes());
  std::vector<std::string> all = world.exchange(message);
  std::vector<Tensor> shards;
  for (int64_t rank : tv->getDeviceMesh().devices()) {
    const std::string& text = all[rank];
    std::vector<int64_t> sizes(tv->shape().size());
    const size_t head = sizes.size() * sizeof(int64_t);
    check(text.size() >= head,
          "[unshardTensor] rank {} sent {} bytes of {}, expected its sizes; pass the shard of one tensor on every rank",
          rank, text.size(), tv->toString());
    std::copy_n(text.data(), head, reinterpret_cast<char*>(sizes.data()));
    shards.push_back(Tensor::empty(std::move(sizes), shard.dtype(), DeviceId::cpu()));
    check(text.size() - head == static_cast<size_t>(shards.back().nbytes()),
          "[unshardTensor] rank {} sent {} bytes of {}, expected {}; pass the shard of one tensor on every rank", rank,
          text.size() - head, tv->toString(), shards.back().nbytes());
    std::copy_n(text.data() + head, text.size() - head, static_cast<char*>(shards.back().data()));
  }
  return unshardTensor(shards, tv).to(shard.device());
}

}  // namespace meshfuse
