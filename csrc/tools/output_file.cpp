#include "tools/output_file.h"

#include <fstream>

#include "base/error.h"

namespace meshfuse {

void writeOutputFile(const std::string& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  check(file.good(), "[command line] cannot write {}", path);
}

}  // namespace meshfuse
