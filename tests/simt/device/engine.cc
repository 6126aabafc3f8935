// The emulator: runs the launches of a job file and checks every access against what the launch said of its buffers.
#include "engine.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "blocks.h"

namespace simt {

namespace {

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

// Of shared memory, in words of four bytes, by phase: a warp moves at most 128 bytes at once, so 8 lanes of 16 bytes each.
struct SharedRequest {
  std::array<std::set<int>, 4> words;
};

struct Launch {
  Grid grid;
  std::vector<uint64_t> slots;
  std::vector<Buffer> buffers;
  bool count = false;
};

Launch* launch;
std::ofstream* out;
std::vector<std::vector<int>> visits;  // by thread that runs: executions by site, loads and stores apart
std::unordered_map<uint64_t, Request> requests;
std::unordered_map<uint64_t, SharedRequest> sharedRequests;
int64_t sharedConflicts = 0;

}  // namespace

// -- global memory ----------------------------------------------------------------------------------------------------

namespace {

// Of the access that the running thread makes at a place for the nth time: the same for all threads of a warp.
uint64_t requestKey(int site, bool write) {
  const int t = runningThread();
  std::vector<int>& own = visits[static_cast<size_t>(t)];
  size_t slot = static_cast<size_t>(site) * 2 + (write ? 1 : 0);
  if (own.size() <= slot) {
    own.resize(slot + 16);
  }
  return static_cast<uint64_t>(t / 32) << 48 | static_cast<uint64_t>(slot) << 28 | static_cast<unsigned>(own[slot]++);
}

void countShared(int offset, int bytes, bool write, int site) {
  SharedRequest& r = sharedRequests[requestKey(site, write)];
  const int phase = runningThread() % 32 * bytes / 128;
  for (int word = offset / 4; word <= (offset + bytes - 1) / 4; word++) {
    r.words[static_cast<size_t>(phase)].insert(word);
  }
}

void countRequest(const void* at, int bytes, Touch touch, size_t buffer, int site) {
  Request& r = requests[requestKey(site, touch == Touch::Store)];
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
  unsigned me = 1 + threadOfGrid();
  bool workspace = b.kind == 'w' || b.kind == 'z';
  if (b.writer[element] != 0 && (!workspace || (b.writer[element] != me && !hasWaitedForAllBlocks()))) {
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
  unsigned me = 1 + threadOfGrid();
  if (touch != Touch::Shared) {
    fault(where + " read through the read-only path, but this launch writes it", site);
  } else if (b.kind == 'o') {
    fault(where + " of an output is read", site);
  } else if (b.kind == 'x' && b.writer[element] != 0 && b.writer[element] != me) {
    fault(where + " read after another thread has written it", site);
  } else if (b.kind == 'w' && b.writer[element] == 0) {
    fault(where + " of a workspace read before it is written", site);
  } else if ((b.kind == 'w' || b.kind == 'z') && b.writer[element] != 0 && b.writerBlock[element] != 1 + block &&
             !hasWaitedForAllBlocks()) {
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
    if (write) {
      noteStore();
    }
    size_t first = static_cast<size_t>(p - b.begin) / static_cast<size_t>(b.element);
    size_t last = static_cast<size_t>(p - b.begin + bytes - 1) / static_cast<size_t>(b.element);
    const int before = faultsSoFar();
    for (size_t e = first; e <= last && faultsSoFar() == before; e++) {
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

int ticket(int* counter, int workers, int site) {
  for (const Buffer& x : launch->buffers) {
    const char* p = reinterpret_cast<const char*>(counter);
    if (p >= x.begin && p < x.begin + x.bytes && x.kind != 'z') {
      fault(x.name + ": an arrival counter must be a zeroed workspace", site);
    }
  }
  takeTicket(site);
  const int number = *counter;
  *counter = number + 1 == workers ? 0 : number + 1;
  return number;
}

void latest(unsigned* at, unsigned value, int site) {
  global(at, sizeof *at, Touch::Shared, site);
  noteStore();
  *at = std::max(*at, value);
}

namespace {

void countSectors() {
  for (auto& [key, r] : requests) {
    Buffer& b = launch->buffers[r.buffer];
    b.requests++;
    b.sectors += static_cast<int64_t>(r.sectors.size());
    b.ideal += (r.bytes + 31) / 32;
  }
  requests.clear();
  for (const auto& [key, r] : sharedRequests) {
    for (const std::set<int>& words : r.words) {
      std::array<int, 32> banks{};
      for (int word : words) {
        banks[static_cast<size_t>(word % 32)]++;
      }
      sharedConflicts += std::max(0, *std::max_element(banks.begin(), banks.end()) - 1);
    }
  }
  sharedRequests.clear();
  for (std::vector<int>& own : visits) {
    own.clear();
  }
}

int run(Launch& l) {
  launch = &l;
  l.grid.arguments = l.slots.data();
  l.grid.report = [](const std::string& what) { *out << "fault " << what << "\n"; };
  if (l.count) {
    visits.resize(static_cast<size_t>(l.grid.threads) * static_cast<size_t>(l.grid.cluster));
    l.grid.afterBlocks = countSectors;
    l.grid.onShared = countShared;
  }
  const int faults = runGrid(l.grid);
  for (const Buffer& b : l.buffers) {
    if (faults == 0 && b.kind == 'z' && std::any_of(b.begin, b.begin + b.bytes, [](char c) { return c != 0; })) {
      l.grid.report(b.name + " is not zero after the launch");
      return 1;
    }
  }
  return faults;
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
    jobs >> entry >> l.grid.threads >> l.grid.cluster >> l.grid.blocks >> l.grid.shared >> l.grid.seed >> l.count >>
        slots >> buffers;
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
    l.grid.errorPattern = l.grid.seed;
    l.grid.kernel = reinterpret_cast<void (*)(const void*)>(dlsym(handle, entry.c_str()));
    if (!l.grid.kernel) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 2;
    }
    auto start = std::chrono::steady_clock::now();
    const int faults = l.grid.blocks > 0 ? run(l) : 0;
    double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    for (size_t i = 0; i < l.buffers.size(); i++) {
      Buffer& b = l.buffers[i];
      std::memcpy(data + offsets[i], b.begin, b.bytes);
      int64_t elements = std::count_if(b.writer.begin(), b.writer.end(), [](unsigned w) { return w != 0; });
      results << "buffer " << i << " " << b.read << " " << b.written << " " << elements << " " << b.requests << " "
              << b.sectors << " " << b.ideal << "\n";
      std::free(b.memory);
    }
    results << "shared " << sharedConflicts << "\n";
    sharedConflicts = 0;
    results << "done " << job - 1 << " " << faults << " " << ms << "\n";
    results.flush();
  }
  return 0;
}

}  // namespace
}  // namespace simt

int main(int argc, char** argv) { return simt::main(argc, argv); }
