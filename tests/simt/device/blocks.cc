#include "blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine.h"

extern "C" {
void __asan_unpoison_memory_region(const volatile void*, size_t);
void __sanitizer_start_switch_fiber(void** fakeStack, const void* bottom, size_t size);
void __sanitizer_finish_switch_fiber(void* fakeStack, const void** oldBottom, size_t* oldSize);
void simt_switch(void** from, void* to);
}

// x86-64 System V: push what a callee must keep, exchange the stack pointers, pop.
asm(R"(
.text
.type simt_switch, @function
simt_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");

namespace simt {

int thread, rank;
unsigned block;
uint64_t errorPattern;

namespace {

constexpr size_t kStack = 256 << 10;
constexpr size_t kPage = 4096;
constexpr int kMostFaults = 12;  // described; the others are counted
constexpr int kMostOfASite = 2;

struct Fiber {
  char* stack = nullptr;  // above a guard page
  void* sp = nullptr;
  void* fake = nullptr;
  bool done = true;
  bool started = false;
  bool dirty = false;  // has stores that no fence followed
};

// One byte of shared memory.
struct Cell {
  int writer = -1, reader = -1;  // fibers; reader -2: several
  int writeEpoch = 0, readEpoch = 0, remoteEpoch = 0;
};

struct Block {
  unsigned id = 0;
  int left = 0;     // threads that have not returned
  int waiting = 0;  // at the barrier of `site`
  int site = 0;
  int epoch = 0;          // of its last barrier
  int firstEpoch = 0;     // of its start
  int clusterEpoch = 0;   // of the last barrier of the cluster
  bool acquired = false;  // a ticket was taken and all are fenced
  std::vector<unsigned char> arena;
  std::vector<Cell> cells;
};

struct Warp {
  int arrived = 0, site = 0, parity = 0;
  uint64_t values[2][32];
};

const Grid* grid;
std::vector<Fiber> fibers;
std::vector<Block> blocks;
std::vector<Warp> warps;
std::vector<int> ready;
size_t head;
int current, faults, described, clusterWaiting, clusterSite, epoch;
unsigned threadBase;  // of the running blocks, in the grid
void* mainSp;
void* mainFake;
const void* mainStack;
size_t mainStackSize;
std::mt19937_64 rng;
std::unordered_map<int, int> faultsOf;  // by site
unsigned char dummy[64];

Block& own() { return blocks[current / grid->threads]; }

}  // namespace

void fault(const std::string& what, int site) {
  faults++;
  if (described < kMostFaults && ++faultsOf[site] <= kMostOfASite) {
    described++;
    grid->report("site " + std::to_string(site) + " block " + std::to_string(block) + " thread " +
                 std::to_string(thread) + ": " + what);
  }
}

int faultsSoFar() { return faults; }
int runningThread() { return current; }
unsigned threadOfGrid() { return threadBase + static_cast<unsigned>(current); }
bool hasWaitedForAllBlocks() { return own().acquired; }
void noteStore() { fibers[current].dirty = true; }
void fence() { fibers[current].dirty = false; }

void takeTicket(int site) {
  for (size_t r = 0; r < blocks.size(); r++) {
    for (int t = 0; t < grid->threads; t++) {
      if (fibers[r * static_cast<size_t>(grid->threads) + static_cast<size_t>(t)].dirty) {
        fault("a ticket is taken while thread " + std::to_string(t) + " has stores without a fence after them", site);
        break;
      }
    }
  }
  for (Block& x : blocks) {
    x.acquired = true;
  }
}

namespace {

// -- fibers -----------------------------------------------------------------------------------------------------------

void enter(int f) {
  current = f;
  thread = f % grid->threads;
  rank = f / grid->threads;
  block = own().id;
}

void runThread();

void prepare(int f) {
  Fiber& x = fibers[f];
  if (!x.stack) {
    char* s = static_cast<char*>(
        mmap(nullptr, kStack + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (s == MAP_FAILED) {
      perror("mmap of a fiber's stack");
      exit(3);
    }
    mprotect(s, kPage, PROT_NONE);
    x.stack = s + kPage;
  }
  if (!x.done || !x.started) {  // new, or left waiting for ever: its frames are abandoned
    __asan_unpoison_memory_region(x.stack, kStack);
    void** top = reinterpret_cast<void**>(x.stack + kStack) - 2;
    *--top = nullptr;  // the return address of a function that does not return; keeps the stack at 8 modulo 16
    *--top = reinterpret_cast<void*>(&runThread);
    top -= 6;
    std::fill(top, top + 6, nullptr);
    x.sp = top;
    x.fake = nullptr;
    x.started = true;
  }
  x.done = false;
  x.dirty = false;
}

void arrived(void* fake) {
  const void* bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(fake, &bottom, &size);
  if (!mainStack) {
    mainStack = bottom;
    mainStackSize = size;
  }
}

// Leaves the running fiber for the next ready one, or for the scheduler.
void yield() {
  int from = current;
  if (head < ready.size()) {
    int to = ready[head++];
    if (to == from) {
      return;
    }
    enter(to);
    __sanitizer_start_switch_fiber(&fibers[from].fake, fibers[to].stack, kStack);
    simt_switch(&fibers[from].sp, fibers[to].sp);
  } else {
    __sanitizer_start_switch_fiber(&fibers[from].fake, mainStack, mainStackSize);
    simt_switch(&fibers[from].sp, mainSp);
  }
  arrived(fibers[from].fake);
}

void runThread() {
  arrived(nullptr);
  for (;;) {
    grid->kernel(grid->arguments);
    fibers[current].done = true;
    own().left--;
    yield();
  }
}

void release(int first, int count) {
  if (head > 1 << 16) {
    ready.erase(ready.begin(), ready.begin() + static_cast<long>(head));
    head = 0;
  }
  size_t at = ready.size();
  for (int i = 0; i < count; i++) {
    ready.push_back(first + i);
  }
  if (grid->seed != 0) {
    std::shuffle(ready.begin() + static_cast<long>(at), ready.end(), rng);
  }
}

}  // namespace

// -- barriers and shuffles --------------------------------------------------------------------------------------------

void barrier(int site) {
  Block& b = own();
  if (b.waiting != 0 && b.site != site) {
    fault("divergent barrier: other threads wait at site " + std::to_string(b.site), site);
  }
  b.site = site;
  if (++b.waiting == grid->threads) {
    b.waiting = 0;
    b.epoch = ++epoch;
    release(current / grid->threads * grid->threads, grid->threads);
  }
  yield();
}

void clusterBarrier(int site) {
  if (clusterWaiting != 0 && clusterSite != site) {
    fault("divergent cluster barrier: other threads wait at site " + std::to_string(clusterSite), site);
  }
  clusterSite = site;
  int all = grid->threads * static_cast<int>(blocks.size());
  if (++clusterWaiting == all) {
    clusterWaiting = 0;
    ++epoch;
    for (Block& b : blocks) {
      b.epoch = b.clusterEpoch = epoch;
    }
    release(0, all);
  }
  yield();
}

uint64_t shuffle(uint64_t bits, int from, int site) {
  if (from < 0 || from > 31) {
    fault("shuffle from lane " + std::to_string(from), site);
    from &= 31;
  }
  int w = current / 32;
  int lane = thread % 32;
  int parity = warps[w].parity;
  if (warps[w].arrived != 0 && warps[w].site != site) {
    fault("divergent shuffle: other lanes wait at site " + std::to_string(warps[w].site), site);
  }
  warps[w].site = site;
  warps[w].values[parity][lane] = bits;
  if (++warps[w].arrived == 32) {
    warps[w].arrived = 0;
    warps[w].parity ^= 1;
    release(w * 32, 32);
  }
  yield();
  return warps[w].values[parity][from];
}

// -- shared memory ----------------------------------------------------------------------------------------------------

namespace {

void touchCell(Block& b, Cell& c, bool write, int site, int offset) {
  std::string where = " at byte " + std::to_string(offset);
  if (c.writeEpoch == b.epoch && c.writer >= 0 && c.writer != current) {
    fault(std::string(write ? "shared race: two writers" : "shared race: read of another thread's write") + where +
              ", the other is thread " + std::to_string(c.writer) + "; a barrier is missing",
          site);
  }
  if (write) {
    if (c.readEpoch == b.epoch && c.reader != -1 && c.reader != current) {
      fault("shared race: write of what another thread has read since the last barrier" + where, site);
    }
    if (c.remoteEpoch == b.clusterEpoch) {
      fault("shared race: write of what another block has read since the last cluster barrier" + where, site);
    }
    c.writer = current;
    c.writeEpoch = b.epoch;
    return;
  }
  if (c.writeEpoch < b.firstEpoch) {
    fault("shared memory read before it is written" + where, site);
  }
  c.reader = c.readEpoch == b.epoch && c.reader != -1 && c.reader != current ? -2 : current;
  c.readEpoch = b.epoch;
}

bool sharedFits(int offset, int bytes, int site) {
  if (offset < 0 || offset + bytes > grid->shared) {
    fault("shared memory overrun: bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) + " of " +
              std::to_string(grid->shared),
          site);
    return false;
  }
  if (offset % bytes != 0) {
    fault("misaligned shared access of " + std::to_string(bytes) + " bytes at " + std::to_string(offset), site);
  }
  return true;
}

}  // namespace

void* shared(int offset, int bytes, bool write, int site) {
  if (!sharedFits(offset, bytes, site)) {
    return dummy;
  }
  if (grid->onShared) {
    grid->onShared(offset, bytes, write, site);
  }
  Block& b = own();
  int before = faults;
  for (int i = offset; i < offset + bytes && faults == before; i++) {
    touchCell(b, b.cells[static_cast<size_t>(i)], write, site, i);
  }
  return b.arena.data() + offset;
}

const void* remote(int offset, int bytes, int from, int site) {
  if (from < 0 || from >= static_cast<int>(blocks.size())) {
    fault("remote read of block " + std::to_string(from) + " of a cluster of " + std::to_string(blocks.size()), site);
    return dummy;
  }
  if (!sharedFits(offset, bytes, site)) {
    return dummy;
  }
  Block& b = blocks[static_cast<size_t>(from)];
  bool foreign = &b != &own();
  if (foreign && b.left < grid->threads) {
    fault("remote read of a block that has begun to leave", site);
  }
  for (int i = offset; i < offset + bytes; i++) {
    Cell& c = b.cells[static_cast<size_t>(i)];
    if (c.writeEpoch < b.firstEpoch) {
      fault("remote read of shared memory before it is written", site);
      break;
    }
    bool synchronised = c.writeEpoch < b.clusterEpoch || (!foreign && c.writer == current);
    if (!synchronised) {
      fault("remote race: read of a write since the last cluster barrier", site);
      break;
    }
    c.remoteEpoch = foreign ? b.clusterEpoch : c.remoteEpoch;
    if (!foreign) {
      c.reader = c.readEpoch == b.epoch && c.reader != -1 && c.reader != current ? -2 : current;
      c.readEpoch = b.epoch;
    }
  }
  return b.arena.data() + offset;
}

// -- grids ------------------------------------------------------------------------------------------------------------

namespace {

void runBlocks(unsigned group) {
  int all = grid->threads * grid->cluster;
  ++epoch;
  clusterWaiting = 0;
  threadBase = group * static_cast<unsigned>(all);
  for (int r = 0; r < grid->cluster; r++) {
    Block& b = blocks[static_cast<size_t>(r)];
    b.id = group * static_cast<unsigned>(grid->cluster) + static_cast<unsigned>(r);
    b.left = grid->threads;
    b.waiting = 0;
    b.epoch = b.firstEpoch = b.clusterEpoch = epoch;
    b.acquired = false;
    std::fill(b.arena.begin(), b.arena.end(), 0xff);
  }
  warps.assign(static_cast<size_t>(all + 31) / 32, Warp{});
  ready.clear();
  head = 0;
  for (int f = 0; f < all; f++) {
    prepare(f);
  }
  release(0, all);
  while (head < ready.size()) {
    int to = ready[head++];
    enter(to);
    __sanitizer_start_switch_fiber(&mainFake, fibers[static_cast<size_t>(to)].stack, kStack);
    simt_switch(&mainSp, fibers[static_cast<size_t>(to)].sp);
    __sanitizer_finish_switch_fiber(mainFake, nullptr, nullptr);
  }
  for (int f = 0; f < all; f++) {
    if (!fibers[static_cast<size_t>(f)].done) {
      enter(f);
      const Block& b = own();
      const Warp& w = warps[static_cast<size_t>(f / 32)];
      int site = b.waiting != 0 ? b.site : w.arrived != 0 ? w.site : clusterSite;
      fault("divergent barrier or shuffle: " + std::to_string(b.waiting != 0 ? b.waiting : w.arrived) +
                " threads wait for ever, " + std::to_string(grid->threads - b.left) + " have returned",
            site);
      break;
    }
  }
  if (grid->afterBlocks) {
    grid->afterBlocks();
  }
}

}  // namespace

int runGrid(const Grid& l) {
  grid = &l;
  errorPattern = l.errorPattern;
  faults = described = 0;
  faultsOf.clear();
  rng.seed(l.seed);
  size_t all = static_cast<size_t>(l.threads) * static_cast<size_t>(l.cluster);
  if (fibers.size() < all) {
    fibers.resize(all);
  }
  blocks.assign(static_cast<size_t>(l.cluster), Block{});
  for (Block& b : blocks) {
    b.arena.resize(static_cast<size_t>(l.shared));
    b.cells.resize(static_cast<size_t>(l.shared));
  }
  std::vector<unsigned> order(l.blocks / static_cast<unsigned>(l.cluster));
  for (unsigned i = 0; i < order.size(); i++) {
    order[i] = i;
  }
  if (l.seed != 0) {
    std::shuffle(order.begin(), order.end(), rng);
  }
  for (unsigned group : order) {
    runBlocks(group);
    if (described >= kMostFaults) {
      break;
    }
  }
  return faults;
}

}  // namespace simt
