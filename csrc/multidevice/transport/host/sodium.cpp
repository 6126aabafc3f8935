#include <sodium.h>

#include "base/error.h"
#include "multidevice/transport/host/secret.h"

namespace meshfuse {

namespace {

static_assert(crypto_auth_KEYBYTES == std::tuple_size_v<Key> && crypto_auth_BYTES == std::tuple_size_v<Proof>);

void startSodium() { deviceCheck(sodium_init() >= 0, "[host] libsodium does not start: it finds no random bytes"); }

const unsigned char* bytesOf(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

Key keyOfSecret(std::string_view secret) {
  startSodium();
  Key key{};
  crypto_generichash(key.data(), key.size(), bytesOf(secret), secret.size(), nullptr, 0);
  return key;
}

Proof proofOf(const Key& key, std::string_view message) {
  startSodium();
  Proof proof{};
  crypto_auth(proof.data(), bytesOf(message), message.size(), key.data());
  return proof;
}

bool isProof(const Key& key, std::string_view message, const Proof& proof) {
  startSodium();
  return crypto_auth_verify(proof.data(), bytesOf(message), message.size(), key.data()) == 0;
}

}  // namespace meshfuse
