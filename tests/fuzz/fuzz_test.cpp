// Random programs: the reference interpreter, one rank, loopback ranks, and printing agree.
//
//   MESHFUSE_FUZZ_SEEDS=1000-5000 bin/test_fuzz      other programs than the fixed ones; a failure prints a small program
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include "base/error.h"
#include "device/cuda/capabilities.h"
#include "device/device.h"
#include "device/open.h"
#include "fuzz/checks.h"
#include "fuzz/kernels.h"
#include "fuzz/minimize.h"
#include "fuzz/planted.h"
#include "fuzz/program.h"
#include "meshfuse_config.h"
#include "sanitized.h"

namespace meshfuse::fuzz {

namespace {

constexpr uint64_t kFirstSeed = 1;
constexpr uint64_t kLastSeed = 520;

// One program in so many runs, and one in so many goes kernel by kernel through the tile interpreter and the emulator, whose texts a compiler
// takes long for. Sanitizers slow both down.
constexpr uint64_t kStep = kSanitized ? 9 : 1;
constexpr uint64_t kKernelStep = kSanitized ? 27 : 2;

// NVRTC takes 40 ms for a kernel: of each batch of the fixed programs it compiles one kernel in so many, of other programs all.
constexpr int64_t kCompiledStep = 8;

volatile uint64_t currentSeed = 0;

// A crash says which program it was.
extern "C" void onCrash(int signal) {
  char text[64] = "fuzz: crash in the program of seed ";
  size_t n = std::strlen(text);
  char digits[24];
  size_t k = 0;
  for (uint64_t s = currentSeed; k == 0 || s > 0; s /= 10) {
    digits[k++] = static_cast<char>('0' + s % 10);
  }
  while (k > 0) {
    text[n++] = digits[--k];
  }
  text[n++] = '\n';
  [[maybe_unused]] ssize_t written = write(2, text, n);
  ::signal(signal, SIG_DFL);
  raise(signal);
}

struct Seeds {
  uint64_t first = kFirstSeed;
  uint64_t last = kLastSeed;
  bool fixed = true;
};

Seeds seeds() {
  Seeds s;
  if (const char* text = std::getenv("MESHFUSE_FUZZ_SEEDS")) {
    char* rest = nullptr;
    s.first = std::strtoull(text, &rest, 10);
    s.last = *rest == '-' ? std::strtoull(rest + 1, nullptr, 10) : s.first;
    s.fixed = false;
  }
  return s;
}

void prepare() {
  setenv("MESHFUSE_CACHE_DIR", "off", 1);
  for (int s : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) {
    ::signal(s, onCrash);
  }
}

void report(const Program& program, const Failure& failure) {
  Program small = minimize(program, [&](const Program& p) {
    std::optional<Failure> f = checkInChild(p, false);
    return f.has_value() && f->stage == failure.stage && f->message.substr(0, 12) == failure.message.substr(0, 12);
  });
  std::optional<Failure> now = checkInChild(small, true);
  ADD_FAILURE() << "seed " << program.seed << ", mesh " << program.mesh << ", " << failure.stage << ": "
                << failure.message.substr(0, 1500) << "\nsmaller:\n"
                << small.fusion->toString() << (now ? now->message.substr(0, 6000) : "");
}

TEST(Fuzz, EveryWayOfRunningAgrees) {
  prepare();
  Seeds range = seeds();
  std::map<std::string, int> ops;
  std::map<std::string, int> meshes;
  std::map<std::string, int> communications;
  int64_t programs = 0;
  int64_t reduce = 0;
  int64_t contract = 0;
  int64_t shape = 0;
  int64_t communicate = 0;
  int64_t kernels = 0;
  Certainty certainty;
  int failures = 0;
  auto start = std::chrono::steady_clock::now();
  const uint64_t step = range.fixed ? kStep : 1;
  for (uint64_t seed = range.first; seed <= range.last && failures < 20; seed += step) {
    currentSeed = seed;
    Program program = randomProgram(seed);
    Observed observed;
    bool verify = seed % 8 == 0;
    std::optional<Failure> failure = range.fixed || std::getenv("MESHFUSE_FUZZ_IN_PROCESS") != nullptr
                                         ? std::nullopt
                                         : checkInChild(program, verify);
    failure = failure ? failure : checkProgram(program, verify, &observed);
    programs++;
    Traits traits = traitsOf(*program.fusion);
    for (const std::string& op : traits.ops) {
      ops[op]++;
    }
    meshes[program.mesh.empty() ? "none" : program.mesh]++;
    for (const std::string& c : observed.communication) {
      communications[c]++;
    }
    reduce += traits.reduces ? 1 : 0;
    contract += traits.contracts ? 1 : 0;
    shape += traits.changesShape ? 1 : 0;
    communicate += observed.communication.empty() ? 0 : 1;
    kernels += observed.kernels;
    certainty.add(observed.certainty);
    if (failure) {
      failures++;
      report(program, *failure);
    }
  }
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  auto share = [&](int64_t n) { return fmt::format("{} ({}%)", n, 100 * n / std::max<int64_t>(1, programs)); };
  fmt::print(
      "{} programs in {:.0f} s, {} kernels on one rank\nreduce {}, contract {}, change shapes {}, communicate {}\n",
      programs, seconds, kernels, share(reduce), share(contract), share(shape), share(communicate));
  auto table = [](const char* title, const std::map<std::string, int>& counts) {
    fmt::print("{} {}:", counts.size(), title);
    for (const auto& [name, n] : counts) {
      fmt::print(" {} {}", name, n);
    }
    fmt::print("\n");
  };
  table("ops", ops);
  table("meshes", meshes);
  table("kinds of communication", communications);
  auto percent = [&](int64_t n) {
    return 100.0 * static_cast<double>(n) / static_cast<double>(std::max<int64_t>(1, certainty.elements));
  };
  fmt::print("{} elements of results: {:.2f}% with a bound above 1%, {:.2f}% at a discontinuity\n", certainty.elements,
             percent(certainty.vague), percent(certainty.uncertain));
  if (range.fixed) {
    EXPECT_GE(programs * static_cast<int64_t>(kStep), 500);
    EXPECT_GE(ops.size(), 40u);
    EXPECT_GE(2 * reduce, programs);
    EXPECT_GE(3 * shape, programs);
    EXPECT_GE(2 * communicate, programs);
    EXPECT_LE(100 * certainty.vague, certainty.elements);
    EXPECT_LE(100 * certainty.uncertain, certainty.elements);
    auto programsOn = [&](size_t axes) {
      int64_t n = 0;
      for (const auto& [mesh, count] : meshes) {
        const std::string sizes = mesh.substr(0, mesh.find(' '));  // y2x2
        n += mesh != "none" && static_cast<size_t>(std::ranges::count_if(sizes, ::isalpha)) == axes ? count : 0;
      }
      return n;
    };
    EXPECT_GE(programsOn(1) * static_cast<int64_t>(kStep), 100);
    EXPECT_GE(programsOn(2) * static_cast<int64_t>(kStep), 100);
  }
}

// Every kernel of the programs, for a CPU and for a GPU, through the tile interpreter; those for a GPU through the emulator, in
// batches, and some of each batch through NVRTC.
TEST(Fuzz, KernelsAgree) {
  prepare();
  Seeds range = seeds();
  const DeviceInfo gpu = DeviceInfo::hopper();
  const DeviceInfo cpu = openDevice(DeviceId::cpu(), {.threads = 1})->info();
  // Kernels of large tensors: they prefetch, store past the caches, and keep no rows.
  DeviceInfo smallCaches = cpu;
  smallCaches.l2Bytes = 256;
  smallCaches.lastCacheBytes = 1024;
  CpuCompiler compiler;
  int64_t run = 0;
  int64_t interpreted = 0;
  int64_t emulated = 0;
  int64_t programs = 0;
  int failures = 0;
  KernelCases batch;
  auto start = std::chrono::steady_clock::now();
  auto judge = [&](const KernelCases& kernels, const std::vector<std::string>& verdicts, const char* how) {
    for (size_t i = 0; i < kernels.size(); i++) {
      failures += verdicts[i].empty() ? 0 : 1;
      EXPECT_EQ(verdicts[i], "") << how << ", seed " << kernels[i]->seed << "\n"
                                 << kernels[i]->fusion << tile::toString(kernels[i]->plan.program);
    }
  };
  NvrtcCompiler nvrtc;
  const CudaCapabilities cuda = cudaCapabilities();
  const Compilation compilation{cuda.nvrtc ? &nvrtc : nullptr, range.fixed ? kCompiledStep : 1};
  auto flush = [&] {
    if (batch.empty()) {
      return;
    }
    emulated += std::ssize(batch);
    const int64_t before = nvrtc.counters().compiled;
    judge(batch, emulateKernels(batch, compilation), "emulator");
    EXPECT_EQ(nvrtc.counters().compiled - before,
              cuda.nvrtc ? (std::ssize(batch) + compilation.every - 1) / compilation.every : 0);
    batch.clear();
  };
  uint64_t step = range.fixed ? kKernelStep : 1;
  for (uint64_t seed = range.first; seed <= range.last && failures < 5; seed += step) {
    currentSeed = seed;
    Program program = randomProgram(seed);
    bool scalars = std::any_of(program.inputs.begin(), program.inputs.end(),
                               [](const Argument& a) { return !std::holds_alternative<Tensor>(a); });
    int rank = program.ranks > 1 && seed % 3 != 0 && !scalars ? static_cast<int>(seed) % program.ranks : -1;
    programs++;
    for (const DeviceInfo& device : {cpu, smallCaches, gpu}) {
      KernelCases kernels;
      try {
        kernels = kernelsOf(program, device, rank);
      } catch (const Error& e) {
        ADD_FAILURE() << "seed " << seed << ": " << e.what();
        break;
      }
      interpreted += std::ssize(kernels);
      judge(kernels, interpretKernels(kernels), "tile interpreter");
      if (device.l2Bytes == smallCaches.l2Bytes && kHasLlvm && failures == 0) {
        run += std::ssize(kernels);
        judge(kernels, runKernels(kernels, compiler), "machine code for small caches");
      }
      if (device.target == tile::Target::Gpu && failures == 0) {
        std::move(kernels.begin(), kernels.end(), std::back_inserter(batch));
      }
    }
    if (batch.size() >= 48) {
      flush();
    }
  }
  flush();
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} programs, {}, in {:.0f} s: {} kernels interpreted, {} run, {} emulated, {} compiled for sm_90a\n",
             programs, step == 1 ? "all" : fmt::format("one of {}", step), seconds, interpreted, run, emulated,
             nvrtc.counters().compiled);
  if (range.fixed) {
    EXPECT_GE(programs * static_cast<int64_t>(kKernelStep), 500);
    EXPECT_GE(interpreted, 3 * programs);
    EXPECT_GE(run, kHasLlvm ? programs : 0);
    EXPECT_GE(emulated, programs);
  }
  if (!cuda.nvrtc) {
    GTEST_SKIP() << "the kernels were interpreted and emulated, and not compiled: no NVRTC: " << cuda.nvrtcNote;
  }
}

// Ranks on one CPU share it: what the plan says of memory is not taken for measured.
TEST(Fuzz, FindsRanksWhoseMemoryIsNotMeasured) {
  prepare();
  uint64_t seed = kFirstSeed;
  Program program = randomProgram(seed);
  while (program.ranks == 1) {
    program = randomProgram(++seed);
  }
  const Reference reference = referenceOf(program);
  EXPECT_FALSE(checkRanks(program, reference, {}));
  const std::optional<Failure> failure = checkRanks(program, reference, {.measuresMemory = true});
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->message.find(": the memory of cpu is shared or is not counted\nplanned:\n"), std::string::npos)
      << failure->message;
}

// Each bug is looked for in program after program until the fuzzer sees it; there, the same without the bug agrees.
TEST(Fuzz, FindsPlantedBugs) {
  prepare();
  struct Search {
    PlantedBug bug;
    int64_t tried = 0;
    uint64_t foundIn = 0;
    std::string how;
  };
  std::vector<Search> searches;
  for (PlantedBug& bug : plantedBugs()) {
    searches.push_back({std::move(bug)});
  }
  const PlantedBug noneInKernels{"none", [](tile::Program&) { return true; }};
  const PlantedBug noneInSteps{"none", {}, [](HostProgram&, ProgramSizes&) { return true; }};
  size_t found = 0;
  for (uint64_t seed = kFirstSeed; seed <= kLastSeed && found < searches.size(); seed++) {
    currentSeed = seed;
    Program program = randomProgram(seed);
    if (traitsOf(*program.fusion).indexes) {
      continue;  // a wrong index reads memory that is not there
    }
    Reference reference = referenceOf(program);
    for (Search& s : searches) {
      if (s.foundIn != 0) {
        continue;
      }
      PlantedRun run = runPlanted(program, reference, s.bug);
      s.tried += run.applied ? 1 : 0;
      if (run.difference) {
        const PlantedRun right = runPlanted(program, reference, s.bug.kernel ? noneInKernels : noneInSteps);
        ASSERT_EQ(right.difference.value_or(""), "") << "without a bug, seed " << seed;
        s.foundIn = seed;
        s.how = run.difference->substr(0, run.difference->find('\n'));
        found++;
      }
    }
  }
  for (const Search& s : searches) {
    EXPECT_NE(s.foundIn, 0u) << s.bug.name << " was in " << s.tried << " programs";
    fmt::print("{}: found in program {} after {} that have it: {}\n", s.bug.name, s.foundIn, s.tried,
               s.how.substr(0, 100));
  }
  EXPECT_GE(found, 10u);
}

}  // namespace

}  // namespace meshfuse::fuzz
