#include "multidevice/transport/host/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/environment.h"
#include "base/error.h"
#include "multidevice/transport/host/descriptor.h"

namespace meshfuse {

namespace {

constexpr size_t kShortestSecret = 16;
constexpr size_t kLongestSecret = 4096;

std::string readSecret(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const int error = errno;
  check(file.open(),
        "[host] MESHFUSE_SECRET_FILE names {}, which cannot be read: {}; name a file that this user may read", path,
        std::strerror(error));
  struct stat about {};
  const bool isPrivate = fstat(file.get(), &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() &&
                         (about.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  check(isPrivate,
        "[host] MESHFUSE_SECRET_FILE names {}, expected a file of this user that nobody else may read; use chmod 600",
        path);
  std::string text(kLongestSecret + 1, '\0');
  const ssize_t length = read(file.get(), text.data(), text.size());
  text.resize(length > 0 ? length : 0);
  return text.substr(0, text.find_last_not_of("\r\n") + 1);
}

}  // namespace

std::optional<Key> keyOfEnvironment() {
  std::string secret = environmentText("MESHFUSE_SECRET");
  const std::string path = environmentText("MESHFUSE_SECRET_FILE");
  if (secret.empty() && path.empty()) {
    return std::nullopt;
  }
  if (secret.empty()) {
    secret = readSecret(path);
  }
  check(secret.size() >= kShortestSecret && secret.size() <= kLongestSecret,
        "[host] the secret of the job has {} characters, expected {} to {}; make one with: openssl rand -hex 32",
        secret.size(), kShortestSecret, kLongestSecret);
  return keyOfSecret(secret);
}

}  // namespace meshfuse
