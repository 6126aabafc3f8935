// The emulator: a fiber for every thread of the blocks that run at once (one, or a cluster), scheduled in a seeded
// random order and switched at barriers and shuffles only. Every access is checked against what the launch said of the
// buffers.
#include "engine.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

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
  bool dirty = false;       // has stores that no fence followed
  std::vector<int> visits;  // executions by site, loads and stores apart
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

struct Buffer {
  std::string name;
  char kind = 'i';  // i input, o output, x in and out, w workspace, z zeroed workspace
  int element = 4;
  char* memory = nullptr;
  char* begin = nullptr;
  size_t bytes = 0;
  std::vector<unsigned> writer;       // by element: 1 + the thread of the grid, 0 nobody
  std::vector<unsigned> writerBlock;  // 1 + block
  int64_t read = 0, written = 0;
  int64_t requests = 0, sectors = 0, ideal = 0;
};

struct Request {
  size_t buffer = 0;
  int64_t bytes = 0;
  std::vector<uintptr_t> sectors;
};

struct Launch {
  void (*kernel)(const void*) = nullptr;
  std::vector<uint64_t> slots;
  std::vector<Buffer> buffers;
  unsigned blocks = 1;
  int threads = 32, cluster = 1, shared = 0;
  uint64_t seed = 0;
  bool count = false;
};

Launch* launch;
std::ofstream* out;
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
std::unordered_map<uint64_t, Request> requests;
std::unordered_map<int, int> faultsOf;  // by site
unsigned char dummy[64];

Block& own() { return blocks[current / launch->threads]; }

void fault(const std::string& what, int site) {
  faults++;
  if (described < kMostFaults && ++faultsOf[site] <= kMostOfASite) {
    described++;
    *out << "fault site " << site << " block " << block << " thread " << thread << ": " << what << "\n";
  }
}

// -- fibers -----------------------------------------------------------------------------------------------------------

void enter(int f) {
  current = f;
  thread = f % launch->threads;
  rank = f / launch->threads;
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
  x.visits.clear();
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
    launch->kernel(launch->slots.data());
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
  if (launch->seed != 0) {
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
  if (++b.waiting == launch->threads) {
    b.waiting = 0;
    b.epoch = ++epoch;
    release(current / launch->threads * launch->threads, launch->threads);
  }
  yield();
}

void clusterBarrier(int site) {
  if (clusterWaiting != 0 && clusterSite != site) {
    fault("divergent cluster barrier: other threads wait at site " + std::to_string(clusterSite), site);
  }
  clusterSite = site;
  int all = launch->threads * static_cast<int>(blocks.size());
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

uint64_t shuffle(uint64_t bits, int mask, int site) {
  if (mask < 0 || mask > 31) {
    fault("shuffle with lane mask " + std::to_string(mask), site);
    mask &= 31;
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
  return warps[w].values[parity][lane ^ mask];
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
  if (offset < 0 || offset + bytes > launch->shared) {
    fault("shared memory overrun: bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) + " of " +
              std::to_string(launch->shared),
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
  if (foreign && b.left < launch->threads) {
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

// -- global memory ----------------------------------------------------------------------------------------------------

namespace {

void countRequest(const void* at, int bytes, Touch touch, size_t buffer, int site) {
  Fiber& f = fibers[current];
  size_t slot = static_cast<size_t>(site) * 2 + (touch == Touch::Store ? 1 : 0);
  if (f.visits.size() <= slot) {
    f.visits.resize(slot + 16);
  }
  uint64_t key = static_cast<uint64_t>(current / 32) << 48 | static_cast<uint64_t>(slot) << 28 |
                 static_cast<unsigned>(f.visits[slot]++);
  Request& r = requests[key];
  r.buffer = buffer;
  r.bytes += bytes;
  auto first = reinterpret_cast<uintptr_t>(at) / 32;
  auto last = (reinterpret_cast<uintptr_t>(at) + static_cast<uintptr_t>(bytes) - 1) / 32;
  for (uintptr_t s = first; s <= last; s++) {
    if (std::find(r.sectors.begin(), r.sectors.end(), s) == r.sectors.end()) {
      r.sectors.push_back(s);
    }
  }
}

void checkWrite(Buffer& b, size_t element, int site) {
  unsigned me = 1 + threadBase + static_cast<unsigned>(current);
  bool workspace = b.kind == 'w' || b.kind == 'z';
  if (b.writer[element] != 0 && (!workspace || (b.writer[element] != me && !own().acquired))) {
    fault(b.writer[element] == me ? b.name + ": element " + std::to_string(element) + " written twice"
                                  : b.name + ": two threads write element " + std::to_string(element),
          site);
  }
  b.writer[element] = me;
  b.writerBlock[element] = 1 + block;
}

void checkRead(const Buffer& b, size_t element, Touch touch, int site) {
  if (b.kind == 'i') {
    return;
  }
  std::string where = b.name + ": element " + std::to_string(element);
  unsigned me = 1 + threadBase + static_cast<unsigned>(current);
  if (touch != Touch::Shared) {
    fault(where + " read through the read-only path, but this launch writes it", site);
  } else if (b.kind == 'o') {
    fault(where + " of an output is read", site);
  } else if (b.kind == 'x' && b.writer[element] != 0 && b.writer[element] != me) {
    fault(where + " read after another thread has written it", site);
  } else if (b.kind == 'w' && b.writer[element] == 0) {
    fault(where + " of a workspace read before it is written", site);
  } else if ((b.kind == 'w' || b.kind == 'z') && b.writer[element] != 0 && b.writerBlock[element] != 1 + block &&
             !own().acquired) {
    fault(where + " written by another block, which this one has not waited for", site);
  }
}

}  // namespace

void global(const void* at, int bytes, Touch touch, int site) {
  const char* p = static_cast<const char*>(at);
  if (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) != 0) {
    fault("misaligned access of " + std::to_string(bytes) + " bytes", site);
  }
  for (size_t i = 0; i < launch->buffers.size(); i++) {
    Buffer& b = launch->buffers[i];
    if (p + bytes <= b.begin || p >= b.begin + b.bytes) {
      continue;
    }
    if (p < b.begin || p + bytes > b.begin + b.bytes) {
      break;
    }
    if (launch->count) {
      countRequest(at, bytes, touch, i, site);
    }
    bool write = touch == Touch::Store;
    (write ? b.written : b.read) += bytes;
    if (write && b.kind == 'i') {
      fault(b.name + ": an input is written", site);
      return;
    }
    fibers[current].dirty = fibers[current].dirty || write;
    size_t first = static_cast<size_t>(p - b.begin) / static_cast<size_t>(b.element);
    size_t last = static_cast<size_t>(p - b.begin + bytes - 1) / static_cast<size_t>(b.element);
    int before = faults;
    for (size_t e = first; e <= last && faults == before; e++) {
      write ? checkWrite(b, e, site) : checkRead(b, e, touch, site);
    }
    return;
  }
  std::string near;
  for (const Buffer& b : launch->buffers) {
    if (p >= b.begin - 4096 && p < b.begin + b.bytes + 4096) {
      near = ", " + std::to_string(p - b.begin) + " bytes from the start of " + b.name + " of " +
             std::to_string(b.bytes) + " bytes";
    }
  }
  fault(std::string(touch == Touch::Store ? "store" : "load") + " outside of all tensors" + near, site);
  *out << "fatal\n";
  out->flush();
  _exit(4);  // the access itself would do damage
}

void fence() { fibers[current].dirty = false; }

int ticket(int* counter, int site) {
  for (const Buffer& x : launch->buffers) {
    const char* p = reinterpret_cast<const char*>(counter);
    if (p >= x.begin && p < x.begin + x.bytes && x.kind != 'z') {
      fault(x.name + ": an arrival counter must be a zeroed workspace", site);
    }
  }
  for (size_t r = 0; r < blocks.size(); r++) {
    for (int t = 0; t < launch->threads; t++) {
      if (fibers[r * static_cast<size_t>(launch->threads) + static_cast<size_t>(t)].dirty) {
        fault("a ticket is taken while thread " + std::to_string(t) + " has stores without a fence after them", site);
        break;
      }
    }
  }
  for (Block& x : blocks) {
    x.acquired = true;
  }
  return (*counter)++;
}

// -- launches ---------------------------------------------------------------------------------------------------------

namespace {

void runBlocks(unsigned group) {
  int all = launch->threads * launch->cluster;
  ++epoch;
  clusterWaiting = 0;
  threadBase = group * static_cast<unsigned>(all);
  for (int r = 0; r < launch->cluster; r++) {
    Block& b = blocks[static_cast<size_t>(r)];
    b.id = group * static_cast<unsigned>(launch->cluster) + static_cast<unsigned>(r);
    b.left = launch->threads;
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
  requests.clear();
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
                " threads wait for ever, " + std::to_string(launch->threads - b.left) + " have returned",
            site);
      break;
    }
  }
  for (auto& [key, r] : requests) {
    Buffer& b = launch->buffers[r.buffer];
    b.requests++;
    b.sectors += static_cast<int64_t>(r.sectors.size());
    b.ideal += (r.bytes + 31) / 32;
  }
}

void run(Launch& l) {
  launch = &l;
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
}

// The job file: see emulator.cpp, which writes it.
int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: engine JOBS RESULTS FIRST\n");
    return 2;
  }
  std::ifstream jobs(argv[1]);
  std::ofstream results(argv[2], std::ios::app);
  out = &results;
  int first = std::atoi(argv[3]);
  std::string word, dataPath, library;
  jobs >> word >> library >> word >> dataPath;
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 2;
  }
  int fd = open(dataPath.c_str(), O_RDWR);
  struct stat info = {};
  fstat(fd, &info);
  char* data = info.st_size == 0 ? nullptr
                                 : static_cast<char*>(mmap(nullptr, static_cast<size_t>(info.st_size),
                                                           PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  int job = 0;
  while (jobs >> word && word == "run") {
    Launch l;
    std::string entry;
    size_t slots = 0, buffers = 0;
    jobs >> entry >> l.threads >> l.cluster >> l.blocks >> l.shared >> l.seed >> l.count >> slots >> buffers;
    std::vector<size_t> offsets;
    for (size_t i = 0; i < slots; i++) {
      uint64_t v = 0;
      jobs >> v;
      l.slots.push_back(v);
    }
    for (size_t i = 0; i < buffers; i++) {
      Buffer b;
      size_t offset = 0, slot = 0, alignment = 0;
      int64_t below = 0;  // bytes of the tensor before its base pointer
      jobs >> slot >> offset >> b.bytes >> below >> alignment >> b.kind >> b.element >> b.name;
      offsets.push_back(offset);
      if (job >= first) {
        // Exactly the promised alignment, and no more.
        size_t shift = alignment < 256 ? alignment : 0;
        b.memory = static_cast<char*>(aligned_alloc(256, (b.bytes + shift + 256 + 255) / 256 * 256));
        b.begin = b.memory + (256 - static_cast<size_t>(below) % 256) % 256 + shift;
        std::memcpy(b.begin, data + offset, b.bytes);
        l.slots[slot] = reinterpret_cast<uint64_t>(b.begin + below);
        b.writer.resize(b.bytes / static_cast<size_t>(b.element) + 1);
        b.writerBlock.resize(b.writer.size());
      }
      l.buffers.push_back(std::move(b));
    }
    if (job++ < first) {
      continue;
    }
    results << "begin " << job - 1 << "\n";
    results.flush();
    l.kernel = reinterpret_cast<void (*)(const void*)>(dlsym(handle, entry.c_str()));
    if (!l.kernel) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 2;
    }
    auto start = std::chrono::steady_clock::now();
    if (l.blocks > 0) {
      run(l);
    }
    double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    for (size_t i = 0; i < l.buffers.size(); i++) {
      Buffer& b = l.buffers[i];
      std::memcpy(data + offsets[i], b.begin, b.bytes);
      int64_t elements = std::count_if(b.writer.begin(), b.writer.end(), [](unsigned w) { return w != 0; });
      results << "buffer " << i << " " << b.read << " " << b.written << " " << elements << " " << b.requests << " "
              << b.sectors << " " << b.ideal << "\n";
      std::free(b.memory);
    }
    results << "done " << job - 1 << " " << faults << " " << ms << "\n";
    results.flush();
    faults = 0;
  }
  return 0;
}

}  // namespace
}  // namespace simt

int main(int argc, char** argv) { return simt::main(argc, argv); }
