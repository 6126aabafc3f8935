// libFuzzer's side: it calls the decoder that MESHFUSE_DECODER names.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "decoders/decoders.h"

namespace {

const meshfuse::Decoder& chosenDecoder() {
  const char* name = std::getenv("MESHFUSE_DECODER");
  for (const meshfuse::Decoder& decoder : meshfuse::decoders()) {
    if (name != nullptr && decoder.name == name) {
      return decoder;
    }
  }
  std::fprintf(stderr, "set MESHFUSE_DECODER to the name of a decoder\n");
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const meshfuse::Decoder& decoder = chosenDecoder();
  decoder.read({reinterpret_cast<const char*>(data), size});
  return 0;
}
