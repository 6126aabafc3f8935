// Bytes that nobody can guess.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace meshfuse {

using RandomBytes = std::array<uint8_t, 32>;

// DeviceError if the system has none.
[[nodiscard]] RandomBytes randomBytes();
[[nodiscard]] std::string hexadecimal(const RandomBytes& bytes);

}  // namespace meshfuse
