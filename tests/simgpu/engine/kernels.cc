#include "kernels.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "../../simt/device/blocks.h"
#include "../../simt/device/engine.h"
#include "../../simt/host_text.h"
#include "memory.h"

namespace simgpu {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPrelude = SIMGPU_SOURCE_DIR "/tests/simt/device";

std::string readFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// FNV-1a: names a file; two texts with one hash would need the same length and name too.
std::string hashOf(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  }
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

int execute(const std::vector<std::string>& words, const fs::path& log) {
  const pid_t pid = fork();
  if (pid == 0) {
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    std::vector<char*> argv;
    for (const std::string& w : words) {
      argv.push_back(const_cast<char*>(w.c_str()));
    }
    argv.push_back(nullptr);
    unsetenv("LD_PRELOAD");
    execvp(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// A folder with the compiled prelude, for sources that begin with it; its name holds the hash of what it is made of.
fs::path compiledPrelude(const std::vector<std::string>& compiler, const fs::path& folder) {
  std::string made;
  for (const std::string& word : compiler) {
    made += word + "\n";
  }
  for (const char* const header : {"prelude.h", "engine.h"}) {
    made += readFile(fs::path(kPrelude) / header);
  }
  const fs::path own = folder / ("prelude_" + hashOf(made));
  if (!fs::exists(own)) {
    const fs::path part = own.string() + "." + std::to_string(getpid());
    fs::create_directories(part);
    std::ofstream(part / "prelude.h") << "#include \"" << kPrelude << "/prelude.h\"\n";
    std::vector<std::string> words = compiler;
    words.insert(words.end(), {"-x", "c++-header", part / "prelude.h", "-o", part / "prelude.h.gch"});
    execute(words, part / "log");  // sources include the header itself where this fails
    std::error_code anotherProcessWasFirst;
    fs::rename(part, own, anotherProcessWasFirst);
    fs::remove_all(part);
  }
  return own;
}

// -- a launch ---------------------------------------------------------------------------------------------------------

// The launch that this process runs; see runKernel.
struct Current {
  Memory* memory = nullptr;
  std::vector<ByteRange> read;
  std::vector<ByteRange> written;
};
Current* current = nullptr;

void note(std::vector<ByteRange>& ranges, uint64_t begin, uint64_t end) {
  if (!ranges.empty() && ranges.back().second == begin) {
    ranges.back().second = end;
  } else {
    ranges.emplace_back(begin, end);
  }
}

std::vector<ByteRange> merged(std::vector<ByteRange> ranges) {
  std::ranges::sort(ranges);
  std::vector<ByteRange> all;
  for (const ByteRange& r : ranges) {
    if (!all.empty() && r.first <= all.back().second) {
      all.back().second = std::max(all.back().second, r.second);
    } else {
      all.push_back(r);
    }
  }
  return all;
}

void writeAll(int fd, const void* bytes, size_t count) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = write(fd, at, count);
    if (done <= 0) {
      _exit(3);
    }
    at += done;
    count -= static_cast<size_t>(done);
  }
}

template <class T>
bool readValue(std::string_view& from, T& value) {
  if (from.size() < sizeof(T)) {
    return false;
  }
  std::memcpy(&value, from.data(), sizeof(T));
  from.remove_prefix(sizeof(T));
  return true;
}

void writeRanges(int fd, const std::vector<ByteRange>& ranges) {
  const uint64_t count = ranges.size();
  writeAll(fd, &count, sizeof count);
  writeAll(fd, ranges.data(), count * sizeof(ByteRange));
}

bool readRanges(std::string_view& from, std::vector<ByteRange>& ranges) {
  uint64_t count = 0;
  if (!readValue(from, count) || from.size() / sizeof(ByteRange) < count) {
    return false;
  }
  ranges.resize(count);
  std::memcpy(static_cast<void*>(ranges.data()), from.data(), count * sizeof(ByteRange));
  from.remove_prefix(count * sizeof(ByteRange));
  return true;
}

[[noreturn]] void runHere(const Kernel& kernel, const LaunchShape& shape, const std::string& parameters, Memory& memory,
                          const Seeds& seeds, int out) {
  Current here{.memory = &memory};
  current = &here;
  std::vector<std::string> faults;
  std::vector<uint64_t> arguments(parameters.size() / 8 + 1);  // aligned
  std::memcpy(arguments.data(), parameters.data(), parameters.size());
  const simt::Grid grid{.kernel = kernel.run,
                        .arguments = arguments.data(),
                        .blocks = shape.blocks,
                        .threads = static_cast<int>(shape.threads),
                        .cluster = static_cast<int>(shape.cluster),
                        .shared = static_cast<int>(shape.shared),
                        .seed = seeds.order,
                        .errorPattern = seeds.errors,
                        .report =
                            [&](const std::string& fault) {
                              const uint64_t bytes = fault.size();
                              writeAll(out, &bytes, sizeof bytes);
                              writeAll(out, fault.data(), bytes);
                            },
                        .afterBlocks = {}};
  simt::runGrid(grid);
  const uint64_t end = 0;
  writeAll(out, &end, sizeof end);
  writeRanges(out, merged(std::move(here.read)));
  writeRanges(out, merged(std::move(here.written)));
  _exit(0);
}

Run readRun(std::string_view answer, int status) {
  Run run;
  uint64_t bytes = 0;
  while (readValue(answer, bytes) && bytes > 0 && bytes <= answer.size()) {
    run.faults.emplace_back(answer.substr(0, bytes));
    answer.remove_prefix(bytes);
  }
  if (!readRanges(answer, run.read) || !readRanges(answer, run.written)) {
    if (run.faults.empty()) {
      run.faults.push_back(WIFSIGNALED(status) ? "the kernel ended with signal " + std::to_string(WTERMSIG(status))
                                               : "the kernel ended its process");
    }
    run.read.clear();
    run.written.clear();
  }
  return run;
}

}  // namespace

std::pair<Kernel, std::string> compileKernel(const std::string& name, const std::string& text,
                                             const std::string& folder) {
  const std::string source =
      "#include \"prelude.h\"\nnamespace kernels {\n" + meshfuse::simt::hostText(text) +
      "}\n"
      "template <class A> constexpr unsigned long bytesOf(void (*)(A)) { return sizeof(A); }\n"
      "template <class A> void call(void (*kernel)(A), const void* a) { kernel(*(const A*)a); }\n"
      "extern \"C\" const unsigned long simgpu_bytes = bytesOf(kernels::" +
      name + ");\nextern \"C\" void simgpu_run(const void* a) { call(kernels::" + name + ", a); }\n";
  const std::string key = hashOf(source + readFile(fs::path(kPrelude) / "prelude.h"));
  fs::create_directories(folder);
  const fs::path library = fs::path(folder) / (name.substr(0, 100) + "_" + key + ".so");
  if (!fs::exists(library)) {
    const std::string part = library.string() + "." + std::to_string(getpid());
    std::ofstream(part + ".cc") << source;
    std::vector<std::string> words = {"g++", "-std=c++20", "-w", "-g0", "-O0", "-ffp-contract=off", "-pipe", "-fPIC"};
    const std::string prelude = compiledPrelude(words, folder);
    words.insert(words.end(), {"-nostdlib", "-shared", "-I", prelude, part + ".cc", "-lgcc", "-o",
                               part});  // the engine has the rest
    const int status = execute(words, part + ".log");
    const std::string log = readFile(part + ".log");
    fs::remove(part + ".cc");
    fs::remove(part + ".log");
    if (status != 0) {
      return {{}, "the kernel " + name + " does not compile for the host:\n" + log.substr(0, 4000)};
    }
    fs::rename(part, library);
  }
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return {{}, dlerror()};
  }
  return {{.name = name,
           .run = reinterpret_cast<void (*)(const void*)>(dlsym(handle, "simgpu_run")),
           .parameterBytes = *static_cast<const unsigned long*>(dlsym(handle, "simgpu_bytes"))},
          ""};
}

Run runKernel(const Kernel& kernel, const LaunchShape& shape, const std::string& parameters, Memory& memory,
              const Seeds& seeds) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return {.faults = {"no pipe to the process of the kernel"}};
  }
  const pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    runHere(kernel, shape, parameters, memory, seeds, ends[1]);
  }
  close(ends[1]);
  std::string answer;
  char part[65536];
  for (ssize_t n = 0; (n = read(ends[0], part, sizeof part)) > 0;) {
    answer.append(part, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return readRun(answer, status);
}

}  // namespace simgpu

// -- what a running kernel calls --------------------------------------------------------------------------------------

namespace simt {

void global(const void* at, int bytes, Touch touch, int site) {
  simgpu::Current& here = *simgpu::current;
  const auto begin = reinterpret_cast<uint64_t>(at);
  const uint64_t end = begin + static_cast<uint64_t>(bytes);
  if (begin % static_cast<uint64_t>(bytes) != 0) {
    fault("misaligned access of " + std::to_string(bytes) + " bytes", site);
  }
  const bool writes = touch == Touch::Store;
  if (const std::string why = here.memory->refusal(begin, end); !why.empty()) {
    fault(std::string(writes ? "store to " : "load of ") + why, site);
    _exit(4);  // the access itself would do damage
  }
  if (writes) {
    noteStore();
    here.memory->noteWritten(begin, end);
    simgpu::note(here.written, begin, end);
    return;
  }
  if (here.memory->unwritten(begin, end)) {
    fault("load of bytes that nobody has written, at " + std::to_string(begin), site);
  }
  simgpu::note(here.read, begin, end);
}

int ticket(int* counter, int workers, int site) {
  global(counter, sizeof *counter, Touch::Shared, site);
  takeTicket(site);
  global(counter, sizeof *counter, Touch::Store, site);
  const int number = *counter;
  *counter = number + 1 == workers ? 0 : number + 1;
  return number;
}

void latest(unsigned* at, unsigned value, int site) {
  global(at, sizeof *at, Touch::Shared, site);
  global(at, sizeof *at, Touch::Store, site);
  *at = std::max(*at, value);
}

}  // namespace simt
