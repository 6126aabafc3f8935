#include "tensor/npy.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "decoders/decoders.h"

namespace meshfuse {

// The bytes as an array in memory, and as a file.
void readNpy(std::string_view bytes) {
  const int memory = memfd_create("array", MFD_CLOEXEC);
  require(write(memory, bytes.data(), bytes.size()) == std::ssize(bytes), "no memory for the file");
  std::string written;
  try {
    written = npyBytes(parseNpy(bytes));
    require(npyBytes(parseNpy(written)) == written, "the array, written and read again, differs");
  } catch (const UserError&) {
  }
  try {
    require(npyBytes(readNpy("/proc/self/fd/" + std::to_string(memory))) == written,
            "the array is another one in a file");
  } catch (const UserError&) {
    require(written.empty(), "the array is refused in a file only");
  }
  close(memory);
}

}  // namespace meshfuse
