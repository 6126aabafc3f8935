// Groups of calls of a thread. A call outside of a group is a group of its own.
#pragma once

#include <cstdint>

#include "../communicator_protocol.h"
#include "communicator.h"

namespace simgpu {

struct GroupedCall {
  enum class Kind { Init, Split, Collective, Finalize, Destroy } kind;
  const char* name = "";
  CommunicatorPointer communicator;  // not of Init
  void** made = nullptr;             // Init, Split: where the handle goes
  NewRank rank;
  RankSplit split;
  uint32_t device = 0;     // Init
  bool isBlocking = true;  // Init, Split
  CollectiveCall call;
  int error = kDone;        // that this call is to give
  bool failsLater = false;  // it fails while it runs
};

// Runs the call, or keeps it for the end of the group. Returns a CommunicatorResult.
int addToGroup(GroupedCall call);

void startGroup();
int endGroup();

}  // namespace simgpu
