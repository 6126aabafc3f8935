// One check of all collectives, for ranks that report by a text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "multidevice/transport/communicator.h"
#include "multidevice/transport/reference.h"

namespace meshfuse {

// Where the buffers of a call lie: ordinary memory, memory that peers can read, or each rank as it likes.
enum class BufferPlace { Ordinary, Shared, Mixed };

// A buffer of a call with its content.
class CallBuffer {
 public:
  CallBuffer(Communicator& comm, BufferPlace place, const Bytes& content);
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  Bytes content() const { return {data(), data() + bytes_}; }

 private:
  size_t bytes_;
  std::shared_ptr<void> memory_;
};

// Every collective of `count` elements against the plain reference: what differs, "" if nothing does. Nothing for ranks outside the
// team.
[[nodiscard]] std::string checkAllCollectives(Communicator& comm, const Team& team, DataType type, int64_t count,
                                              uint64_t seed, BufferPlace place = BufferPlace::Ordinary);

// The same of those with a root, which gather, scatter and reduce to or from it.
[[nodiscard]] std::string checkRootedCollectives(Communicator& comm, const Team& team, DataType type, ReduceOp op,
                                                 int64_t count, uint64_t seed,
                                                 BufferPlace place = BufferPlace::Ordinary);

}  // namespace meshfuse
