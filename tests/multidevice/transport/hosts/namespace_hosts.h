// Two "hosts" on one machine: processes with a network, a name and shared memory of their own, and a cable between them.
//
// The namespaces have no names in the system: they live as long as a process is in them, and those that keep them die with this one,
// however it ends. So nothing has to be cleaned up.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace meshfuse {

class NamespaceHosts {
 public:
  // Null, and why, where this process may not make namespaces or has no tools for it.
  static std::unique_ptr<NamespaceHosts> make(std::string& whyNot);
  ~NamespaceHosts();
  NamespaceHosts(const NamespaceHosts&) = delete;
  NamespaceHosts& operator=(const NamespaceHosts&) = delete;

  static constexpr int kHosts = 2;
  static std::string name(int host);
  static std::string address(int host);
  static std::string device(int host);

  // Moves this process, a child with one thread, to the host; it is killed when its parent ends.
  void enter(int host) const;
  // Runs a program of this machine on the host; its exit code, and what it wrote.
  int run(int host, const std::vector<std::string>& command, std::string& output,
          const std::function<void()>& prepare = {}) const;
  // Starts one for `mpirun`: what to give it as the remote shell.
  std::string remoteShell();
  // Bytes that have come to the host over the cable.
  int64_t bytesReceived(int host) const;
  void pullTheCable() const;

 private:
  struct Keeper {
    pid_t process = -1;
    std::vector<int> namespaces;
  };

  NamespaceHosts() = default;
  bool keep(int host, std::string& whyNot);
  bool connect(std::string& whyNot) const;

  Keeper keepers_[kHosts];
  int shell_ = -1;
};

}  // namespace meshfuse
