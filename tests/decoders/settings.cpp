#include <cstdlib>
#include <string>

#include "base/error.h"
#include "decoders/decoders.h"
#include "multidevice/transport/algorithms.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/star.h"

namespace meshfuse {

// One variable in a line, in the order of this list; the last line is MESHFUSE_ALGORITHMS.
void readSettings(std::string_view bytes) {
  static constexpr const char* kVariables[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MESHFUSE_SECRET"};
  for (const char* variable : kVariables) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    std::string value(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    value.resize(std::min(value.find('\0'), value.size()));
    setenv(variable, value.c_str(), 1);
  }
  const auto isRefused = [](const auto& read) {
    try {
      read();
      return false;
    } catch (const UserError&) {
      return true;
    }
  };
  isRefused([] {
    const RankOfLauncher place = starPlace();
    require(place.rank >= 0 && place.rank < place.size && place.size <= 65'536, "a rank that is none");
  });
  isRefused([] { require(masterPort() > 0 && masterPort() < 65'536, "a port that is none"); });
  isRefused([] { static_cast<void>(masterIsLocal() || keyForMaster() == Key{}); });
  isRefused([&] { static_cast<void>(AlgorithmTable::parse(bytes)); });
  for (const char* variable : kVariables) {
    unsetenv(variable);
  }
}

}  // namespace meshfuse
