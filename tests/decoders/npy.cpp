#include "tensor/npy.h"

#include "base/error.h"
#include "decoders/decoders.h"

namespace meshfuse {

void readNpy(std::string_view bytes) {
  try {
    const Tensor tensor = parseNpy(bytes);
    const std::string written = npyBytes(tensor);
    require(npyBytes(parseNpy(written)) == written, "the array, written and read again, differs");
  } catch (const UserError&) {
  }
}

}  // namespace meshfuse
