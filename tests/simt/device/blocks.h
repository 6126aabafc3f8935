// The blocks of a grid on the host: a fiber for every thread of the blocks that run at once (one, or a cluster), in a seeded random order,
// switched at barriers and shuffles only. Barriers, shuffles and shared memory of engine.h are checked here; global() and ticket() are
// defined by who runs the grid.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace simt {

struct Grid {
  void (*kernel)(const void* arguments) = nullptr;
  const void* arguments = nullptr;
  unsigned blocks = 1;
  int threads = 32;   // of a block
  int cluster = 1;    // blocks
  int shared = 0;     // bytes of a block
  uint64_t seed = 0;  // of the order of blocks and threads; 0: ascending
  uint64_t errorPattern = 0;
  std::function<void(const std::string& fault)> report;
  std::function<void()> afterBlocks;  // after the blocks that ran at once; may be empty
  std::function<void(int offset, int bytes, bool write, int site)> onShared;  // by the running thread; may be empty
};

// Returns the number of faults; a dozen of them are reported. The grid ends early after these.
int runGrid(const Grid& grid);

// For the functions that the running thread calls:
void fault(const std::string& what, int site);
int faultsSoFar();
int runningThread();           // among those of the blocks that run at once
unsigned threadOfGrid();       // among all
bool hasWaitedForAllBlocks();  // its block has taken a ticket
void noteStore();              // to global memory: a fence must follow before a ticket
void takeTicket(int site);     // a fault unless all threads have a fence after their stores

}  // namespace simt
