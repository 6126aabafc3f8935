#include "multidevice/transport/processes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/error.h"
#include "meshfuse_config.h"
#include "multidevice/transport/host/network_link.h"

namespace meshfuse {

namespace {

// A number that no other test of this user has had lately.
unsigned nextNumber() {
  const std::string file = fmt::format("/tmp/meshfuse_test_ports.{}", getuid());
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  check(fd >= 0 && flock(fd, LOCK_EX) == 0, "[test] no {}: {}", file, std::strerror(errno));
  unsigned next = 0;
  static_cast<void>(pread(fd, &next, sizeof(next), 0));
  const unsigned after = next + 1;
  check(pwrite(fd, &after, sizeof(after), 0) == sizeof(after), "[test] {} cannot be written", file);
  close(fd);
  return next;
}

// Even, because the port after MASTER_PORT is where survivors on several hosts meet. Below the ephemeral ports of the
// system: an ephemeral port may be taken by another socket before the ranks listen.
std::string freePort() {
  for (;;) {
    const auto port = static_cast<uint16_t>(10'000 + 2 * (nextNumber() % 10'000));
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    const bool free = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    if (free) {
      return std::to_string(port);
    }
  }
}

[[noreturn]] void childMain(int rank, int ranks, const std::string& port, int out,
                            const std::function<std::string(int)>& body) {
  unsetenv("PMIX_RANK");
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", port.c_str(), 1);
  std::string text;
  try {
    text = body(rank);
  } catch (const std::exception& e) {
    text = e.what();
  }
  const bool written = write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  _exit(written ? 0 : 1);
}

}  // namespace

RankProcesses::RankProcesses(int ranks, const std::function<std::string(int)>& body) : outcomes_(ranks) {
  std::fflush(nullptr);  // else children print it again
  const std::string port = freePort();
  for (int r = 0; r < ranks; ++r) {
    int ends[2];
    check(pipe(ends) == 0, "[test] no pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      childMain(r, ranks, port, ends[1], body);
    }
    close(ends[1]);
    children_.push_back({pid, ends[0]});
    outcomes_[r].process = pid;
  }
}

RankProcesses::~RankProcesses() {
  for (const Child& c : children_) {
    if (c.pid != 0) {
      kill(c.pid, SIGKILL);
      waitpid(c.pid, nullptr, 0);
      close(c.in);
    }
  }
}

RankProcesses::RankProcesses(RankProcesses&& other) noexcept
    : begin_(other.begin_), children_(std::exchange(other.children_, {})), outcomes_(std::move(other.outcomes_)) {}

void RankProcesses::collect(size_t rank) {
  Child& c = children_[rank];
  int status = 0;
  if (c.pid == 0 || waitpid(c.pid, &status, WNOHANG) != c.pid) {
    return;
  }
  ProcessOutcome& outcome = outcomes_[rank];
  outcome.ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (WIFSIGNALED(status)) {
    outcome.text = fmt::format("(signal {}) ", WTERMSIG(status));
  }
  char buffer[8192];
  for (ssize_t n = read(c.in, buffer, sizeof(buffer)); n > 0; n = read(c.in, buffer, sizeof(buffer))) {
    outcome.text.append(buffer, n);
  }
  close(c.in);
  c.pid = 0;
}

bool RankProcesses::haveEnded(const std::vector<int64_t>& butNot) {
  bool all = true;
  for (size_t r = 0; r < children_.size(); ++r) {
    collect(r);
    const bool asked = std::find(butNot.begin(), butNot.end(), static_cast<int>(r)) == butNot.end();
    all = all && (!asked || children_[r].pid == 0);
  }
  return all;
}

void RankProcesses::signal(int rank, int number) const {
  if (const pid_t pid = children_[rank].pid; pid != 0) {
    kill(pid, number);
  }
}

const std::vector<ProcessOutcome>& RankProcesses::await(const std::vector<int64_t>& butNot,
                                                        std::chrono::milliseconds patience) {
  while (!haveEnded(butNot)) {
    for (int r = 0; age() > patience && r < std::ssize(children_); ++r) {
      signal(r, SIGKILL);
    }
    usleep(1000);
  }
  return outcomes_;
}

std::vector<ProcessOutcome> runProcesses(int ranks, const std::function<std::string(Communicator&)>& body,
                                         const TransportOptions& options, std::chrono::milliseconds patience) {
  RankProcesses processes(ranks, [&](int) { return body(*openWorld(options)); });
  return processes.await({}, patience);
}

void callAllReduce(Communicator& comm, const Team& team, int64_t count, DataType type, ReduceOp op) {
  const std::vector<std::byte> in(count * dataTypeSize(type));
  std::vector<std::byte> out(in.size());
  comm.allReduce(team, in.data(), out.data(), count, type, op);
}

std::string callUntilFailure(Communicator& comm, const std::function<void()>& underWay) {
  try {
    for (int64_t i = 0;; ++i) {
      if (i == 1 && underWay) {
        underWay();
      }
      comm.setStep(i, "the test's sum");
      callAllReduce(comm, comm.world(), i % 3 == 0 ? 10 : 40'000);
    }
  } catch (const DeviceError& e) {
    return e.what();
  }
}

void killSoon() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(getpid(), SIGKILL);
  }).detach();
}

void expectSay(const std::vector<ProcessOutcome>& outcomes, const std::vector<int64_t>& ranks,
               const std::vector<std::string>& phrases) {
  for (int r : ranks) {
    const ProcessOutcome& o = outcomes.at(r);
    EXPECT_TRUE(o.ended) << "rank " << r;
    EXPECT_EQ(o.text, outcomes[ranks[0]].text);
    for (const std::string& phrase : phrases) {
      EXPECT_NE(o.text.find(phrase), std::string::npos)
          << "rank " << r << " says: " << o.text << "\nexpected: " << phrase;
    }
  }
}

std::string whyNoNetwork() {
  if (!kHasUcx) {
    return "this build has no UCX";
  }
  if (!kHasSodium) {
    return "this build has no libsodium";
  }
  try {
    (void)openUcxLink();
  } catch (const DeviceError& e) {
    const std::string_view text = e.what();
    if (text.find("No such device") == std::string_view::npos) {
      throw;
    }
    return std::string(text);
  }
  return "";
}

void awaitStandstill(pid_t process) {
  for (;;) {
    std::string stat;
    std::getline(std::ifstream(fmt::format("/proc/{}/stat", process)), stat);
    const size_t name = stat.rfind(") ");  // its state follows
    if (name == std::string::npos || std::string_view("TZX").find(stat[name + 2]) != std::string_view::npos) {
      return;
    }
    usleep(500);
  }
}

SharedCounters::SharedCounters(size_t count)
    : bytes_(count * sizeof(int)),
      memory_(static_cast<int*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
  check(memory_ != MAP_FAILED, "[test] no shared memory");
}

SharedCounters::~SharedCounters() { munmap(memory_, bytes_); }

void SharedCounters::add(size_t which, int value) const { std::atomic_ref<int>(memory_[which]).fetch_add(value); }

int SharedCounters::value(size_t which) const { return std::atomic_ref<int>(memory_[which]).load(); }

bool SharedCounters::reached(size_t which, int value) const { return this->value(which) >= value; }

void SharedCounters::await(size_t which, int value) const {
  while (!reached(which, value)) {
    usleep(500);
  }
}

void SharedCounters::meet(size_t which, int ranks) const {
  add(which);
  await(which, ranks);
}

}  // namespace meshfuse
