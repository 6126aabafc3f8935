// ArenaRegistration: whether the arena of a binding is registered with the communicators of its device, which move the elements of registered
// memory faster.
//
// The operands of a collective must be registered on all ranks or on none, and at the same place of the registered memory. Ranks have arenas of
// their own, so each proposes what it has when the ranks meet at the begin of a call:
//
//   rank 0            rank 1            all ranks
//   same offsets      same offsets      register
//   registered        registered        go on
//   registered        another arena     go on without
#pragma once

#include <cstdint>
#include <vector>

#include "host/program.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

class CommPath;

class ArenaRegistration {
 public:
  ArenaRegistration() = default;  // none
  // Of memory that the path has allocated for the program.
  ArenaRegistration(const HostProgram& program, const ProgramSizes& sizes, const CommPath& path, void* arena);

  // What this rank proposes for a call.
  int64_t proposal() const;
  // `least`, `most`: the smallest and the largest proposal() of all ranks. If they differ, gives up. Returns true if all ranks must now
  // call enroll().
  bool agree(int64_t least, int64_t most, CommPath& path);
  // Registers it. False if this rank cannot: then all give up.
  bool enroll(CommPath& path);
  void giveUp(CommPath& path);

 private:
  void* arena_ = nullptr;
  std::vector<Team> teams_;  // whose calls use it
  int64_t layout_ = 0;       // of the operands of all calls in the arena; 0: it is not registered
  bool isRegistered_ = false;
};

}  // namespace meshfuse
