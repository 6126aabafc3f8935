#include "simt/host_text.h"

#include <sstream>

namespace meshfuse::simt {

std::string hostText(std::string_view text) {
  std::string kept;
  while (!text.empty()) {
    size_t end = text.find("\n//@ ");
    std::string_view section = text.substr(0, end == std::string_view::npos ? text.size() : end + 1);
    std::istringstream heading{std::string(section.substr(0, section.find('\n')))};
    std::string mark;
    std::string name;
    std::string word;
    heading >> mark >> name >> word;
    if (word != "device") {
      kept += section;
    }
    text.remove_prefix(section.size());
  }
  return kept;
}

}  // namespace meshfuse::simt
