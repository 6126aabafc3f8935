#include "multidevice/transport/hosts/namespace_hosts.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

namespace meshfuse {

namespace {

constexpr int kNamespaces = CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNS;
constexpr const char* kNamespaceFiles[] = {"net", "uts", "ipc", "mnt"};

[[noreturn]] void execute(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  fmt::print(stderr, "{}: {}\n", command[0], std::strerror(errno));
  _exit(127);
}

std::string readAll(int descriptor) {
  std::string text;
  char buffer[4096];
  for (ssize_t n = read(descriptor, buffer, sizeof(buffer)); n > 0; n = read(descriptor, buffer, sizeof(buffer))) {
    text.append(buffer, n);
  }
  return text;
}

}  // namespace

std::string NamespaceHosts::name(int host) { return fmt::format("meshfuse-host{}", host); }
std::string NamespaceHosts::address(int host) { return fmt::format("10.77.0.{}", host + 1); }
std::string NamespaceHosts::device(int host) { return fmt::format("cable{}", host); }

std::unique_ptr<NamespaceHosts> NamespaceHosts::make(std::string& whyNot) {
  std::unique_ptr<NamespaceHosts> hosts(new NamespaceHosts);
  for (int h = 0; h < kHosts; ++h) {
    if (!hosts->keep(h, whyNot)) {
      return nullptr;
    }
  }
  return hosts->connect(whyNot) ? std::move(hosts) : nullptr;
}

NamespaceHosts::~NamespaceHosts() {
  for (const Keeper& k : keepers_) {
    if (k.process > 0) {
      kill(k.process, SIGKILL);
      waitpid(k.process, nullptr, 0);
    }
    for (int descriptor : k.namespaces) {
      close(descriptor);
    }
  }
  if (shell_ >= 0) {
    close(shell_);
  }
}

bool NamespaceHosts::keep(int host, std::string& whyNot) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    whyNot = "no pipe";
    return false;
  }
  Keeper& keeper = keepers_[host];
  keeper.process = fork();
  if (keeper.process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const std::string own = name(host);
    // Libraries look for network devices in /sys, which shows those of the namespace it was mounted in.
    const bool made = unshare(kNamespaces) == 0 && sethostname(own.data(), own.size()) == 0 &&
                      mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                      mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0;
    int error = made ? 0 : errno;
    static_cast<void>(!write(ends[1], &error, sizeof(error)));
    for (;;) {
      pause();
    }
  }
  int error = EPIPE;
  static_cast<void>(!read(ends[0], &error, sizeof(error)));
  close(ends[0]);
  close(ends[1]);
  if (error != 0) {
    whyNot = fmt::format("this process may not make namespaces: {}", std::strerror(error));
    return false;
  }
  for (const char* file : kNamespaceFiles) {
    keeper.namespaces.push_back(open(fmt::format("/proc/{}/ns/{}", keeper.process, file).c_str(), O_CLOEXEC));
  }
  return true;
}

bool NamespaceHosts::connect(std::string& whyNot) const {
  std::string output;
  auto must = [&](int host, const std::vector<std::string>& command) {
    const bool done = run(host, command, output) == 0;
    if (!done) {
      whyNot = fmt::format("'{}' failed: {}", fmt::join(command, " "), output);
    }
    return done;
  };
  auto process = [&](int host) { return std::to_string(keepers_[host].process); };
  if (!must(0, {"ip", "link", "add", device(0), "type", "veth", "peer", "name", device(1), "netns", process(1)})) {
    return false;
  }
  for (int h = 0; h < kHosts; ++h) {
    if (!must(h, {"ip", "addr", "add", address(h) + "/24", "dev", device(h)}) ||
        !must(h, {"ip", "link", "set", "lo", "up"}) || !must(h, {"ip", "link", "set", device(h), "up"})) {
      return false;
    }
  }
  auto isUp = [&](int host) {
    output.clear();
    return run(host, {"ip", "-o", "link", "show", device(host)}, output) == 0 &&
           output.find("state UP") != std::string::npos;
  };
  for (int attempt = 0; attempt < 1000; ++attempt) {  // messages find only devices that are up
    if (isUp(0) && isUp(1)) {
      return true;
    }
    usleep(10'000);
  }
  whyNot = "the cable does not come up: " + output;
  return false;
}

void NamespaceHosts::enter(int host) const {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (int descriptor : keepers_[host].namespaces) {
    if (setns(descriptor, 0) != 0) {
      fmt::print(stderr, "cannot enter {}: {}\n", name(host), std::strerror(errno));
      _exit(126);
    }
  }
}

int NamespaceHosts::run(int host, const std::vector<std::string>& command, std::string& output,
                        const std::function<void()>& prepare) const {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return -1;
  }
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    enter(host);
    if (prepare) {
      prepare();
    }
    execute(command);
  }
  close(ends[1]);
  output += readAll(ends[0]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A script without a place in a file system: read by its path among the open files of this process.
std::string NamespaceHosts::remoteShell() {
  if (shell_ < 0) {
    const std::string script = fmt::format(
        "#!/bin/sh\nshift\nexec nsenter --target {} --net --uts --ipc --mount sh -c \"$*\"\n", keepers_[1].process);
    const int descriptor = memfd_create("remote shell", 0);
    if (descriptor < 0 || write(descriptor, script.data(), script.size()) != static_cast<ssize_t>(script.size()) ||
        fchmod(descriptor, 0755) != 0) {
      return "";
    }
    // Open for writing it would be busy.
    shell_ = open(fmt::format("/proc/self/fd/{}", descriptor).c_str(), O_RDONLY);
    close(descriptor);
  }
  return fmt::format("/proc/{}/fd/{}", getpid(), shell_);
}

int64_t NamespaceHosts::bytesReceived(int host) const {
  std::ifstream file(fmt::format("/proc/{}/net/dev", keepers_[host].process));
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(device(host) + ":");
    if (at != std::string::npos) {
      return std::stoll(line.substr(at + device(host).size() + 1));
    }
  }
  return -1;
}

void NamespaceHosts::pullTheCable() const {
  std::string output;
  run(0, {"ip", "link", "set", device(0), "down"}, output);
}

}  // namespace meshfuse
