#include "base/error.h"
#include "multidevice/transport/host/network_link.h"

namespace meshfuse {

std::unique_ptr<NetworkLink> openUcxLink() {
  throwDeviceError(
      "[network] ranks on several hosts need UCX, and this build has none; build with libucx-dev, or start all ranks "
      "on one host");
}

}  // namespace meshfuse
