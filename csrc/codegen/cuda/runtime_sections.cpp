#include "codegen/cuda/runtime_sections.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "codegen/cuda/emit.h"
#include "codegen/cuda/runtime_text.h"

namespace meshfuse {

namespace {

struct Section {
  std::string name;
  std::vector<std::string> needs;
  std::string_view text;
};

// In an order in which every section follows the sections that it uses.
constexpr std::string_view kFiles[] = {"types.cuh",   "half.cuh",    "memory.cuh",  "shared.cuh",
                                       "threads.cuh", "cluster.cuh", "integer.cuh", "math.cuh",
                                       "random.cuh",  "scan.cuh",    "sort.cuh",    "put.cuh"};

std::vector<Section> allSections() {
  std::vector<Section> sections;
  for (std::string_view file : kFiles) {
    std::string_view text = runtimeText(file);
    invariant(text.starts_with("//@ "), "[codegen cuda] runtime file {} is missing or does not start with a section",
              file);
    while (!text.empty()) {
      size_t end = text.find("\n//@ ");
      end = end == std::string_view::npos ? text.size() : end + 1;
      Section s{.name = {}, .needs = {}, .text = text.substr(0, end)};
      std::istringstream heading{std::string(text.substr(4, text.find('\n') - 4))};
      heading >> s.name;
      for (std::string word; heading >> word;) {
        if (word != "device") {
          s.needs.push_back(word);
        }
      }
      sections.push_back(std::move(s));
      text.remove_prefix(end);
    }
  }
  return sections;
}

}  // namespace

std::string runtimeSections(const std::set<std::string, std::less<>>& names) {
  const std::vector<Section> sections = allSections();
  std::set<std::string, std::less<>> wanted = names;
  for (const Section& s : sections | std::views::reverse) {  // those that need a section before it
    if (wanted.contains(s.name)) {
      wanted.insert(s.needs.begin(), s.needs.end());
    }
  }
  for (const std::string& name : wanted) {
    invariant(std::ranges::find(sections, name, &Section::name) != sections.end(),
              "[codegen cuda] no runtime function {}: runtime/cuda has no such section", name);
  }
  auto isWanted = [&](const Section& s) { return wanted.contains(s.name); };
  return joined(sections | std::views::filter(isWanted), "", &Section::text);
}

std::string_view kernelText(std::string_view text) {
  size_t at = text.find(kKernelHeading);
  return at == std::string_view::npos ? text : text.substr(at + kKernelHeading.size());
}

}  // namespace meshfuse
