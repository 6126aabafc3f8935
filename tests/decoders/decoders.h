// All decoders of bytes from outside, by name.
#pragma once

#include <span>
#include <string_view>

namespace meshfuse {

struct Decoder {
  std::string_view name;
  // Returns if the bytes are accepted, or refused by a UserError or a DeviceError. Any other exception, and any assertion, is a finding.
  void (*read)(std::string_view bytes);
};

[[nodiscard]] std::span<const Decoder> decoders();

// Each in the file of its name.
void readFir(std::string_view bytes);
void readNpy(std::string_view bytes);
void readSafetensors(std::string_view bytes);
void readCacheEntry(std::string_view bytes);
void readFlight(std::string_view bytes);
void readHello(std::string_view bytes);
void readHandshake(std::string_view bytes);  // a side of readHello
void readWatch(std::string_view bytes);
void readSettings(std::string_view bytes);
void readCommand(std::string_view bytes);
void readCall(std::string_view bytes);
void readProgram(std::string_view bytes);

// Ends the process with the text, so that a fuzzer keeps the input.
void require(bool holds, std::string_view text);

}  // namespace meshfuse
