#include <cstdlib>
#include <string>

#include "base/hash.h"
#include "decoders/decoders.h"
#include "fuzz/checks.h"
#include "fuzz/program.h"

namespace meshfuse {

void readProgram(std::string_view bytes) {
  static const bool isPrepared = setenv("MESHFUSE_CACHE_DIR", "off", 1) == 0;
  require(isPrepared, "no environment");
  const fuzz::Program program = fuzz::randomProgram(hash64(bytes), bytes);
  if (const std::optional<fuzz::Failure> failure = fuzz::checkProgram(program, false)) {
    require(false, failure->stage + ": " + failure->message + "\n" + program.fusion->toString());
  }
}

}  // namespace meshfuse
