#include "tools/output_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/atomic_file.h"
#include "base/error.h"

namespace meshfuse {

void writeOutputFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  const int error = errno;
  check(file.good(), "[command line] cannot write {}: {}; name a file that can be written", path, std::strerror(error));
}

void writeWhole(std::string_view what, const std::string& path, std::string_view bytes) {
  AtomicFile file(what, path);
  file.write(bytes.data(), std::ssize(bytes));
  file.commit();
}

}  // namespace meshfuse
