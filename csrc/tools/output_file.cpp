#include "tools/output_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace meshfuse {

void writeOutputFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  const int error = errno;
  check(file.good(), "[command line] cannot write {}: {}; name a file that can be written", path, std::strerror(error));
}

}  // namespace meshfuse
