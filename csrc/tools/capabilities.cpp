// meshfuse capabilities: what this build can use on this machine.
#include <fmt/core.h>

#include <string>
#include <vector>

#include "base/ranges.h"
#include "device/open.h"
#include "meshfuse_config.h"
#include "tools/options.h"

namespace meshfuse {

namespace {

Capability compiledIn(std::string part, bool isPresent, const std::string& library) {
  return {std::move(part), isPresent, isPresent ? library : "built without " + library};
}

}  // namespace

int64_t listCapabilities(const CapabilitiesOptions&) {
  std::vector<Capability> all = deviceCapabilities();
  append(all, std::vector{compiledIn("network of hosts", kHasUcx, "UCX"),
                          compiledIn("proof of identity", kHasSodium, "libsodium"),
                          compiledIn("launchers", kHasPmix, "PMIx")});
  fmt::print("meshfuse {}\n", kVersion);
  for (const Capability& c : all) {
    fmt::print("{:<20} {:<4} {}\n", c.part, c.isPresent ? "yes" : "no", c.note);
  }
  return kSuccess;
}

}  // namespace meshfuse
