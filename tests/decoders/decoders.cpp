#include "decoders/decoders.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace meshfuse {

std::span<const Decoder> decoders() {
  static constexpr Decoder kDecoders[] = {
      {"fir", readFir},         {"npy", readNpy},     {"cache", readCacheEntry},       {"flight", readFlight},
      {"hello", readHello},     {"watch", readWatch}, {"settings", readSettings},      {"program", readProgram},
      {"command", readCommand}, {"call", readCall},   {"safetensors", readSafetensors}};
  return kDecoders;
}

void require(bool holds, std::string_view text) {
  if (!holds) {
    std::fprintf(stderr, "%s\n", std::string(text).c_str());
    std::abort();
  }
}

}  // namespace meshfuse
