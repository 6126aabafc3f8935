#include "multidevice/device_of_rank.h"

#include <cstdlib>
#include <string_view>

#include "exec/local_device.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

namespace {

std::string_view nameOfDevice() {
  const char* const name = std::getenv("MESHFUSE_TEST_DEVICE");
  return name == nullptr ? "cpu" : name;
}

}  // namespace

bool ranksHaveGpus() { return nameOfDevice() != "cpu"; }

DeviceId deviceOfRank(Communicator& comm) { return localDevice(nameOfDevice(), comm); }

std::vector<Argument> shardsOfRank(const Fusion& fusion, const std::vector<Argument>& whole, Communicator& comm) {
  const DeviceId device = deviceOfRank(comm);
  std::vector<Argument> local = whole;
  for (size_t i = 0; i < local.size(); i++) {
    if (const auto* t = std::get_if<Tensor>(&whole[i]); t != nullptr) {
      local[i] = shardTensor(*t, fusion.inputs()[i]->asTensor(), comm.rank()).to(device);
    }
  }
  return local;
}

}  // namespace meshfuse
