// The secret of a job, which only its ranks know, and proofs of who knows it. The algorithms are those of libsodium.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "multidevice/transport/host/random_bytes.h"

namespace meshfuse {

using Key = RandomBytes;
using Proof = std::array<uint8_t, 32>;

// The key from MESHFUSE_SECRET, or from the file that MESHFUSE_SECRET_FILE names; nothing if neither is set. UserError for a short secret,
// and for a file that others may read.
[[nodiscard]] std::optional<Key> keyOfEnvironment();

// The three need libsodium: DeviceError in a build without it.
[[nodiscard]] Key keyOfSecret(std::string_view secret);  // BLAKE2b
// Nobody without the key can make the proof of a message (HMAC-SHA-512, 256 bits).
[[nodiscard]] Proof proofOf(const Key& key, std::string_view message);
[[nodiscard]] bool isProof(const Key& key, std::string_view message, const Proof& proof);

}  // namespace meshfuse
