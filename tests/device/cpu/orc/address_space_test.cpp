// Kernels in a process whose address space is crowded, as that of a rank is, which maps the heaps of its peers.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "device/cpu/orc/cpu_compiler.h"
#include "device/cpu/orc/run_program.h"

namespace meshfuse {
namespace {

constexpr size_t kPage = 4096;

char* reserve(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

// While it lives, a hole of one page lies 8 GiB above the next larger one.
class OnePageThenFarAway {
 public:
  OnePageThenFarAway() {
    constexpr int kAdjacent = 16384;  // so many in a row: no hole is left above
    for (int adjacent = 0; adjacent < kAdjacent;) {
      char* page = reserve(kPage);
      adjacent = !pages_.empty() && page == pages_.back() - kPage ? adjacent + 1 : 0;
      pages_.push_back(page);
    }
    wall_ = reserve(kWall);
    do {
      pages_.push_back(reserve(kPage));  // the wall may stand on a boundary of huge pages
    } while (pages_.back() > wall_);
    munmap(pages_.front(), kPage);
    pages_.erase(pages_.begin());
  }
  ~OnePageThenFarAway() {
    munmap(wall_, kWall);
    for (char* page : pages_) {
      munmap(page, kPage);
    }
  }
  OnePageThenFarAway(const OnePageThenFarAway&) = delete;
  OnePageThenFarAway& operator=(const OnePageThenFarAway&) = delete;

 private:
  static constexpr size_t kWall = size_t{8} << 30;
  std::vector<char*> pages_;
  char* wall_ = nullptr;
};

// Code reaches its constants by 32-bit distances: pieces further apart than 2 GiB would read other memory in their place.
TEST(AddressSpace, CodeAndConstantsOfAKernelStayTogether) {
  tile::Example example = tile::softmaxProgram(tile::Target::Cpu, DataType::Float, 3, 33);
  std::shared_ptr<const CpuKernel> kernel;
  {
    OnePageThenFarAway crowded;
    kernel = CpuCompiler().compile({&example.program, 1}).front();
    compareWithInterpreter(example, *kernel, 16);
  }
}

}  // namespace
}  // namespace meshfuse
