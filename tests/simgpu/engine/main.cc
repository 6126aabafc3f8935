// The engine: one process a job that owns all simulated devices. simgpu_engine SOCKET
//
// It serves the processes that connect to the socket, runs their work beside that, and ends when the last one has gone.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "../protocol.h"
#include "graph_calls.h"
#include "work.h"

namespace simgpu {

namespace {

struct Connection {
  int socket = -1;
  uint64_t process = 0;  // 0: it has not said who it is
  uint64_t thread = 0;   // which no other connection has
  bool waits = false;    // the reply comes when all of this has happened
  std::vector<Devices::Mark> awaited;
  uint64_t rank = 0;            // of a communicator: its state is not kInProgress
  std::optional<Request> free;  // and then frees this
  std::optional<Reply> answer;  // of a call that need not wait: the host learns nothing from it
  uint32_t device = 0;          // on which it waits
};

struct Process {
  uint64_t pid = 0;
  int connections = 0;
};

uint64_t setting(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoull(text, nullptr, 10);
}

bool readAll(int socket, void* to, size_t bytes) {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t n = recv(socket, at, bytes, 0);
    if (n <= 0) {
      if (n < 0 && errno == EINTR) {
        continue;
      }
      return false;
    }
    at += n;
    bytes -= static_cast<size_t>(n);
  }
  return true;
}

bool isCommunicatorCall(Call call) { return call >= Call::CommunicatorId && call <= Call::CommunicatorDeregister; }

class Engine {
 public:
  Engine(int listener, const Options& options) : listener_(listener), devices_(options) {}

  void serve() {
    bool hadOne = false;
    while (!hadOne || !connections_.empty()) {
      std::optional<Devices::Time> next;
      const bool ran = devices_.step(next);
      answerWaiting();
      // The state of a communicator may change with time alone.
      constexpr int kNextState = 1;  // in milliseconds
      const bool awaitsState = std::ranges::any_of(connections_, [](const Connection& c) { return c.rank != 0; });
      int timeout = ran ? 0 : awaitsState ? kNextState : -1;
      if (!ran && next) {
        const auto left = *next - std::chrono::steady_clock::now();
        const int soon = std::max(static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()), 0);
        timeout = timeout < 0 ? soon : std::min(timeout, soon);
      }
      std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
      for (const Connection& c : connections_) {
        polled.push_back({c.socket, POLLIN, 0});
      }
      if (poll(polled.data(), polled.size(), timeout) <= 0) {
        continue;
      }
      for (size_t i = polled.size(); i-- > 1;) {
        if (polled[i].revents != 0 && !receive(connections_[i - 1])) {
          leave(i - 1);
        }
      }
      if (polled[0].revents != 0) {
        const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (socket >= 0) {
          connections_.push_back({.socket = socket, .thread = ++lastThread_});
          hadOne = true;
        }
      }
    }
  }

 private:
  void leave(size_t i) {
    const Connection gone = connections_[i];
    close(gone.socket);
    connections_.erase(connections_.begin() + static_cast<std::ptrdiff_t>(i));
    const auto it = processes_.find(gone.process);
    if (it == processes_.end() || --it->second.connections > 0) {
      return;
    }
    for (const std::string& what : devices_.forget(gone.process)) {
      std::fprintf(stderr, "simulated GPU: process %llu ended without freeing %s\n",
                   static_cast<unsigned long long>(it->second.pid), what.c_str());
    }
    processes_.erase(it);
  }

  void reply(const Connection& c, Reply r, std::string text = {}) {
    if (!devices_.reports().empty()) {  // whatever was asked: the program has done something wrong
      r.status = kReport;
      text.clear();
      for (const std::string& what : devices_.reports()) {
        text += what + "\n";
      }
    }
    r.payload = text.size();
    const std::string bytes = std::string(reinterpret_cast<const char*>(&r), sizeof r) + text;
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(c.socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) {
        return;
      }
      sent += static_cast<size_t>(n);
    }
  }

  void answerWaiting() {
    for (Connection& c : connections_) {
      answerIfEnded(c);
    }
  }

  void answerIfEnded(Connection& c) {
    if (!c.waits) {
      return;
    }
    const auto hasEnded = [&](const Devices::Mark& m) { return devices_.hasEnded(m); };
    const bool isOver = !devices_.reports().empty();
    Reply a;
    a.status = c.rank == 0 ? devices_.failureOf(c.process, c.device) : kSuccess;
    const bool isWaiting = !std::ranges::all_of(c.awaited, hasEnded);
    if (!isOver && a.status == kSuccess && isWaiting) {
      return;
    }
    if (c.rank != 0 && !isOver) {
      a = stateOf(c.rank);
      if (a.value == kInProgress) {
        return;
      }
    }
    if (a.status != kSuccess) {
      // what it waits for never happens
    } else if (c.answer) {
      a = *c.answer;
    } else if (!c.free) {
      for (const Devices::Mark& m : c.awaited) {
        devices_.tellHost(c.process, m);
      }
    } else if (!isOver) {
      a.status = devices_.free(*c.free, c.process);
    }
    c.waits = false;
    c.awaited.clear();
    c.rank = 0;
    c.free.reset();
    c.answer.reset();
    reply(c, a);
  }

  void wait(Connection& c, uint32_t device, std::vector<Devices::Mark> marks) {
    c.device = device;
    c.awaited = std::move(marks);
    c.waits = true;
    answerIfEnded(c);
  }

  Reply stateOf(uint64_t handle) {
    Communicators& all = devices_.communicators();
    const Communicators::Rank* const r = all.find(handle);
    if (r == nullptr) {  // it has ended meanwhile
      return {.value = kWrongUsage};
    }
    return {.value = static_cast<uint64_t>(all.state(handle)),
            .more = static_cast<uint64_t>(r->rank) | static_cast<uint64_t>(r->ranks) << 32};
  }

  // False if the connection has ended.
  bool receive(Connection& c) {
    Request r;
    int descriptor = -1;
    iovec part{&r, sizeof r};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptor)];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(c.socket, &message, MSG_CMSG_CLOEXEC);
    if (n <= 0 || !readAll(c.socket, reinterpret_cast<char*>(&r) + n, sizeof r - static_cast<size_t>(n))) {
      return false;
    }
    if (const cmsghdr* h = CMSG_FIRSTHDR(&message); h != nullptr && h->cmsg_type == SCM_RIGHTS) {
      std::memcpy(&descriptor, CMSG_DATA(h), sizeof descriptor);
    }
    std::string payload(r.payload, '\0');
    if (!readAll(c.socket, payload.data(), payload.size())) {
      return false;
    }
    if (r.call == Call::Hello) {
      return welcome(c, r, descriptor);
    }
    answer(c, r, payload);
    return true;
  }

  bool welcome(Connection& c, const Request& r, int pinned) {
    auto it = std::ranges::find_if(processes_, [&](const auto& p) { return p.second.pid == r.a; });
    if (it == processes_.end()) {
      const uint64_t number = nextProcess_++;
      void* const at = reinterpret_cast<void*>(kPinnedBase + number * kPinnedStride);
      const int rights = PROT_READ | PROT_WRITE;
      if (pinned < 0 || mmap(at, kPinnedStride, rights, MAP_SHARED | MAP_FIXED_NOREPLACE, pinned, 0) == MAP_FAILED) {
        std::perror("simulated GPU: mmap of pinned memory");
        return false;
      }
      it = processes_.emplace(number, Process{.pid = r.a}).first;
    }
    if (pinned >= 0) {
      close(pinned);
    }
    it->second.connections++;
    c.process = it->first;
    reply(c, {.value = c.process});
    return true;
  }

  void answer(Connection& c, const Request& r, const std::string& payload) {
    Reply a;
    std::string text;
    const auto expectStream = [&] { return devices_.isStream(r.stream); };
    const auto expectEvent = [&] { return devices_.isEvent(r.a); };
    const std::string posting = devices_.communicators().postingOn(r.stream);
    if (!posting.empty() && (r.call == Call::StreamWait || r.call == Call::StreamQuery)) {
      devices_.report(std::string(r.name) + ": " + posting +
                      " is in progress on the stream: wait for ncclSuccess before");
    }
    if (r.device >= devices_.options().devices) {
      a.status = kInvalidDevice;
      return reply(c, a);
    }
    if (r.findsItLost != 0) {
      devices_.loseDevice(devices_.deviceOf(r));
    }
    if (!isCommunicatorCall(r.call) && r.call != Call::DeviceCount) {
      a.status = devices_.failureOf(c.process, devices_.deviceOf(r));
      if (a.status != kSuccess) {
        return reply(c, a);
      }
    }
    const Caller caller{.process = c.process, .thread = c.thread};
    a.status = devices_.captureRefusal(r, caller);
    if (a.status != kSuccess) {
      return reply(c, a);
    }
    using enum Call;
    using Kind = Work::Kind;
    switch (r.call) {
      case Hello:
        break;
      case UnsafeCall:
        if (r.b != 0) {
          devices_.checkWait(r, c.process);
        }
        if (r.b != 0 && devices_.waitsNow()) {
          c.answer = a;
          return wait(c, r.device, allWork(c, r.device));
        }
        break;
      case DeviceCount:
        a.value = devices_.options().devices;
        break;
      case Allocate:
        if (r.stream == kNow) {
          devices_.checkWait(r, c.process);
        }
        a.status = devices_.allocate(r, c.process, a.value);
        if (a.status == kSuccess && r.stream == kNow && devices_.waitsNow()) {
          c.answer = a;
          return wait(c, r.device, allWork(c, r.device));
        }
        break;
      case Free:
        if (r.stream == kNow) {  // waits for all work of the device, as the real one does
          devices_.checkWait(r, c.process);
          c.free = r;
          return wait(c, r.device, allWork(c, r.device));
        }
        a.status = devices_.free(r, c.process);
        break;
      case Copy:
        a.status = devices_.enqueue(r, c.process, {.kind = Kind::Copy, .to = r.a, .from = r.b, .bytes = r.bytes});
        a.value = devices_.isCapturing(r.stream) ? 1 : 0;
        break;
      case Fill:
        a.status = devices_.enqueue(r, c.process, {.kind = Kind::Fill, .to = r.a, .from = r.b, .bytes = r.bytes});
        break;
      case LoadFunction: {
        const size_t end = payload.find('\0');
        a.status = devices_.loadFunction(payload.substr(0, end), payload.substr(end + 1), a, text);
        break;
      }
      case Launch: {
        Work work{.kind = Kind::Launch};
        std::memcpy(&work.shape, payload.data(), sizeof work.shape);
        work.parameters = payload.substr(sizeof work.shape);
        a.status = devices_.enqueue(r, c.process, std::move(work));
        break;
      }
      case Product: {
        Work work{.kind = Kind::Product};
        std::memcpy(&work.product, payload.data(), sizeof work.product);
        a.status = devices_.enqueue(r, c.process, std::move(work));
        break;
      }
      case StreamCreate:
        a.status = devices_.createStream(r.device, c.process, a.value);
        break;
      case StreamDestroy:
        a.status = devices_.destroyStream(r.stream);
        break;
      case StreamWait:
        if (expectStream()) {
          if (r.a != 0) {
            c.answer = a;
          }
          return wait(c, devices_.deviceOf(r), {devices_.markOfStream(r.stream)});
        }
        a.status = kInvalidHandle;
        break;
      case StreamQuery:
        a.status = !expectStream() ? kInvalidHandle : query(c, devices_.markOfStream(r.stream));
        break;
      case StreamWaitEvent:
        a.status = !expectEvent() ? kInvalidHandle : devices_.enqueue(r, c.process, {.kind = Kind::Wait, .event = r.a});
        break;
      case EventCreate:
        a.value = devices_.createEvent(r.device, r.b == 0);
        break;
      case EventDestroy:
        a.status = devices_.destroyEvent(r.a);
        break;
      case EventRecord:
        a.status = !expectEvent()
                       ? kInvalidHandle
                       : devices_.enqueue(r, c.process, {.kind = Kind::Record, .event = r.a, .isExternal = r.b != 0});
        break;
      case EventWait:
        if (expectEvent()) {
          return wait(c, devices_.deviceOf(r), {devices_.markOfEvent(r.a)});
        }
        a.status = kInvalidHandle;
        break;
      case EventQuery:
        a.status = !expectEvent() ? kInvalidHandle : query(c, devices_.markOfEvent(r.a));
        break;
      case EventTime: {
        std::chrono::nanoseconds time{};
        a.status = devices_.timeBetween(r.a, r.b, time);
        a.value = static_cast<uint64_t>(time.count());
        break;
      }
      case DeviceWait:
        return wait(c, r.device, allWork(c, r.device));
      case MemoryInfo:
        a.value = devices_.memory(r.device).total() - devices_.memory(r.device).used();
        a.more = devices_.memory(r.device).total();
        break;
      case IsAllocated: {
        const Allocation* const owner = devices_.memory(r.device).owner(r.a);
        a.value = owner != nullptr && !owner->isFreed ? 1 : 0;
        break;
      }
      case HostAccess:
        devices_.accessPinned(r, c.process);
        break;
      case CommunicatorId:
        a.value = devices_.communicators().newId();
        break;
      default:
        if (isGraphCall(r.call)) {
          a = answerGraphCall(devices_, r, caller, payload, text);
          break;
        }
        return answerOfCommunicator(c, r, payload);
    }
    reply(c, a, text);
  }

  void answerOfCommunicator(Connection& c, const Request& r, const std::string& payload) {
    Communicators& all = devices_.communicators();
    Reply a;
    const auto report = [&](const std::string& why) {
      if (!why.empty()) {
        devices_.report(std::string(r.name) + ": " + why);
      }
    };
    if (r.call == Call::CommunicatorInit) {
      NewRank rank;
      std::memcpy(&rank, payload.data(), sizeof rank);
      a.value = all.init(rank, c.process, c.thread, r.device);
      if (devices_.failureOf(c.process, r.device) != kSuccess) {
        all.fail(a.value, kCudaFailed);
      }
      return reply(c, a);
    }
    if (all.find(r.a) == nullptr) {
      a.value = kWrongUsage;
      return reply(c, a);
    }
    using enum Call;
    switch (r.call) {
      case CommunicatorSplit: {
        RankSplit split;
        std::memcpy(&split, payload.data(), sizeof split);
        a.value = static_cast<uint64_t>(devices_.split(r, c.process, split, a.more));
        break;
      }
      case CommunicatorPost: {
        std::vector<CollectiveCall> calls(payload.size() / sizeof(CollectiveCall));
        std::memcpy(calls.data(), payload.data(), calls.size() * sizeof(CollectiveCall));
        a.value = static_cast<uint64_t>(devices_.post(r, c.process, std::move(calls)));
        break;
      }
      case CommunicatorState:
        a = stateOf(r.a);
        break;
      case CommunicatorWait:
        c.rank = r.a;
        return wait(c, r.device, {});
      case CommunicatorFinalize:
        a.value = static_cast<uint64_t>(r.b == 0 ? all.refusal(r.a) : all.stateToDestroy(r.a));
        if (a.value == kDone) {
          report(all.finalize(r.a, r.b != 0));
          a.value = kInProgress;
          a.more = 1;
        }
        break;
      case CommunicatorRelease:
        all.release(r.a);
        break;
      case CommunicatorAbort:
        report(all.abort(r.a));
        break;
      case CommunicatorFail:
        all.fail(r.a, static_cast<int32_t>(r.b));
        break;
      case CommunicatorRegister:
        a.more = static_cast<uint64_t>(devices_.registerMemory(r, a.value));
        break;
      case CommunicatorDeregister:
        a.value = static_cast<uint64_t>(devices_.deregisterMemory(r, c.process));
        break;
      default:
        break;
    }
    reply(c, a);
  }

  std::vector<Devices::Mark> allWork(const Connection& c, uint32_t device) const {
    std::vector<Devices::Mark> marks;
    for (const uint64_t stream : devices_.streamsOf(c.process, device)) {
      marks.push_back(devices_.markOfStream(stream));
    }
    return marks;
  }

  int32_t query(const Connection& c, const Devices::Mark& mark) {
    if (!devices_.hasEnded(mark)) {
      return kNotReady;
    }
    devices_.tellHost(c.process, mark);
    return kSuccess;
  }

  int listener_;
  Devices devices_;
  std::vector<Connection> connections_;
  std::map<uint64_t, Process> processes_;
  uint64_t nextProcess_ = 1;
  uint64_t lastThread_ = 0;
};

// Whether a process is about to connect. Those of a job hold its lock from the look for an engine until they have connected; if none does,
// this process holds it until it ends.
bool isJoined(const std::string& job, pollfd next) {
  const int lock = open((job + "/lock").c_str(), O_RDWR | O_CLOEXEC);
  if (lock < 0) {
    return false;  // a process that is a job of its own
  }
  const bool isFree = flock(lock, LOCK_EX | LOCK_NB) == 0;
  if (isFree && poll(&next, 1, 0) <= 0) {
    return false;
  }
  close(lock);
  return true;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: simgpu_engine SOCKET\n");
    return 2;
  }
  const std::string path = argv[1];
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path) {
    std::fprintf(stderr, "simulated GPU: the path of the socket is too long: %s\n", path.c_str());
    return 2;
  }
  path.copy(address.sun_path, path.size());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(listener, 64) != 0) {
    std::perror("simulated GPU: socket of the engine");
    return 2;
  }
  const char* const folder = std::getenv("SIMGPU_KERNELS");
  Options options{.devices = setting("SIMGPU_DEVICES", 1),
                  .memory = setting("SIMGPU_MEMORY", uint64_t{1} << 30),
                  .seed = setting("SIMGPU_SEED", 1),
                  .longestDelay = std::chrono::microseconds(setting("SIMGPU_DELAY", 300)),
                  .synchronizePercent = setting("SIMGPU_SYNCHRONIZE", 50),
                  .reportsWaits = setting("SIMGPU_REPORT_WAITS", 0) != 0,
                  .residentCollectives = std::max<uint64_t>(setting("SIMGPU_NCCL_RESIDENT", 1), 1),
                  .kernels = folder == nullptr ? path.substr(0, path.rfind('/')) + "/kernels" : folder};
  const char* const fault = std::getenv("SIMGPU_FAULT");
  options.communicators = {.sharesDevices = setting("SIMGPU_NCCL_SHARED_DEVICE", 1) != 0,
                           .waitPercent = setting("SIMGPU_NCCL_WAIT", 50),
                           .isDeathSilent = fault != nullptr && std::strcmp(fault, "nccl-silent") == 0,
                           .longestDelay = options.longestDelay};
  std::puts("ready");  // whoever started the engine waits for this line
  std::fflush(stdout);
  close(1);
  const std::string job = path.substr(0, path.rfind('/'));
  Engine engine(listener, options);
  engine.serve();
  pollfd next{listener, POLLIN, 0};
  while (isJoined(job, next)) {
    if (poll(&next, 1, 10) > 0) {
      engine.serve();
    }
  }
  unlink(path.c_str());
  rmdir(job.c_str());  // unless it is the folder of a job
  return 0;
}

}  // namespace
}  // namespace simgpu

int main(int argc, char** argv) { return simgpu::main(argc, argv); }
