#include "multidevice/transport/processes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

namespace meshfuse {

namespace {

using Clock = std::chrono::steady_clock;

std::string freePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  close(fd);
  return std::to_string(ntohs(address.sin_port));
}

std::string runRank(const std::function<std::string(Communicator&)>& body, const TransportOptions& options) {
  try {
    const std::unique_ptr<Communicator> world = openWorld(options);
    return body(*world);
  } catch (const std::exception& e) {
    return e.what();
  }
}

[[noreturn]] void childMain(int rank, int ranks, const std::string& port, int out,
                            const std::function<std::string(Communicator&)>& body, const TransportOptions& options) {
  unsetenv("PMIX_RANK");
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", port.c_str(), 1);
  const std::string text = runRank(body, options);
  const bool written = write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  _exit(written ? 0 : 1);
}

}  // namespace

std::vector<ProcessOutcome> runProcesses(int ranks, const std::function<std::string(Communicator&)>& body,
                                         const TransportOptions& options, std::chrono::milliseconds patience) {
  struct Child {
    pid_t pid;
    int in;
  };
  const std::string port = freePort();
  const auto begin = Clock::now();
  std::vector<Child> children;
  for (int r = 0; r < ranks; ++r) {
    int ends[2];
    if (pipe(ends) != 0) {
      return {};
    }
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      childMain(r, ranks, port, ends[1], body, options);
    }
    close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  std::vector<ProcessOutcome> outcomes(children.size());
  for (bool allDone = false; !allDone;) {
    allDone = true;
    const bool late = Clock::now() - begin > patience;
    for (size_t i = 0; i < children.size(); ++i) {
      Child& c = children[i];
      if (c.pid == 0) {
        continue;
      }
      if (late) {
        kill(c.pid, SIGKILL);
      }
      int status = 0;
      if (waitpid(c.pid, &status, WNOHANG) == c.pid) {
        outcomes[i].ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        outcomes[i].after = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin);
        char buffer[8192];
        const ssize_t n = read(c.in, buffer, sizeof(buffer));
        outcomes[i].text.assign(buffer, static_cast<size_t>(std::max<ssize_t>(n, 0)));
        close(c.in);
        c.pid = 0;
      } else {
        allDone = false;
      }
    }
    usleep(allDone ? 0 : 1000);
  }
  return outcomes;
}

}  // namespace meshfuse
