#include "client.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>

namespace simgpu {

namespace fs = std::filesystem;

namespace {

// What this process knows of its job. A process that was forked starts anew.
struct Process {
  pid_t pid = 0;
  std::string socket;
  int connection = -1;  // open until the process ends: the threads that use a GPU may all end before
  int pinned = -1;  // descriptor
  uint64_t pinnedBase = 0;
  struct Pinned {
    size_t bytes = 0;
    Owner owner = Owner::Program;
  };
  std::map<uint64_t, Pinned> allocations;              // of pinned memory
  uint64_t pinnedEnd = 0;                              // of all allocations so far
  std::map<std::string, uint64_t, std::less<>> calls;  // for SIMGPU_FAULT
};

std::mutex mutex;
Process process;

struct Connection {
  pid_t pid = 0;
  int socket = -1;
  ~Connection() {
    if (socket >= 0) {
      close(socket);
    }
  }
};
thread_local Connection connection;

// The engine and the compiled kernels lie beside this library.
fs::path ownFolder() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&ownFolder), &info);
  return fs::absolute(fs::path(info.dli_fname)).parent_path();
}

int connectTo(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(s, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    return s;
  }
  close(s);
  return -1;
}

// Returns once the engine listens.
void startEngine(const std::string& path) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    endProgram("cuInit", "there is no pipe to the engine");
  }
  unlink(path.c_str());
  const fs::path engine = ownFolder() / "simgpu_engine";
  const std::string kernels = ownFolder() / "kernels";
  if (fork() == 0) {
    if (fork() != 0) {
      _exit(0);  // nobody waits for the engine
    }
    dup2(ends[1], 1);
    setenv("SIMGPU_KERNELS", kernels.c_str(), 0);
    unsetenv("LD_PRELOAD");
    close_range(STDERR_FILENO + 1, ~0U, 0);  // else those who wait for the end of this process's pipes would wait for the engine
    execl(engine.c_str(), engine.c_str(), path.c_str(), static_cast<char*>(nullptr));
    std::perror(engine.c_str());
    _exit(127);
  }
  close(ends[1]);
  char byte = 0;
  if (read(ends[0], &byte, 1) != 1) {
    endProgram("cuInit", "the engine " + engine.string() + " did not start");
  }
  close(ends[0]);
}

// The processes of a job have one SIMGPU_JOB, a folder; without it a process is a job of its own.
// Sets the path of the engine's socket, and returns a connection to it.
int joinJob(std::string& path) {
  const char* const job = std::getenv("SIMGPU_JOB");
  if (job == nullptr) {
    std::string folder = "/tmp/simgpu_XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) {
      endProgram("cuInit", "there is no folder for the socket of the engine");
    }
    path = folder + "/socket";
    startEngine(path);
    return connectTo(path);
  }
  fs::create_directories(job);
  path = std::string(job) + "/socket";
  const int lock = open((std::string(job) + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  flock(lock, LOCK_EX);
  int connected = connectTo(path);
  if (connected < 0) {
    startEngine(path);
    connected = connectTo(path);
  }
  close(lock);  // until here the engine does not end
  return connected;
}

void sendAll(int socket, const char* at, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = send(socket, at, bytes, MSG_NOSIGNAL);
    if (n <= 0) {
      endProgram("the simulated driver", "the engine is gone");
    }
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

void receiveAll(int socket, char* at, size_t bytes) {
  while (bytes > 0) {
    const ssize_t n = recv(socket, at, bytes, 0);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      endProgram("the simulated driver", "the engine is gone");
    }
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

ReplyWithBytes receiveReply(int socket, const Request& request) {
  ReplyWithBytes r;
  receiveAll(socket, reinterpret_cast<char*>(&r.reply), sizeof r.reply);
  r.bytes.resize(r.reply.payload);
  receiveAll(socket, r.bytes.data(), r.bytes.size());
  if (r.reply.status == kReport) {
    endProgram(request.name, r.bytes);
  }
  return r;
}

void sendWithDescriptor(int socket, const Request& request, int descriptor) {
  iovec part{const_cast<Request*>(&request), sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const h = CMSG_FIRSTHDR(&message);
  h->cmsg_level = SOL_SOCKET;
  h->cmsg_type = SCM_RIGHTS;
  h->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(h), &descriptor, sizeof descriptor);
  if (sendmsg(socket, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof request)) {
    endProgram("cuInit", "the engine is gone");
  }
}

// Addresses of device memory exist in this process, but any access to them is a fault.
void mapDevices() {
  for (uint64_t d = 0; d < kMostDevices; d++) {
    mmap(reinterpret_cast<void*>(kDeviceBase + d * kDeviceStride), kDeviceStride, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  }
}

void watchPinned();

// Says on a connection to which process it belongs; returns the number of the process.
uint64_t greet(int socket) {
  if (socket < 0) {
    endProgram("cuInit", "the engine is gone");
  }
  Request hello{.call = Call::Hello, .a = static_cast<uint64_t>(getpid()), .name = "cuInit"};
  sendWithDescriptor(socket, hello, process.pinned);
  return receiveReply(socket, hello).reply.value;
}

void startProcess() {
  const bool isFirst = process.pid == 0;
  if (process.connection >= 0) {  // it is the parent's, whose end the engine could not see otherwise
    close(process.connection);
  }
  process = Process{};
  process.pid = getpid();
  process.connection = joinJob(process.socket);
  process.pinned = memfd_create("simulated pinned memory", MFD_CLOEXEC);
  if (ftruncate(process.pinned, kPinnedStride) != 0) {
    endProgram("cuInit", "there is no memory for pinned memory");
  }
  if (isFirst) {
    mapDevices();
    watchPinned();
  }
  process.pinnedBase = kPinnedBase + greet(process.connection) * kPinnedStride;
  void* const at = reinterpret_cast<void*>(process.pinnedBase);
  if (mmap(at, kPinnedStride, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, process.pinned, 0) ==
      MAP_FAILED) {
    endProgram("cuInit", "the addresses of pinned memory are taken");
  }
}

void connectThread() {
  if (process.pid != getpid()) {
    startProcess();
  }
  if (connection.socket >= 0) {  // the parent's
    close(connection.socket);
  }
  connection.pid = getpid();
  connection.socket = connectTo(process.socket);
  greet(connection.socket);
}

}  // namespace

void endProgram(std::string_view call, std::string_view what) {
  std::fprintf(stderr, "simulated GPU: found in %.*s:\n%.*s\n", static_cast<int>(call.size()), call.data(),
               static_cast<int>(what.size()), what.data());
  std::fflush(stderr);
  _exit(kExitStatus);
}

namespace {

bool reachesDevice(Call call) {
  return call != Call::Hello && call != Call::DeviceCount && call != Call::HostAccess && (call < Call::CommunicatorId || call > Call::CommunicatorDeregister);
}

constexpr uint64_t kPage = 4096;

// Until the host accesses pinned memory again.
void hidePinned() {
  const std::lock_guard lock(mutex);
  if (process.pinnedEnd > process.pinnedBase) {
    mprotect(reinterpret_cast<void*>(process.pinnedBase), process.pinnedEnd - process.pinnedBase, PROT_NONE);
  }
}

bool mayUsePinned(Call call) { return call == Call::Launch || call == Call::Copy || call == Call::GraphLaunch; }

ReplyWithBytes exchange(Request& request, std::string_view payload) {
  if (connection.pid != getpid()) {
    const std::lock_guard lock(mutex);
    connectThread();
  }
  request.payload = payload.size();
  request.findsItLost = reachesDevice(request.call) && isToFail("lost") ? 1 : 0;
  sendAll(connection.socket, reinterpret_cast<const char*>(&request), sizeof request);
  sendAll(connection.socket, payload.data(), payload.size());
  ReplyWithBytes reply = receiveReply(connection.socket, request);
  if (mayUsePinned(request.call)) {
    hidePinned();
  }
  return reply;
}

struct sigaction afterOurs;  // what a fault did before

// An access to pinned memory since hidePinned().
void onFault(int signal, siginfo_t* info, void* context) {
  const auto at = reinterpret_cast<uint64_t>(info->si_addr);
  uint64_t begin = 0;
  Process::Pinned pinned;
  if (process.pid == getpid()) {
    const std::lock_guard lock(mutex);  // who holds it touches no pinned memory
    if (auto it = process.allocations.upper_bound(at); it != process.allocations.begin()) {
      --it;
      if (at < it->first + it->second.bytes) {
        begin = it->first;
        pinned = it->second;
      }
    }
  }
  if (begin == 0) {  // another fault: it comes again
    sigaction(signal, &afterOurs, nullptr);
    return;
  }
#ifdef __x86_64__
  constexpr greg_t kWrite = 2;
  const bool writes = (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWrite) != 0;
#else
  const bool writes = true;
#endif
  if (pinned.owner == Owner::Program) {
    const int error = errno;
    ask({.call = Call::HostAccess,
         .a = begin,
         .b = writes ? 1U : 0U,
         .bytes = pinned.bytes,
         .name = "an access of the host"});
    errno = error;
  }
  mprotect(reinterpret_cast<void*>(begin), pinned.bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ);
}

void watchPinned() {
  struct sigaction action {};
  action.sa_sigaction = onFault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &afterOurs);
}

}  // namespace

Reply ask(Request request, std::string_view payload) { return exchange(request, payload).reply; }

ReplyWithBytes askForBytes(Request request) { return exchange(request, {}); }

void* allocatePinned(size_t bytes, Owner owner) {
  const std::lock_guard lock(mutex);
  const uint64_t end = process.pinnedBase + kPinnedStride;
  const size_t needed = (bytes + kPage - 1) / kPage * kPage + kPage;  // a page that nobody owns between two
  uint64_t at = process.pinnedBase;
  for (const auto& [begin, pinned] : process.allocations) {
    if (needed <= begin - at) {
      break;
    }
    at = begin + (pinned.bytes + kPage - 1) / kPage * kPage + kPage;
  }
  if (needed > end - at) {
    return nullptr;
  }
  process.allocations[at] = {bytes, owner};
  process.pinnedEnd = std::max(process.pinnedEnd, at + needed);
  return reinterpret_cast<void*>(at);
}

bool freePinned(void* memory) {
  const std::lock_guard lock(mutex);
  return process.allocations.erase(reinterpret_cast<uint64_t>(memory)) == 1;
}

bool isPinned(const void* memory, size_t bytes) {
  const std::lock_guard lock(mutex);
  const auto begin = reinterpret_cast<uint64_t>(memory);
  auto it = process.allocations.upper_bound(begin);
  if (it == process.allocations.begin()) {
    return false;
  }
  --it;
  return begin + bytes <= it->first + it->second.bytes;
}

namespace {

// Of a variable such as SIMGPU_FAULT=allocate:3; 0 for other kinds.
uint64_t numberIn(const char* variable, std::string_view kind) {
  const char* const value = std::getenv(variable);
  const std::string_view text = value == nullptr ? "" : value;
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.substr(0, colon) != kind) {
    return 0;
  }
  return std::strtoull(text.substr(colon + 1).data(), nullptr, 10);
}

bool isCall(uint64_t number, std::string_view kind) {
  if (number == 0) {
    return false;
  }
  const std::lock_guard lock(mutex);
  return ++process.calls[std::string(kind)] == number;
}

}  // namespace

uint64_t callToFail(std::string_view kind) { return numberIn("SIMGPU_FAULT", kind); }
bool isToFail(std::string_view kind) { return isCall(callToFail(kind), kind); }
bool isPlanted(std::string_view kind) { return isCall(numberIn("SIMGPU_PLANT", kind), kind); }

}  // namespace simgpu
