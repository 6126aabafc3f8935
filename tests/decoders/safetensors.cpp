#include "tensor/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "decoders/decoders.h"

namespace meshfuse {

namespace {

// The tensors of the types of meshfuse. All their bytes are read.
std::vector<std::pair<std::string, Tensor>> tensorsOf(const SafetensorsFile& file) {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const std::string& name : file.names()) {
    try {
      all.emplace_back(name, file.get(name).clone());
    } catch (const UserError&) {
    }
  }
  return all;
}

}  // namespace

// The bytes as a file, and what it holds written and read again.
void readSafetensors(std::string_view bytes) {
  const int memory = memfd_create("tensors", MFD_CLOEXEC);
  require(write(memory, bytes.data(), bytes.size()) == std::ssize(bytes), "no memory for the file");
  try {
    const SafetensorsFile file("/proc/self/fd/" + std::to_string(memory));
    const auto tensors = tensorsOf(file);
    const std::string copy =
        (std::filesystem::temp_directory_path() / ("safetensors_" + std::to_string(getpid()))).string();
    writeSafetensors(copy, tensors, file.metadata());
    const SafetensorsFile again(copy);
    std::filesystem::remove(copy);
    require(again.metadata() == file.metadata(), "the metadata, written and read again, differ");
    require(again.names().size() == tensors.size(), "other tensors are in the file that was written");
    for (const auto& [name, t] : tensors) {
      const Tensor read = again.get(name);
      require(read.dtype() == t.dtype() && std::ranges::equal(read.sizes(), t.sizes()) &&
                  std::memcmp(read.data(), t.data(), t.nbytes()) == 0,
              "a tensor, written and read again, differs");
    }
  } catch (const UserError&) {
  }
  close(memory);
}

}  // namespace meshfuse
