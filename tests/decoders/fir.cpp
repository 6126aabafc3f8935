#include "base/error.h"
#include "decoders/decoders.h"
#include "ir/fusion.h"
#include "ir/read_program.h"
#include "ir/text.h"

namespace meshfuse {

// The bytes as a program of a user, which is verified; and as one of a pass, which may be in any state.
void readFir(std::string_view bytes) {
  try {
    static_cast<void>(readProgram(bytes, "bytes"));
  } catch (const UserError&) {
  }
  std::string once;
  try {
    once = parseFusion(bytes)->toString();
  } catch (const UserError&) {
    return;
  }
  const std::string twice = parseFusion(once)->toString();  // refusing its own text is a finding
  require(once == twice, "the printed text, read and printed again, differs");
}

}  // namespace meshfuse
