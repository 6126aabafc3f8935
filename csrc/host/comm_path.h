// CommPath: how one thread carries out the communication steps of a host program.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "host/program.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

class CommPath {
 public:
  // Addresses are those of `device`; a communicator that cannot access them gets copies in host memory. Both outlive the path.
  CommPath(Communicator& communicator, Device& device);

  struct Call {
    const Step& step;
    int64_t number;  // of the step
    const void* in;
    void* out;
    char* arena;
    int64_t root;  // of a broadcast
  };
  // Returns when the result is complete. DeviceError if a peer fails.
  void run(const Call& call);
  // Bytes that all calls of the communicator have received so far.
  int64_t bytesReceived() const;
  Queue& queue() const { return *queue_; }
  // Ends the group; thread-safe.
  void abort(std::string_view why) { communicator_.abort(why); }
  // Moves the counters of a lane's calls to this communicator.
  void takeCounters(const CommPath& lane);

 private:
  void collective(const Call& call);
  void uneven(const Call& call);
  void transfer(const Call& call);
  Communicator& comm() const { return staged_ != nullptr ? *staged_ : communicator_; }

  Communicator& communicator_;
  std::unique_ptr<Communicator> staged_;
  std::unique_ptr<Queue> queue_;  // packs and unpacks
  std::vector<Communicator::Transfer> transfers_;
};

}  // namespace meshfuse
