// Memory and disk caches of compiled kernels, within one process and between processes.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "device/cpu/orc/cpu_compiler.h"
#include "device/cpu/orc/run_program.h"

namespace meshfuse {
namespace {

namespace fs = std::filesystem;
using tile::Target;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (fs::temp_directory_path() / "meshfuse_test_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() { fs::remove_all(path_); }
  std::string path() const { return path_ + "/cache"; }

 private:
  std::string path_;
};

std::vector<tile::Example> examples() {
  return {tile::addProgram(Target::Cpu, DataType::Float, 100),
          tile::softmaxProgram(Target::Cpu, DataType::Float, 3, 33)};
}

std::vector<tile::Program> programsOf(const std::vector<tile::Example>& list) {
  std::vector<tile::Program> programs;
  for (const tile::Example& e : list) {
    programs.push_back(e.program);
  }
  return programs;
}

// What a process that compiles the examples with this cache counts.
CpuCompilerCounters compileAndRun(const std::string& directory) {
  CpuCompiler compiler({.disk = std::make_shared<DiskCache>(directory)});
  std::vector<tile::Example> list = examples();
  std::vector<std::shared_ptr<const CpuKernel>> kernels = compiler.compile(programsOf(list));
  for (size_t i = 0; i < list.size(); i++) {
    compareWithInterpreter(list[i], *kernels[i], 16);
  }
  return compiler.counters();
}

// Runs this test binary again for the test below, and reads the counters it prints.
CpuCompilerCounters inAnotherProcess(const std::string& directory) {
  std::string command =
      "MESHFUSE_TEST_CACHE='" + directory + "' '" + fs::read_symlink("/proc/self/exe").string() +
      "' --gtest_also_run_disabled_tests --gtest_filter=CpuKernelCache.DISABLED_OfAnotherProcess 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  CpuCompilerCounters counters{.compiles = -1};
  char line[512];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    long compiles = 0;
    long disk = 0;
    if (std::sscanf(line, "counters compiles %ld disk %ld", &compiles, &disk) == 2) {
      counters = {.compiles = compiles, .diskHits = disk};
    }
  }
  EXPECT_EQ(pclose(pipe), 0);
  return counters;
}

TEST(CpuKernelCache, DISABLED_OfAnotherProcess) {
  const char* directory = std::getenv("MESHFUSE_TEST_CACHE");
  if (directory == nullptr) {
    GTEST_SKIP() << "run by the tests below";
  }
  CpuCompilerCounters c = compileAndRun(directory);
  std::printf("counters compiles %ld disk %ld\n", static_cast<long>(c.compiles), static_cast<long>(c.diskHits));
}

TEST(CpuKernelCache, SecondProcessMakesNoLlvmCall) {
  TemporaryDirectory directory;
  CpuCompilerCounters first = compileAndRun(directory.path());
  EXPECT_EQ(first.compiles, 2);
  EXPECT_EQ(first.diskHits, 0);
  CpuCompilerCounters second = inAnotherProcess(directory.path());
  EXPECT_EQ(second.compiles, 0);
  EXPECT_EQ(second.diskHits, 2);
}

TEST(CpuKernelCache, OneChangedByteMakesOneLlvmCall) {
  TemporaryDirectory directory;
  compileAndRun(directory.path());
  std::vector<fs::path> entries;
  for (const fs::directory_entry& e : fs::directory_iterator(directory.path())) {
    entries.push_back(e.path());
  }
  ASSERT_EQ(entries.size(), 2u);
  auto size = static_cast<std::streamoff>(fs::file_size(entries[0]));
  for (std::streamoff at :
       {std::streamoff{0}, std::streamoff{9}, std::streamoff{25}, std::streamoff{40}, size / 2, size - 1}) {
    {
      std::fstream file(entries[0], std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(at);
      int byte = file.get();
      file.seekp(at);
      file.put(static_cast<char>(byte ^ 0x10));
    }
    CpuCompilerCounters c = inAnotherProcess(directory.path());
    EXPECT_EQ(c.compiles, 1) << "byte " << at;
    EXPECT_EQ(c.diskHits, 1) << "byte " << at;
    CpuCompilerCounters again = inAnotherProcess(directory.path());
    EXPECT_EQ(again.compiles, 0) << "the entry was not written again";
  }
}

TEST(CpuKernelCache, MemoryServesEqualPrograms) {
  CpuCompiler compiler;
  std::vector<tile::Program> twice = programsOf(examples());
  std::vector<tile::Program> once = twice;
  twice.insert(twice.end(), once.begin(), once.end());
  std::vector<std::shared_ptr<const CpuKernel>> kernels = compiler.compile(twice);
  EXPECT_EQ(compiler.counters().compiles, 2);
  EXPECT_EQ(kernels[0], kernels[2]);
  EXPECT_EQ(kernels[1], kernels[3]);
  EXPECT_EQ(compiler.compile(once)[0], kernels[0]);
  EXPECT_EQ(compiler.counters().compiles, 2);
  EXPECT_EQ(compiler.counters().memoryHits, 2);
}

TEST(CpuKernelCache, IsBoundedAndKernelsOutliveIt) {
  std::shared_ptr<const CpuKernel> kept;
  std::vector<tile::Example> list = examples();
  {
    CpuCompiler compiler({.kernels = 1});
    std::vector<tile::Program> programs = programsOf(list);
    kept = compiler.compile(programs)[0];
    compiler.compile(programs);
    EXPECT_GE(compiler.counters().compiles, 3);
  }
  compareWithInterpreter(list[0], *kept, 0);
}

TEST(CpuKernelCache, ThreadsShareACompiler) {
  CpuCompiler compiler;
  std::vector<tile::Example> list = examples();
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; i++) {
        ASSERT_EQ(compiler.compile(programsOf(list)).size(), list.size());
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  EXPECT_LE(compiler.counters().compiles, 6);
}

TEST(CpuKernelCache, TargetsDoNotShareEntries) {
  TemporaryDirectory directory;
  auto disk = std::make_shared<DiskCache>(directory.path());
  std::vector<tile::Program> programs = programsOf(examples());
  CpuCompiler wide({.disk = disk});
  wide.compile(programs);
  CpuCompiler narrow({.disk = disk, .target = narrowerTarget(hostTarget(), 16)});
  narrow.compile(programs);
  EXPECT_EQ(narrow.counters().compiles, 2);
}

// While it lives, the system has no room for the stack of a new thread.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t tooLarge;
    pthread_getattr_default_np(&tooLarge);
    pthread_attr_setstacksize(&tooLarge, size_t{1} << 50);
    pthread_setattr_default_np(&tooLarge);
    pthread_attr_destroy(&tooLarge);
  }
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_;
};

TEST(CpuCompilerThreads, AreTheCallersAloneIfTheSystemGivesNoMore) {
  const std::vector<tile::Example> list = examples();
  CpuCompiler compiler({.threads = 4});
  std::vector<std::shared_ptr<const CpuKernel>> kernels;
  {
    const NoMoreThreads none;
    ASSERT_THROW(std::thread([] {}).join(), std::system_error);
    kernels = compiler.compile(programsOf(list));
  }
  ASSERT_EQ(kernels.size(), list.size());
  for (size_t i = 0; i < list.size(); i++) {
    compareWithInterpreter(list[i], *kernels[i], 16);
  }
  EXPECT_EQ(compiler.counters().compiles, std::ssize(list));
}

}  // namespace
}  // namespace meshfuse
