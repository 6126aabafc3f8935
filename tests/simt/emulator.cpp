#include "simt/emulator.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "simt/host_text.h"

namespace meshfuse::simt {

namespace fs = std::filesystem;

namespace {

constexpr const char* kDeviceFolder = MESHFUSE_SOURCE_DIR "/tests/simt/device";

std::string readFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Runs a program with its output in `log`; its exit status.
int64_t execute(const std::vector<std::string>& words, const fs::path& log) {
  pid_t pid = fork();
  invariant(pid >= 0, "[simt] fork failed: {}", std::strerror(errno));
  if (pid == 0) {
    int64_t fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    std::vector<char*> argv;
    for (const std::string& w : words) {
      argv.push_back(const_cast<char*>(w.c_str()));
    }
    argv.push_back(nullptr);
    unsetenv("LD_PRELOAD");
    setenv("ASAN_OPTIONS", "detect_leaks=0:abort_on_error=0:exitcode=77", 1);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void compile(const std::vector<std::string>& words, const fs::path& output, const fs::path& log) {
  fs::path part = output;
  part += fmt::format(".{}", getpid());
  std::vector<std::string> all = {"g++",   "-std=c++20", "-w",         "-g0", "-fsanitize=address", "-ffp-contract=off",
                                  "-pipe", "-I",         kDeviceFolder};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), {"-o", part});
  int64_t status = execute(all, log);
  invariant(status == 0, "[simt] g++ failed with status {}:\n{}", status, readFile(log).substr(0, 4000));
  fs::rename(part, output);  // several test processes may build the same engine
}

// Beside the folder of the running executable, in the build tree.
fs::path workFolder() {
  fs::path folder = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "simt";
  fs::create_directories(folder);
  return folder;
}

// The executable that runs kernels, built once per version of its sources.
fs::path engine() {
  std::string key;
  for (const char* name : {"engine.h", "blocks.h", "blocks.cc", "engine.cc"}) {
    key += readFile(fs::path(kDeviceFolder) / name);
  }
  fs::path path = workFolder() / ("engine_" + hashText(key).hex());
  if (!fs::exists(path)) {
    fs::path log = path;
    log += fmt::format(".{}.log", getpid());
    const std::string folder = kDeviceFolder;
    compile({"-O1", "-rdynamic", folder + "/engine.cc", folder + "/blocks.cc", "-ldl"}, path, log);
    fs::remove(log);
  }
  return path;
}

std::string batchText(std::span<const Launch> launches) {
  std::string text =
      "#include \"prelude.h\"\ntemplate <class A> void simtCall(void (*kernel)(A), const void* args) { kernel(*(const "
      "A*)args); }\n";
  for (size_t i = 0; i < launches.size(); i++) {
    const CudaSource& s = launches[i].kernel.source;
    text += fmt::format("#define {0} simt_kernel_{1}\nnamespace k{1} {{\n{2}}}\n#undef {0}\n", s.entry, i,
                        hostText(s.text));
    text += fmt::format(
        "extern \"C\" void simt_entry_{0}(const void* args) {{ simtCall(k{0}::simt_kernel_{0}, args); }}\n", i);
  }
  return text;
}

// -- buffers ----------------------------------------------------------------------------------------------------------

struct Buffer {
  TensorMemory memory;
  size_t offset = 0;  // in the data file
};

struct Job {
  std::vector<Buffer> buffers;
  std::optional<size_t> refused;  // offset of the RefusedIndexRecord in the data file
  int64_t blocks = 1;
  int64_t shared = 0;
};

char kindOf(const tile::TensorParam& t) {
  switch (t.memory) {
    case tile::Memory::Input:
      return 'i';
    case tile::Memory::Output:
      return 'o';
    case tile::Memory::InOut:
      return 'x';
    case tile::Memory::Workspace:
      return t.zeroed ? 'z' : 'w';
    case tile::Memory::Scratch:
      break;
  }
  throwInternalError("[simt] scratch has no slot");
}

Job plan(const Launch& launch, size_t& dataBytes) {
  LaunchPlan plan = planLaunch(launch);
  Job job{.blocks = plan.blocks, .shared = plan.sharedBytes};
  for (const TensorMemory& memory : plan.tensors) {
    job.buffers.push_back({memory, dataBytes});
    dataBytes += (static_cast<size_t>(memory.bytes) + 63) / 64 * 64;
  }
  if (launch.kernel.program->checksIndices()) {
    job.refused = dataBytes;
    dataBytes += 64;
  }
  return job;
}

// One line of a number of words for each thing that the engine needs to know of a launch.
std::string jobText(const Launch& launch, const Job& job, size_t index) {
  const tile::Program& p = *launch.kernel.program;
  const CudaSource& s = launch.kernel.source;
  std::string text =
      fmt::format("run simt_entry_{} {} {} {} {} {} {} {} {}\n", index, s.threads, s.cluster, job.blocks, job.shared,
                  launch.seed, launch.countSectors ? 1 : 0, s.slots.size(), job.buffers.size() + (job.refused ? 1 : 0));
  for (uint64_t v : launch.slots) {
    text += fmt::format("{} ", v);
  }
  if (job.refused) {
    text += "0";  // a buffer
  }
  text += "\n";
  for (const Buffer& b : job.buffers) {
    const tile::TensorParam& t = p.tensors[b.memory.tensor];
    int64_t size = dataTypeSize(t.dtype);
    text += fmt::format("{} {} {} {} {} {} {} {}\n", b.memory.slot, b.offset, b.memory.bytes, b.memory.below,
                        std::max(t.alignment, size), kindOf(t), size, t.name);
  }
  if (job.refused) {
    const size_t bytes = sizeof(RefusedIndexRecord);
    text += fmt::format("{} {} {} 0 8 x 8 refused\n", launch.slots.size(), *job.refused, bytes);
  }
  return text;
}

struct TemporaryFolder {
  TemporaryFolder() {
    std::string pattern = (fs::exists("/dev/shm") ? fs::path("/dev/shm") : workFolder()) / "meshfuse_simt_XXXXXX";
    invariant(mkdtemp(pattern.data()) != nullptr, "[simt] no temporary folder {}: {}", pattern, std::strerror(errno));
    path = pattern;
  }
  ~TemporaryFolder() { fs::remove_all(path); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  fs::path path;
};

// Fills in what the results file says; the number of jobs begun.
size_t readResults(const fs::path& path, std::vector<Result>& results) {
  std::ifstream in(path);
  std::string line;
  size_t begun = 0;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "begin") {
      words >> begun;
      results[begun] = Result{};
      begun++;
    } else if (word == "fault" && begun > 0) {
      results[begun - 1].faults.push_back(line.substr(6));
      results[begun - 1].faultCount++;
    } else if (word == "buffer") {
      TensorTraffic t;
      size_t i = 0;
      words >> i >> t.readBytes >> t.writtenBytes >> t.writtenElements >> t.requests >> t.sectors >> t.idealSectors;
      results[begun - 1].tensors.push_back(t);
    } else if (word == "shared") {
      words >> results[begun - 1].sharedConflicts;
    } else if (word == "done") {
      size_t i = 0;
      words >> i >> results[i].faultCount >> results[i].milliseconds;
    }
  }
  return begun;
}

}  // namespace

std::vector<Result> run(std::span<const Launch> launches) {
  std::vector<Result> results(launches.size());
  if (launches.empty()) {
    return results;
  }
  TemporaryFolder folder;
  fs::path library = folder.path / "batch.so";
  std::ofstream(folder.path / "batch.cc") << batchText(launches);
  compile({"-O0", "-shared", "-fPIC", folder.path / "batch.cc"}, library, folder.path / "log");

  size_t dataBytes = 0;
  std::vector<Job> jobs;
  std::string text = fmt::format("library {}\ndata {}\n", library.string(), (folder.path / "data").string());
  for (size_t i = 0; i < launches.size(); i++) {
    jobs.push_back(plan(launches[i], dataBytes));
    text += jobText(launches[i], jobs[i], i);
  }
  std::ofstream(folder.path / "jobs") << text;
  std::string data(dataBytes, '\0');
  for (const Job& job : jobs) {
    for (const Buffer& b : job.buffers) {
      std::memcpy(data.data() + b.offset, b.memory.begin, b.memory.bytes);
    }
  }
  std::ofstream(folder.path / "data", std::ios::binary) << data;

  // A launch that ends the process is the last one of that process; another process runs the launches after it.
  for (size_t first = 0; first < launches.size();) {
    int64_t status = execute({engine().string(), folder.path / "jobs", folder.path / "results", std::to_string(first)},
                             folder.path / "log");
    size_t begun = readResults(folder.path / "results", results);
    invariant(begun > first || status == 0, "[simt] the engine failed with status {}:\n{}", status,
              readFile(folder.path / "log").substr(0, 4000));
    if (status == 0) {
      break;
    }
    Result& last = results[begun - 1];
    if (last.faults.empty()) {
      last.faults.push_back(fmt::format("the kernel ended its process with status {}: {}", status,
                                        readFile(folder.path / "log").substr(0, 2000)));
    }
    last.faultCount = std::max<int64_t>(1, std::ssize(last.faults));
    first = begun;
  }
  data = readFile(folder.path / "data");
  for (size_t i = 0; i < launches.size(); i++) {
    results[i].text = hashText(launches[i].kernel.source.text);
    for (const Buffer& b : jobs[i].buffers) {
      if (launches[i].kernel.program->tensors[b.memory.tensor].memory != tile::Memory::Input) {
        std::memcpy(b.memory.begin, data.data() + b.offset, b.memory.bytes);
      }
    }
    if (jobs[i].refused) {
      results[i].tensors.resize(jobs[i].buffers.size());
      std::memcpy(&results[i].refused, data.data() + *jobs[i].refused, sizeof(RefusedIndexRecord));
    }
  }
  return results;
}

Result run(const Launch& launch) { return run(std::span(&launch, 1))[0]; }

}  // namespace meshfuse::simt
