#include "exec/dumped_passes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "preseg_passes/table.h"
#include "segment/table.h"

namespace meshfuse {

void checkDumpedPasses() {
  const std::string dump = PassOptions::fromEnvironment().dump;
  if (dump.empty()) {
    return;
  }
  std::vector<std::string_view> names = passNames(presegPasses());
  const std::vector<std::string_view> local = passNames(localPasses());
  names.insert(names.end(), local.begin(), local.end());
  for (std::string_view rest = dump; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    check(one.empty() || one == "all" || std::find(names.begin(), names.end(), one) != names.end(),
          "[compile] MESHFUSE_DUMP names \"{}\"; there are: {}, and all", one, fmt::join(names, ", "));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
  }
}

}  // namespace meshfuse
