// One check of all collectives, for ranks that report by a text.
#pragma once

#include <cstdint>
#include <string>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

// Where the buffers of a call lie: ordinary memory, memory that peers can read, or each rank as it likes.
enum class BufferPlace { Ordinary, Shared, Mixed };

// Every collective of `count` elements against the plain reference: what differs, "" if nothing does. Nothing for ranks outside the
// team.
[[nodiscard]] std::string checkAllCollectives(Communicator& comm, const Team& team, DataType type, int64_t count,
                                              uint64_t seed, BufferPlace place = BufferPlace::Ordinary);

// The same of those with a root, which gather, scatter and reduce to or from it.
[[nodiscard]] std::string checkRootedCollectives(Communicator& comm, const Team& team, DataType type, ReduceOp op,
                                                 int64_t count, uint64_t seed,
                                                 BufferPlace place = BufferPlace::Ordinary);

}  // namespace meshfuse
