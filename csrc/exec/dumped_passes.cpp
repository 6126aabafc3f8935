#include "exec/dumped_passes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "preseg_passes/table.h"
#include "segment/table.h"

namespace meshfuse {

void checkDumpedPasses() {
  const std::string dump = PassOptions::fromEnvironment().dump;
  std::vector<std::string_view> names = passNames(presegPasses());
  append(names, passNames(localPasses()));
  for (std::string_view rest = dump; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    check(one.empty() || one == "all" || contains(names, one),
          "[compile] MESHFUSE_DUMP names \"{}\"; there are: {}, and all", one, fmt::join(names, ", "));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
  }
}

}  // namespace meshfuse
