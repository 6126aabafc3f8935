#include "base/error.h"
#include "decoders/decoders.h"
#include "ir/fusion.h"
#include "ir/text.h"

namespace meshfuse {

void readFir(std::string_view bytes) {
  std::string once;
  try {
    const std::unique_ptr<Fusion> fusion = parseFusion(bytes);
    static_cast<void>(verify(*fusion));
    once = fusion->toString();
  } catch (const UserError&) {
    return;
  }
  const std::string twice = parseFusion(once)->toString();  // refusing its own text is a finding
  require(once == twice, "the printed text, read and printed again, differs");
}

}  // namespace meshfuse
