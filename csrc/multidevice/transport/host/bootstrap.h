// The exchange of messages between processes that are not connected yet. Only processes of the job take part in it: the launcher's server,
// the system or a secret makes sure of that.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/host/secret.h"
#include "multidevice/transport/host/world.h"

namespace meshfuse {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  // Every rank's message, by rank. DeviceError if the message of a rank does not arrive within the deadline.
  virtual std::vector<std::string> allGather(std::string_view mine) = 0;
  // A key that only the ranks have. Collective.
  virtual Key key();
  // The address at which the others reach this rank; "" if the bootstrap does not know it.
  virtual std::string address() const { return ""; }
  // False if the ranks have given up: then no more messages will come.
  virtual bool isUnderWay() const { return true; }
};

// The world of the bootstrap's ranks: shared memory if all are on one host, else a network. `name`: in flight records.
[[nodiscard]] std::unique_ptr<Communicator> openAmong(std::shared_ptr<Bootstrap> bootstrap, TransportOptions options,
                                                      const std::string& name);

// Equal for processes that can reach each other by local sockets.
[[nodiscard]] std::string hostIdentity();
// The lines of a text that is not empty.
[[nodiscard]] std::vector<std::string> linesOf(std::string_view text);
// Equal for all processes of a machine since its start.
[[nodiscard]] std::string bootIdentity();
// Equal for the processes of a machine that share its network.
[[nodiscard]] std::string networkNamespace();

// The data that the launcher gave this process.
struct RankOfLauncher {
  int64_t rank;
  int64_t size;
};

// Whether the launcher offers a PMIx server; the rank that it gave; a connection to it. In a build without PMIx, the last two throw a
// DeviceError.
[[nodiscard]] bool pmixOffered();
[[nodiscard]] RankOfLauncher pmixPlace();
[[nodiscard]] std::unique_ptr<Bootstrap> connectPmix(std::chrono::milliseconds deadline);
// True if the launcher's server has ended; without PMIx there is none.
[[nodiscard]] bool launcherHasEnded();
constexpr std::string_view kLauncherEnded = "the launcher, mpirun or a daemon of it, has ended; start the job again";

// A star of connections to rank 0, from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: within a host by a local socket, else by TCP with
// the secret of MESHFUSE_SECRET or MESHFUSE_SECRET_FILE.
[[nodiscard]] bool starOffered();
[[nodiscard]] RankOfLauncher starPlace();
[[nodiscard]] std::unique_ptr<Bootstrap> connectStar(std::chrono::milliseconds deadline);

// Every surviving rank of the launcher calls this; the new group has the ranks that call within the deadline, counted from the first call.
// `members` gets their old ranks, as the launcher counts, by new rank. DeviceError for a rank that comes later.
[[nodiscard]] std::unique_ptr<Bootstrap> meetSurvivors(int64_t rank, int64_t size, std::chrono::milliseconds deadline,
                                                       std::vector<int64_t>& members);

}  // namespace meshfuse
