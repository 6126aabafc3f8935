#include "base/error.h"
#include "multidevice/transport/host/secret.h"

namespace meshfuse {

namespace {

[[noreturn]] void refuseWithoutSodium() {
  throwDeviceError(
      "[host] ranks on several hosts need libsodium, which this build does not have; build with libsodium-dev");
}

}  // namespace

Key keyOfSecret(std::string_view) { refuseWithoutSodium(); }
Proof proofOf(const Key&, std::string_view) { refuseWithoutSodium(); }
bool isProof(const Key&, std::string_view, const Proof&) { refuseWithoutSodium(); }

}  // namespace meshfuse
